/*
 * Walks over stacks that are arrays of words, through an image made in memory and its unwind information: frames that
 * no call leads to, frame records that CFI contradicts, signal frames that lead to other stacks.
 */
#include "cmocka_all.h"

#include "frameimage.h"
#include "unwind/unwind.h"

#include <stdlib.h>
#include <string.h>

/*
 * Functions, by linker address. Of `leaf` and `outer` the CFA is rsp + 8, all the time: their return address is the
 * word at the stack pointer; that of `before` is one word higher, that of `behind` two. `bare` has no CFI.
 */
enum {
    LEAF = FRAMEIMAGE_TEXT,
    BEFORE = LEAF + 0x20,
    BEHIND = BEFORE + 0x20, /* right behind it */
    TRAMPOLINE = BEHIND + 0x20,
    FRAMED = TRAMPOLINE + 0x20, /* CFA = rbp + 16 */
    OUTER = FRAMED + 0x40,
    BARE = OUTER + 0x80,
    TEXT_END = BARE + 0x40,
    TEXT_BYTES = TEXT_END - FRAMEIMAGE_TEXT,
    CALL_BYTES = 5,
};

static const uint64_t BIAS = 0x10000000;
static const uint64_t STACK = 0x7f0000;
static const uint64_t OTHER = 0x500000; /* the stack that a signal interrupted */

enum { WORDS = 80, MAPPING_BYTES = 0x10000, DEPTH_MAX = 20 };

static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_FP, UNWIND_DWARF};
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

struct fixture {
    uint8_t text[TEXT_BYTES];
    uint64_t words[WORDS];
    uint64_t other[WORDS];
    struct image *image;
    struct code_region region;
    struct codemap map;
    struct snapshot snapshot;
    struct unwinder *unwinder;
    struct unwind_space *space;
    struct stack stack;
};

static uint64_t code(uint64_t svma)
{
    return BIAS + svma;
}

static uint64_t word_avma(size_t n)
{
    return STACK + n * 8;
}

static uint64_t other_avma(size_t n)
{
    return OTHER + n * 8;
}

/* A call that returns to `svma`. */
static uint64_t call_before(struct fixture *fixture, uint64_t svma)
{
    fixture->text[svma - CALL_BYTES - FRAMEIMAGE_TEXT] = 0xe8;
    return code(svma);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (!fixture)
        return -1;
    *state = fixture;
    memset(fixture->text, 0x90, sizeof(fixture->text));
    fixture->snapshot = (struct snapshot){
        .registers = {.known = (1U << REGISTER_COUNT) - 1},
        .stack_start_avma = STACK,
        .stack_end_avma = STACK + MAPPING_BYTES,
        .ranges = {{.avma = STACK, .bytes = (const uint8_t *)fixture->words, .size = sizeof(fixture->words)},
                   {.avma = OTHER,
                    .bytes = (const uint8_t *)fixture->other,
                    .size = sizeof(fixture->other),
                    .mapping_end_avma = OTHER + MAPPING_BYTES}},
        .range_count = 1,
    };
    fixture->snapshot.registers.value[REGISTER_PC] = code(LEAF + 4);
    fixture->snapshot.registers.value[REGISTER_RSP] = STACK;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    stack_deinit(&fixture->stack);
    unwind_space_free(fixture->space);
    unwinder_free(fixture->unwinder);
    image_free(fixture->image);
    free(fixture);
    return 0;
}

static struct image *open_image(const struct fixture *fixture)
{
    static const uint8_t one_more[] = {0x0e, 16}; /* DW_CFA_def_cfa_offset */
    static const uint8_t two_more[] = {0x0e, 24};
    static const uint8_t by_rbp[] = {0x0c, 0x06, 16, 0x86, 0x02}; /* DW_CFA_def_cfa rbp; rbp saved at CFA - 16 */
    const struct {
        uint64_t start;
        uint64_t end;
        const uint8_t *program;
        size_t size;
    } functions[] = {
        {LEAF, BEFORE, NULL, 0},
        {BEFORE, BEHIND, one_more, sizeof(one_more)},
        {BEHIND, TRAMPOLINE, two_more, sizeof(two_more)},
        {TRAMPOLINE, FRAMED, NULL, 0},
        {FRAMED, OUTER, by_rbp, sizeof(by_rbp)},
        {OUTER, BARE, NULL, 0},
    };
    static uint8_t frames[0x800];
    memset(frames, 0, sizeof(frames));
    size_t off = 0;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        struct frameprogram program = {.start_svma = functions[i].start,
                                       .bytes = functions[i].end - functions[i].start,
                                       .code_align = 1,
                                       .data_align = -8,
                                       .program = functions[i].program,
                                       .program_bytes = functions[i].size};
        off = frameprogram_write(&program, frames, sizeof(frames) - 4, off);
        assert_true(off > 0);
    }
    struct frameimage parts = {
        .text = fixture->text, .text_bytes = TEXT_BYTES, .frames = frames, .frame_bytes = off + 4};
    return frameimage_open(&parts);
}

