/*
 * Walks without the registers that only a stop tells, through an image made in memory: a function with a frame pointer
 * above one that has not saved it. The frame pointer is inferred when everything about it fits; else the walk ends
 * there, as it did before.
 */
#include "cmocka_all.h"

#include "frameimage.h"
#include "unwind/unwind.h"

#include <stdlib.h>
#include <string.h>

/* Functions, by linker address. */
enum {
    BARE = FRAMEIMAGE_TEXT,    /* CFA = rsp + 8 */
    FRAMED = BARE + 0x20,      /* push %rbp; mov %rsp,%rbp; sub $0x20,%rsp; call bare; leave; ret */
    FRAMED_CALL = FRAMED + 13, /* where that call returns to */
    OTHER = FRAMED + 0x40,     /* CFA = rsp + 8 */
    THUNK = OTHER + 0x40,      /* the same */
    TRAMPOLINE = THUNK + 0x40, /* what signal handlers return to; no CFI */
    OUTER = TRAMPOLINE + 0x40, /* CFA = rsp + 8 */
    OUTER_CALL = OUTER + 0x20, /* where a call in it returns to */
    START = OUTER + 0x80,      /* no caller */
    START_CALL = START + 0x20, /* likewise */
    TEXT_END = START + 0x40,
    TEXT_BYTES = TEXT_END - FRAMEIMAGE_TEXT,
    CALL_BYTES = 5
};

static const uint64_t BIAS = 0x10000000;
static const uint64_t STACK = 0x7f0000;
static const uint64_t JIT = 0x20000000;

enum { WORDS = 128, MAPPING_BYTES = 0x10000, JIT_BYTES = 0x1000, DEPTH_MAX = 20, ROOM_WORDS = 4 };

struct fixture {
    uint8_t text[TEXT_BYTES];
    uint8_t jit[JIT_BYTES];
    uint64_t words[WORDS];
    struct image *image;
    struct code_region regions[2];
    struct codemap map;
    struct snapshot snapshot;
    struct unwinder *unwinder;
    struct unwind_space *space;
    struct stack stack;
    const uint8_t *outer_program; /* more of OUTER's unwind information; NULL: none */
    size_t outer_program_bytes;
};

static uint64_t code(uint64_t svma)
{
    return BIAS + svma;
}

static void put(struct fixture *fixture, uint64_t svma, const void *bytes, size_t size)
{
    memcpy(fixture->text + (svma - FRAMEIMAGE_TEXT), bytes, size);
}

static void put_jump(struct fixture *fixture, uint8_t opcode, uint64_t svma, uint64_t target)
{
    int32_t distance = (int32_t)(target - svma - CALL_BYTES);
    put(fixture, svma, &opcode, 1);
    put(fixture, svma + 1, &distance, sizeof(distance));
}

/* Words from the stack pointer up: bare's return address, framed's room, rbp, return address; outer's; start's. */
enum { AT_BARE, AT_ROOM, AT_RBP = AT_ROOM + ROOM_WORDS, AT_FRAMED, AT_OUTER, AT_START };