/* With new caches. */
static const struct stack *walk(struct fixture *fixture, enum unwind_mode mode)
{
    unwind_space_free(fixture->space);
    unwinder_free(fixture->unwinder);
    image_free(fixture->image);
    fixture->image = open_image(fixture);
    fixture->region = (struct code_region){.start_avma = code(FRAMEIMAGE_TEXT),
                                           .end_avma = code(TEXT_END),
                                           .map_off = FRAMEIMAGE_TEXT,
                                           .bias = BIAS,
                                           .image = fixture->image,
                                           .has_bias = true};
    fixture->map = (struct codemap){.generation = 1, .regions = &fixture->region, .count = 1};
    fixture->unwinder = unwinder_new(mode, DEPTH_MAX);
    fixture->space = unwind_space_new(fixture->unwinder);
    assert_true(fixture->image && fixture->unwinder && fixture->space);
    assert_int_equal(
        unwind_walk(fixture->unwinder, fixture->space, &fixture->map, &fixture->snapshot, NULL, &fixture->stack), 0);
    return &fixture->stack;
}

static void expect_frame(const struct stack *stack, size_t n, uint64_t avma, bool exact, enum frame_by by)
{
    assert_true(n < stack->count);
    assert_int_equal(stack->frames[n].avma, avma);
    assert_int_equal(stack->frames[n].exact, exact);
    assert_int_equal(stack->frames[n].by, by);
}

static void expect_end(const struct stack *stack, size_t count, enum stack_end end)
{
    assert_int_equal(stack->count, count);
    assert_int_equal(stack->end, end);
}

/* ---- frames that were not called ---- */

/* `leaf` returns to `return_avma`; which word is the next return address says whose rule was used. */
static const struct stack *walk_to(struct fixture *fixture, uint64_t return_avma, enum unwind_mode mode)
{
    memset(fixture->words, 0, sizeof(fixture->words));
    fixture->words[0] = return_avma;
    fixture->words[2] = call_before(fixture, OUTER + 0x10); /* by the rule of `before` */
    fixture->words[3] = call_before(fixture, OUTER + 0x20); /* of `behind` */
    return walk(fixture, mode);
}

static void a_frame_that_no_call_leads_to_begins_there(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        const struct stack *stack = walk_to(fixture, code(BEHIND), modes[i]);
        expect_end(stack, 3, STACK_COMPLETE);
        expect_frame(stack, 1, code(BEHIND), true, FRAME_BY_CFI);
        assert_int_equal(frame_lookup_avma(stack->frames[1].avma, stack->frames[1].exact), code(BEHIND));
        expect_frame(stack, 2, code(OUTER + 0x20), false, FRAME_BY_CFI);
    }
}

static void a_call_that_does_not_return_ends_its_function(void **state)
{
    struct fixture *fixture = *state;
    call_before(fixture, BEHIND);
    for (size_t i = 0; i < MODES; i++) {
        const struct stack *stack = walk_to(fixture, code(BEHIND), modes[i]);
        expect_end(stack, 4, STACK_COMPLETE);
        expect_frame(stack, 1, code(BEHIND), false, FRAME_BY_CFI);
        assert_int_equal(frame_lookup_avma(stack->frames[1].avma, stack->frames[1].exact), code(BEHIND) - 1);
        expect_frame(stack, 2, code(OUTER + 0x10), false, FRAME_BY_CFI);
        expect_frame(stack, 3, code(OUTER + 0x20), false, FRAME_BY_CFI);
    }
}