static int setup(void **state)
{
    static const uint8_t framed[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 8 * ROOM_WORDS};
    static const uint8_t leave_ret[] = {0xc9, 0xc3};
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (!fixture)
        return -1;
    *state = fixture;
    memset(fixture->text, 0x90, sizeof(fixture->text));
    memset(fixture->jit, 0x90, sizeof(fixture->jit));
    put(fixture, FRAMED, framed, sizeof(framed));
    put_jump(fixture, 0xe8, FRAMED_CALL - CALL_BYTES, BARE);
    put(fixture, FRAMED_CALL, leave_ret, sizeof(leave_ret));
    put_jump(fixture, 0xe8, OUTER_CALL - CALL_BYTES, FRAMED);
    put_jump(fixture, 0xe8, START_CALL - CALL_BYTES, OUTER);
    /* A stale call of the same function, and one of another, lie where framed's room is. */
    fixture->words[AT_BARE] = code(FRAMED_CALL);
    fixture->words[AT_ROOM] = STACK + 0x200;
    fixture->words[AT_ROOM + 1] = code(OUTER_CALL);
    fixture->words[AT_ROOM + 2] = code(START_CALL);
    fixture->words[AT_RBP] = 1;
    fixture->words[AT_FRAMED] = code(OUTER_CALL);
    fixture->words[AT_OUTER] = code(START_CALL);
    fixture->snapshot = (struct snapshot){
        .registers = {.known = 1U << REGISTER_RSP | 1U << REGISTER_PC},
        .stack_start_avma = STACK,
        .stack_end_avma = STACK + MAPPING_BYTES,
        .ranges = {{.avma = STACK, .bytes = (const uint8_t *)fixture->words, .size = sizeof(fixture->words)}},
        .range_count = 1,
    };
    fixture->snapshot.registers.value[REGISTER_PC] = code(BARE + 4);
    fixture->snapshot.registers.value[REGISTER_RSP] = STACK;
    /* What is not known is never read. */
    fixture->snapshot.registers.value[REGISTER_RBP] = STACK + 8;
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
    /* DW_CFA_advance_loc 1; def_cfa_offset 16; rbp saved at CFA - 16; advance 3; def_cfa_register rbp; advance 10;
     * def_cfa rsp, 8 */
    static const uint8_t framed[] = {0x41, 0x0e, 16, 0x86, 0x02, 0x43, 0x0d, 0x06, 0x4a, 0x0c, 0x07, 8};
    static const uint8_t none[] = {0x07, 16}; /* DW_CFA_undefined */
    const struct {
        uint64_t start;
        uint64_t end;
        const uint8_t *program;
        size_t size;
    } functions[] = {
        {BARE, FRAMED, NULL, 0},
        {FRAMED, OTHER, framed, sizeof(framed)},
        {OTHER, THUNK, NULL, 0},
        {THUNK, TRAMPOLINE, NULL, 0},
        {OUTER, START, fixture->outer_program, fixture->outer_program_bytes},
        {START, TEXT_END, none, sizeof(none)},
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

static bool read_jit(void *context, uint64_t avma, void *buffer, size_t size)
{
    const struct fixture *fixture = context;
    if (avma < JIT || avma - JIT > JIT_BYTES - size)
        return false;
    memcpy(buffer, fixture->jit + (avma - JIT), size);
    return true;
}

/* With new caches, and again with what was remembered. */
static const struct stack *walk_in(struct fixture *fixture, enum unwind_mode mode)
{
    unwind_space_free(fixture->space);
    unwinder_free(fixture->unwinder);
    image_free(fixture->image);
    fixture->image = open_image(fixture);
    assert_non_null(fixture->image);
    fixture->regions[0] = (struct code_region){.start_avma = code(FRAMEIMAGE_TEXT),
                                               .end_avma = code(TEXT_END),
                                               .map_off = FRAMEIMAGE_TEXT,
                                               .bias = BIAS,
                                               .image = fixture->image,
                                               .has_bias = true};
    fixture->regions[1] = (struct code_region){.start_avma = JIT, .end_avma = JIT + JIT_BYTES};
    fixture->map = (struct codemap){.generation = 1, .regions = fixture->regions, .count = 2};
    fixture->unwinder = unwinder_new(mode, DEPTH_MAX);
    assert_non_null(fixture->unwinder);
    fixture->space = unwind_space_new(fixture->unwinder);
    struct memory_reader reader = {.read = read_jit, .context = fixture};
    struct stack first = {0};
    assert_int_equal(unwind_walk(fixture->unwinder, fixture->space, &fixture->map, &fixture->snapshot, &reader, &first),
                     0);
    assert_int_equal(
        unwind_walk(fixture->unwinder, fixture->space, &fixture->map, &fixture->snapshot, &reader, &fixture->stack), 0);
    assert_int_equal(first.count, fixture->stack.count);
    assert_int_equal(first.end, fixture->stack.end);
    assert_int_equal(first.inferred, fixture->stack.inferred);
    stack_deinit(&first);
    return &fixture->stack;
}

static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_FP, UNWIND_DWARF};
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static void assert_frames(const struct stack *stack, const uint64_t *avmas, size_t count)
{
    assert_int_equal(stack->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(stack->frames[i].avma, avmas[i]);
}

static void assert_whole(struct fixture *fixture)
{
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL), fixture->words[AT_FRAMED], code(START_CALL)};
    for (size_t m = 0; m < MODES; m++) {
        const struct stack *stack = walk_in(fixture, modes[m]);
        assert_frames(stack, frames, 4);
        assert_int_equal(stack->end, STACK_COMPLETE);
        assert_int_equal(stack->inferred, 1);
    }
}