/* Within a function CFI is believed, whatever the bytes before the return address are taken for. */
static void inside_a_function_nothing_is_asked(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        const struct stack *stack = walk_to(fixture, code(BEHIND) - 1, modes[i]);
        expect_frame(stack, 1, code(BEHIND) - 1, false, FRAME_BY_CFI);
        expect_frame(stack, 2, code(OUTER + 0x10), false, FRAME_BY_CFI);
        stack = walk_to(fixture, code(BEHIND) + 1, modes[i]);
        expect_frame(stack, 1, code(BEHIND) + 1, false, FRAME_BY_CFI);
        expect_frame(stack, 2, code(OUTER + 0x20), false, FRAME_BY_CFI);
    }
}

/* Of code without CFI nothing more is known there: not even a frame pointer that leads on. */
static void a_frame_of_unknown_code_that_nothing_called_is_the_last(void **state)
{
    struct fixture *fixture = *state;
    fixture->words[0] = code(BARE + 8);
    fixture->words[10] = word_avma(20);
    fixture->words[11] = call_before(fixture, OUTER + 0x10);
    fixture->snapshot.registers.value[REGISTER_RBP] = word_avma(10);
    for (size_t i = 0; i < MODES; i++) {
        const struct stack *stack = walk(fixture, modes[i]);
        expect_end(stack, 2, STACK_CUT_NO_RULE);
        expect_frame(stack, 1, code(BARE + 8), true, FRAME_BY_CFI);
    }
    call_before(fixture, BARE + 8);
    const struct stack *stack = walk(fixture, UNWIND_AUTO);
    expect_frame(stack, 1, code(BARE + 8), false, FRAME_BY_CFI);
    expect_frame(stack, 2, code(OUTER + 0x10), false, FRAME_BY_FP);
}

/* ---- signal trampolines ---- */

static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

enum { CONTEXT = 1, CONTEXT_REGISTERS = CONTEXT + 5, CONTEXT_RBP = CONTEXT + 15, CONTEXT_RSP = CONTEXT + 20 };

/*
 * `leaf` is a handler: right above its return address lies the kernel's struct ucontext. The trampoline's CFI says that
 * it was called, and would make the context's first word the next return address.
 */
static void be_in_handler(struct fixture *fixture, uint64_t pc, uint64_t sp, uint64_t rbp)
{
    memcpy(fixture->text + TRAMPOLINE - FRAMEIMAGE_TEXT, sigreturn, sizeof(sigreturn));
    memset(fixture->words, 0, sizeof(fixture->words));
    fixture->words[0] = code(TRAMPOLINE);
    fixture->words[CONTEXT] = call_before(fixture, OUTER + 0x30);
    for (size_t i = CONTEXT_REGISTERS; i < CONTEXT_RSP; i++)
        fixture->words[i] = 1000 + i;
    fixture->words[CONTEXT_RBP] = rbp;
    fixture->words[CONTEXT_RSP] = sp;
    fixture->words[CONTEXT_RSP + 1] = pc;
}

static void a_trampolines_ordinary_cfi_is_not_believed(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        be_in_handler(fixture, code(FRAMED + 9), word_avma(40), word_avma(50));
        fixture->words[50] = 0;
        fixture->words[51] = call_before(fixture, OUTER + 0x10);
        const struct stack *stack = walk(fixture, modes[i]);
        expect_end(stack, 4, STACK_COMPLETE);
        expect_frame(stack, 1, code(TRAMPOLINE), true, FRAME_BY_CFI);
        expect_frame(stack, 2, code(FRAMED + 9), true, FRAME_BY_INSPECTION);
        /* By the interrupted rbp. */
        expect_frame(stack, 3, code(OUTER + 0x10), false, FRAME_BY_CFI);
        /* Without the system call it is an ordinary function that was entered. */
        fixture->text[TRAMPOLINE + 3 - FRAMEIMAGE_TEXT] = 14;
        stack = walk(fixture, modes[i]);
        expect_frame(stack, 1, code(TRAMPOLINE), true, FRAME_BY_CFI);
        expect_frame(stack, 2, code(OUTER + 0x30), false, FRAME_BY_CFI);
    }
}