/* Ends where rbp is needed, and has looked no further. */
static void assert_stuck(struct fixture *fixture)
{
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL)};
    for (size_t m = 0; m < MODES; m++) {
        const struct stack *stack = walk_in(fixture, modes[m]);
        assert_frames(stack, frames, 2);
        assert_int_equal(stack->end, STACK_CUT_BAD_RULE);
        assert_int_equal(stack->inferred, 0);
        assert_int_equal(stack->top_avma, STACK + 8);
        assert_int_equal(unwinder_counters(fixture->unwinder).frames_by[FRAME_BY_CFI], 2); /* two walks */
    }
}

static void test_inferred(void **state)
{
    assert_whole(*state);
}

/* With all registers nothing is inferred, and the stack is the same. */
static void test_known(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL), code(OUTER_CALL), code(START_CALL)};
    fixture->snapshot.registers.known = REGISTERS_ALL;
    fixture->snapshot.registers.value[REGISTER_RBP] = STACK + AT_RBP * 8;
    const struct stack *stack = walk_in(fixture, UNWIND_AUTO);
    assert_frames(stack, frames, 4);
    assert_int_equal(stack->end, STACK_COMPLETE);
    assert_int_equal(stack->inferred, 0);
}

/* The thread is in the function with the frame pointer itself. */
static void test_innermost(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t frames[] = {code(FRAMED_CALL), code(OUTER_CALL), code(START_CALL)};
    fixture->snapshot.registers.value[REGISTER_PC] = code(FRAMED_CALL);
    fixture->snapshot.registers.value[REGISTER_RSP] = STACK + AT_ROOM * 8;
    for (size_t m = 0; m < MODES; m++) {
        const struct stack *stack = walk_in(fixture, modes[m]);
        assert_frames(stack, frames, 3);
        assert_int_equal(stack->end, STACK_COMPLETE);
        assert_int_equal(stack->inferred, 1);
    }
}

/* What the function's caller calls. */
static void test_call_targets(void **state)
{
    struct fixture *fixture = *state;
    /* another function */
    put_jump(fixture, 0xe8, OUTER_CALL - CALL_BYTES, OTHER);
    assert_stuck(fixture);
    /* into the middle of it */
    put_jump(fixture, 0xe8, OUTER_CALL - CALL_BYTES, FRAMED + 1);
    assert_stuck(fixture);
    /* a thunk, with and without endbr64 */
    put_jump(fixture, 0xe8, OUTER_CALL - CALL_BYTES, THUNK);
    put_jump(fixture, 0xe9, THUNK, FRAMED);
    assert_whole(fixture);
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    put(fixture, THUNK, endbr64, sizeof(endbr64));
    put_jump(fixture, 0xe9, THUNK + sizeof(endbr64), FRAMED);
    assert_whole(fixture);
    /* a function that jumps to it at its end, also by a condition */
    memset(fixture->text + (THUNK - FRAMEIMAGE_TEXT), 0x90, 0x20);
    put_jump(fixture, 0xe9, THUNK + 11, FRAMED);
    assert_whole(fixture);
    put(fixture, THUNK + 10, (const uint8_t[]){0x0f}, 1);
    put_jump(fixture, 0x84, THUNK + 11, FRAMED);
    assert_whole(fixture);
    /* one that jumps to a third */
    put(fixture, THUNK + 10, (const uint8_t[]){0x90}, 1);
    put_jump(fixture, 0xe9, THUNK + 11, OTHER);
    assert_stuck(fixture);
    /* thunks that go in a circle */
    put_jump(fixture, 0xe9, THUNK, THUNK);
    assert_stuck(fixture);
    /* a call through a register: anything */
    put(fixture, OUTER_CALL - CALL_BYTES, (const uint8_t[]){0x90, 0x90, 0x90, 0xff, 0xd0}, CALL_BYTES);
    assert_whole(fixture);
    /* no call */
    put(fixture, OUTER_CALL - CALL_BYTES, (const uint8_t[]){0x90, 0x90, 0x90, 0x90, 0x90}, CALL_BYTES);
    assert_stuck(fixture);
}

/* Further out something does not fit. */
static void test_rest_of_the_walk(void **state)
{
    struct fixture *fixture = *state;
    fixture->words[AT_OUTER] = 1; /* no code */
    assert_stuck(fixture);
    fixture->words[AT_OUTER] = code(START_CALL - 1); /* behind no call */
    assert_stuck(fixture);
    fixture->words[AT_OUTER] = code(START); /* nor is that, where a function begins */
    assert_stuck(fixture);
    fixture->words[AT_OUTER] = 0; /* the stack's beginning */
    const struct stack *stack = walk_in(fixture, UNWIND_AUTO);
    assert_int_equal(stack->count, 3);
    assert_int_equal(stack->end, STACK_COMPLETE);
    fixture->words[AT_OUTER] = code(START_CALL);
    assert_whole(fixture);
}

/* The depth cannot be told: the stack is realigned. */
static void test_unknown_depth(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, FRAMED + 4, (const uint8_t[]){0x48, 0x83, 0xe4, 0xe0}, 4);
    assert_stuck(fixture);
}

/* The next frame lies above what was copied: a larger copy helps, and that is said. */
static void test_cut_copy(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL)};
    static const size_t words[] = {AT_FRAMED, AT_OUTER};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fixture->snapshot.ranges[0].size = words[i] * 8;
        const struct stack *stack = walk_in(fixture, UNWIND_AUTO);
        assert_frames(stack, frames, 2);
        assert_int_equal(stack->end, STACK_CUT_COPY);
        assert_int_equal(stack->inferred, 0);
        assert_true(stack->top_avma > STACK + words[i] * 8);
    }
}

/* Generated code calls it, with frame pointers up to a zero. */
static void test_generated_caller(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL), JIT + 0x100, JIT + 0x200};
    for (size_t i = 1; i <= 2; i++)
        memcpy(fixture->jit + i * 0x100 - 2, (const uint8_t[]){0xff, 0xd0}, 2);
    fixture->words[AT_RBP] = STACK + 20 * 8;
    fixture->words[AT_FRAMED] = JIT + 0x100;
    fixture->words[20] = STACK + 24 * 8;
    fixture->words[21] = JIT + 0x200;
    const struct stack *stack = walk_in(fixture, UNWIND_AUTO);
    assert_frames(stack, frames, 4);
    assert_int_equal(stack->end, STACK_COMPLETE);
    assert_int_equal(stack->inferred, 1);
    /* A return address behind no call; and unwind information alone does not go on there. */
    fixture->words[AT_FRAMED] = JIT + 0x101;
    assert_stuck(fixture);
    fixture->words[AT_FRAMED] = JIT + 0x100;
    assert_int_equal(walk_in(fixture, UNWIND_DWARF)->count, 2);
    fixture->words[21] = JIT + 0x201;
    assert_stuck(fixture);
}

/* It is a signal handler: the kernel has put the trampoline's address there, and behind it what was interrupted. */
static void test_signal_handler(void **state)
{
    enum { CONTEXT = AT_OUTER, RBP_OFF = 15, RSP_OFF = 20, PC_OFF = 21, INTERRUPTED = 60 };
    static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    struct fixture *fixture = *state;
    put(fixture, TRAMPOLINE, sigreturn, sizeof(sigreturn));
    fixture->words[AT_FRAMED] = code(TRAMPOLINE);
    fixture->words[CONTEXT + RBP_OFF] = 0;
    fixture->words[CONTEXT + RSP_OFF] = STACK + INTERRUPTED * 8;
    fixture->words[CONTEXT + PC_OFF] = code(OUTER + 4);
    fixture->words[INTERRUPTED] = code(START_CALL);
    const uint64_t frames[] = {code(BARE + 4), code(FRAMED_CALL), code(TRAMPOLINE), code(OUTER + 4), code(START_CALL)};
    for (size_t m = 0; m < MODES; m++) {
        const struct stack *stack = walk_in(fixture, modes[m]);
        assert_frames(stack, frames, 5);
        assert_int_equal(stack->end, STACK_COMPLETE);
        assert_int_equal(stack->inferred, 1);
        assert_true(stack->frames[3].exact);
    }
    fixture->words[INTERRUPTED] = code(START_CALL - 1);
    assert_stuck(fixture);
}

/* The stack's end is where somebody wrote an address by hand: that is no return address, so nothing is proved. */
static void test_entered_frame(void **state)
{
    struct fixture *fixture = *state;
    fixture->words[AT_OUTER] = code(START);
    assert_stuck(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_inferred, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known, setup, teardown),
        cmocka_unit_test_setup_teardown(test_innermost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_targets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rest_of_the_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_generated_caller, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal_handler, setup, teardown),
        cmocka_unit_test_setup_teardown(test_entered_frame, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