/* A function that makes this system call itself, at the same place, was called. */
static void a_called_sigreturn_is_no_trampoline(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        be_in_handler(fixture, code(FRAMED + 9), word_avma(40), word_avma(50));
        call_before(fixture, TRAMPOLINE);
        const struct stack *stack = walk(fixture, modes[i]);
        expect_frame(stack, 1, code(TRAMPOLINE), false, FRAME_BY_CFI);
        assert_int_not_equal(stack->frames[2].by, FRAME_BY_INSPECTION);
    }
}

/* ---- frame pointers beside CFI ---- */

static void a_stale_record_is_not_used(void **state)
{
    struct fixture *fixture = *state;
    fixture->words[0] = call_before(fixture, OUTER + 0x10);
    fixture->words[1] = call_before(fixture, OUTER + 0x20);
    /* Credible: aligned, above, in the stack, behind a call. */
    fixture->words[10] = word_avma(20);
    fixture->words[11] = call_before(fixture, OUTER + 0x30);
    fixture->words[21] = code(OUTER + 0x30);
    fixture->snapshot.registers.value[REGISTER_RBP] = word_avma(10);
    const struct stack *stack = walk(fixture, UNWIND_FP);
    expect_end(stack, 3, STACK_COMPLETE);
    expect_frame(stack, 1, code(OUTER + 0x10), false, FRAME_BY_CFI);
    expect_frame(stack, 2, code(OUTER + 0x20), false, FRAME_BY_CFI);
    /* What was not used was not needed. */
    assert_int_equal(stack->top_avma, word_avma(3));
}

static void a_record_that_cfi_confirms_is_used(void **state)
{
    struct fixture *fixture = *state;
    fixture->words[0] = call_before(fixture, FRAMED + 0x20);
    fixture->words[10] = word_avma(20);
    fixture->words[11] = call_before(fixture, OUTER + 0x30);
    fixture->snapshot.registers.value[REGISTER_RBP] = word_avma(10);
    const struct stack *stack = walk(fixture, UNWIND_FP);
    expect_end(stack, 3, STACK_COMPLETE);
    expect_frame(stack, 2, code(OUTER + 0x30), false, FRAME_BY_FP);
    /* What lies below the stack pointer is no record, though the CFA would be that of one. */
    fixture->words[0] = code(OUTER + 0x30);
    fixture->words[1] = code(OUTER + 0x30);
    fixture->words[2] = 0;
    fixture->snapshot.registers.value[REGISTER_RBP] = word_avma(0);
    stack = walk(fixture, UNWIND_FP);
    expect_end(stack, 3, STACK_COMPLETE);
    expect_frame(stack, 1, code(OUTER + 0x30), false, FRAME_BY_CFI);
    expect_frame(stack, 2, code(OUTER + 0x30), false, FRAME_BY_CFI);
}

/* ---- other stacks ---- */

enum { OTHER_NEEDED = 31 }; /* words of the other stack */

/* The handler runs on the stack of the other tests; `framed` was interrupted on the other one, whose last frame it is.
 */
static void interrupt_other_stack(struct fixture *fixture)
{
    be_in_handler(fixture, code(FRAMED + 9), other_avma(16), other_avma(OTHER_NEEDED - 2));
    memset(fixture->other, 0, sizeof(fixture->other));
    fixture->snapshot.range_count = 2;
}

static void where_the_other_stack_is_written_down_is_told(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        interrupt_other_stack(fixture);
        const struct stack *stack = walk(fixture, modes[i]);
        expect_end(stack, 3, STACK_COMPLETE);
        assert_int_equal(stack->interrupted_sp_at_avma, word_avma(CONTEXT_RSP));
        /* From the range's start to behind the return address; and of this stack what the context needs. */
        assert_int_equal(stack->other_bytes, OTHER_NEEDED * 8);
        assert_int_equal(stack->top_avma, word_avma(CONTEXT_RSP + 2));
    }
    /* Also while nothing of it is copied: the next copy can have it. */
    fixture->snapshot.range_count = 1;
    const struct stack *stack = walk(fixture, UNWIND_AUTO);
    expect_end(stack, 3, STACK_CUT_MEMORY);
    assert_int_equal(stack->interrupted_sp_at_avma, word_avma(CONTEXT_RSP));
    assert_int_equal(stack->other_bytes, 0);
}

static void the_same_stack_is_no_other(void **state)
{
    struct fixture *fixture = *state;
    be_in_handler(fixture, code(FRAMED + 9), word_avma(40), word_avma(50));
    const struct stack *stack = walk(fixture, UNWIND_AUTO);
    expect_end(stack, 3, STACK_COMPLETE);
    assert_int_equal(stack->interrupted_sp_at_avma, 0);
    assert_int_equal(stack->other_bytes, 0);
    /* Nor is one whose mapping is not known. */
    fixture->snapshot.stack_start_avma = fixture->snapshot.stack_end_avma = 0;
    stack = walk(fixture, UNWIND_AUTO);
    assert_int_equal(stack->interrupted_sp_at_avma, 0);
}

/* A signal stack inside the frames of the one that it interrupts lies in the same mapping, above them. */
static void frames_below_the_copy_are_on_another_stack(void **state)
{
    struct fixture *fixture = *state;
    interrupt_other_stack(fixture);
    fixture->snapshot.stack_start_avma = OTHER;
    const struct stack *stack = walk(fixture, UNWIND_AUTO);
    expect_end(stack, 3, STACK_COMPLETE);
    assert_int_equal(stack->interrupted_sp_at_avma, word_avma(CONTEXT_RSP));
    assert_int_equal(stack->other_bytes, OTHER_NEEDED * 8);
}

static void a_short_copy_of_the_other_stack_says_so(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < MODES; i++) {
        interrupt_other_stack(fixture);
        for (size_t words = 17; words < OTHER_NEEDED; words++) {
            fixture->snapshot.ranges[1].size = words * 8;
            const struct stack *stack = walk(fixture, modes[i]);
            expect_end(stack, 3, STACK_CUT_COPY);
            assert_int_equal(stack->other_bytes, OTHER_NEEDED * 8);
            assert_int_equal(stack->interrupted_sp_at_avma, word_avma(CONTEXT_RSP));
        }
        fixture->snapshot.ranges[1].size = OTHER_NEEDED * 8;
        expect_end(walk(fixture, modes[i]), 3, STACK_COMPLETE);
        /* What lies beyond its mapping no copy would have. */
        fixture->snapshot.ranges[1].size = 20 * 8;
        fixture->snapshot.ranges[1].mapping_end_avma = other_avma(25);
        const struct stack *stack = walk(fixture, modes[i]);
        expect_end(stack, 3, STACK_CUT_MEMORY);
        assert_int_equal(stack->other_bytes, 0);
        fixture->snapshot.ranges[1].size = sizeof(fixture->other);
        fixture->snapshot.ranges[1].mapping_end_avma = OTHER + MAPPING_BYTES;
    }
}

/* Of more than one the innermost is told: from there the others can be found. */
static void the_first_of_two_other_stacks_is_told(void **state)
{
    struct fixture *fixture = *state;
    interrupt_other_stack(fixture);
    /* What was interrupted is a handler itself, of code on a third stack that is not there. */
    fixture->words[CONTEXT_RSP] = other_avma(0);
    fixture->words[CONTEXT_RSP + 1] = code(LEAF + 4);
    fixture->other[0] = code(TRAMPOLINE);
    fixture->other[CONTEXT_RSP] = 0x990000;
    fixture->other[CONTEXT_RSP + 1] = code(LEAF + 4);
    const struct stack *stack = walk(fixture, UNWIND_AUTO);
    expect_end(stack, 5, STACK_CUT_MEMORY);
    assert_int_equal(stack->interrupted_sp_at_avma, word_avma(CONTEXT_RSP));
    assert_int_equal(stack->other_bytes, (CONTEXT_RSP + 2) * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_frame_that_no_call_leads_to_begins_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_that_does_not_return_ends_its_function, setup, teardown),
        cmocka_unit_test_setup_teardown(inside_a_function_nothing_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_frame_of_unknown_code_that_nothing_called_is_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trampolines_ordinary_cfi_is_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_called_sigreturn_is_no_trampoline, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stale_record_is_not_used, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_that_cfi_confirms_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(where_the_other_stack_is_written_down_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_stack_is_no_other, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_below_the_copy_are_on_another_stack, setup, teardown),
        cmocka_unit_test_setup_teardown(a_short_copy_of_the_other_stack_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_of_two_other_stacks_is_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
