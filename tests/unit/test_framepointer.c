/*
 * Frame pointers over stacks that are arrays of words. Code is anonymous: 0x400000 up, all of it calls (ff d0,
 * repeated), but for what a test puts there.
 */
#include "cmocka_all.h"

#include "guarded.h"
#include "unwind/framepointer.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_AVMA = 0x400000, CODE_BYTES = 0x1000, STACK_AVMA = 0x7f0000, WORDS = 64 };
enum { CALL = CODE_AVMA + 0x100, NOT_CALL = CODE_AVMA + 0x101 };

static uint8_t code[CODE_BYTES];

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    if (avma < CODE_AVMA || avma + size > CODE_AVMA + CODE_BYTES)
        return false;
    memcpy(buffer, code + (avma - CODE_AVMA), size);
    return true;
}

struct fixture {
    struct guarded copy;
    uint64_t words[WORDS];
    struct code_region region;
    struct codemap map;
    struct snapshot snapshot;
    struct memory_reader reader;
    struct view view;
    struct callsites callsites;
    struct registers registers;
    struct registers caller;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (!fixture)
        return -1;
    for (size_t i = 0; i < CODE_BYTES; i++)
        code[i] = i % 2 ? 0xd0 : 0xff;
    fixture->region = (struct code_region){.start_avma = CODE_AVMA, .end_avma = CODE_AVMA + CODE_BYTES};
    fixture->map = (struct codemap){.generation = 1, .regions = &fixture->region, .count = 1};
    fixture->copy = guarded_new(NULL, sizeof(fixture->words));
    fixture->snapshot = (struct snapshot){
        .stack_start_avma = STACK_AVMA - 0x10000,
        .stack_end_avma = STACK_AVMA + 0x10000,
        .ranges = {{.avma = STACK_AVMA, .bytes = fixture->copy.bytes, .size = sizeof(fixture->words)}},
        .range_count = 1,
    };
    fixture->reader = (struct memory_reader){.read = read_code};
    fixture->view = (struct view){.map = &fixture->map, .snapshot = &fixture->snapshot, .reader = &fixture->reader};
    fixture->callsites.images = calloc(1, sizeof(struct callsite_cache));
    fixture->callsites.anonymous = calloc(1, sizeof(struct callsite_cache));
    fixture->registers.known = (1U << REGISTER_COUNT) - 1;
    fixture->registers.value[REGISTER_PC] = CALL;
    fixture->registers.value[REGISTER_RSP] = STACK_AVMA + 16;
    *state = fixture;
    return fixture->copy.bytes && fixture->callsites.images && fixture->callsites.anonymous ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    guarded_free(&fixture->copy);
    free(fixture->callsites.images);
    free(fixture->callsites.anonymous);
    free(fixture);
    return 0;
}

static enum framepointer_answer step(struct fixture *fixture, uint64_t rbp, bool exact)
{
    memcpy(fixture->copy.bytes, fixture->words, sizeof(fixture->words));
    fixture->registers.value[REGISTER_RBP] = rbp;
    return framepointer_step(&fixture->view, fixture->callsites, &fixture->registers, exact, &fixture->caller);
}

static uint64_t word_avma(size_t n)
{
    return STACK_AVMA + n * 8;
}

static void put_record(struct fixture *fixture, size_t n, uint64_t rbp, uint64_t return_avma)
{
    fixture->words[n] = rbp;
    fixture->words[n + 1] = return_avma;
}

static void follows_a_record(void **state)
{
    struct fixture *fixture = *state;
    put_record(fixture, 10, word_avma(20), CALL);
    assert_int_equal(step(fixture, word_avma(10), true), FRAMEPOINTER_STEPPED);
    assert_int_equal(fixture->caller.value[REGISTER_PC], CALL);
    assert_int_equal(fixture->caller.value[REGISTER_RSP], word_avma(12));
    assert_int_equal(fixture->caller.value[REGISTER_RBP], word_avma(20));
    assert_int_equal(fixture->caller.known, 1U << REGISTER_PC | 1U << REGISTER_RSP | 1U << REGISTER_RBP);
    assert_int_equal(fixture->view.top_avma, word_avma(12));
}

static void follows_the_last_record_of_the_copy(void **state)
{
    struct fixture *fixture = *state;
    put_record(fixture, WORDS - 2, 1, CALL);
    assert_int_equal(step(fixture, word_avma(WORDS - 2), false), FRAMEPOINTER_STEPPED);
    assert_int_equal(fixture->caller.value[REGISTER_RBP], 1); /* as under main of glibc: judged when it is used */
}

static void believes_no_number(void **state)
{
    struct fixture *fixture = *state;
    put_record(fixture, 10, word_avma(20), CALL);
    static const uint64_t numbers[] = {
        10,
        8,
        UINT64_MAX,
        UINT64_MAX - 7,
        UINT64_C(0x8000000000000000), /* not canonical */
        UINT64_C(0xffff800000000000), /* the kernel's */
        CODE_AVMA,
        STACK_AVMA + 8,          /* below the stack pointer */
        STACK_AVMA + 10 * 8 + 4, /* not aligned */
        STACK_AVMA + 10 * 8 + 1,
        STACK_AVMA + 0x10000,     /* where the mapping ends */
        STACK_AVMA + 0x10000 - 8, /* half of the record lies outside */
        STACK_AVMA - 0x10000,
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (step(fixture, numbers[i], true) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("number %zu, exact", i);
        if (step(fixture, numbers[i], false) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("number %zu", i);
    }
    assert_int_equal(fixture->view.top_avma, 0);
}

static void believes_no_return_address_that_is_none(void **state)
{
    struct fixture *fixture = *state;
    static const uint64_t numbers[] = {
        NOT_CALL, 1, CODE_AVMA /* nothing before it */, CODE_AVMA + CODE_BYTES + 1, STACK_AVMA, UINT64_MAX,
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        put_record(fixture, 10, word_avma(20), numbers[i]);
        if (step(fixture, word_avma(10), false) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("number %zu", i);
    }
    /* The very end of code may be a return address: of a call that does not return. */
    put_record(fixture, 10, word_avma(20), CODE_AVMA + CODE_BYTES);
    assert_int_equal(step(fixture, word_avma(10), false), FRAMEPOINTER_STEPPED);
}

static void believes_nothing_when_code_cannot_be_read(void **state)
{
    struct fixture *fixture = *state;
    put_record(fixture, 10, word_avma(20), CALL);
    fixture->view.reader = NULL;
    assert_int_equal(step(fixture, word_avma(10), false), FRAMEPOINTER_NOT_BELIEVED);
}

static void believes_only_a_register_that_is_known(void **state)
{
    struct fixture *fixture = *state;
    put_record(fixture, 10, word_avma(20), CALL);
    fixture->registers.known &= ~(1U << REGISTER_RBP);
    assert_int_equal(step(fixture, word_avma(10), false), FRAMEPOINTER_NOT_BELIEVED);
}

/* A heap cell that points to itself, with a fitting return address next to it: copied, but not the thread's stack. */
static void believes_no_record_outside_the_stack(void **state)
{
    struct fixture *fixture = *state;
    static const uint64_t cell[2] = {0x900000, CALL};
    fixture->snapshot.ranges[1] =
        (struct memory_range){.avma = 0x900000, .bytes = (const uint8_t *)cell, .size = sizeof(cell)};
    fixture->snapshot.range_count = 2;
    assert_int_equal(step(fixture, 0x900000, true), FRAMEPOINTER_NOT_BELIEVED);
    /* The same without knowing the mapping. */
    fixture->snapshot.stack_start_avma = fixture->snapshot.stack_end_avma = 0;
    assert_int_equal(step(fixture, 0x900000, true), FRAMEPOINTER_NOT_BELIEVED);
    put_record(fixture, 10, word_avma(20), CALL);
    assert_int_equal(step(fixture, word_avma(10), true), FRAMEPOINTER_STEPPED);
}

static void two_zeros_end_a_chain_and_one_proves_nothing(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(step(fixture, 0, false), FRAMEPOINTER_NOT_BELIEVED);
    assert_int_equal(step(fixture, 0, true), FRAMEPOINTER_NOT_BELIEVED);
    put_record(fixture, 10, 0, 0);
    assert_int_equal(step(fixture, word_avma(10), false), FRAMEPOINTER_OUTERMOST);
    assert_int_equal(step(fixture, word_avma(10), true), FRAMEPOINTER_NOT_BELIEVED);
    put_record(fixture, 10, word_avma(20), 0);
    assert_int_equal(step(fixture, word_avma(10), false), FRAMEPOINTER_NOT_BELIEVED);
}

static void a_record_above_the_copy_is_cut(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(step(fixture, word_avma(WORDS), false), FRAMEPOINTER_CUT);
    assert_int_equal(fixture->view.top_avma, word_avma(WORDS + 2));
    assert_int_equal(step(fixture, word_avma(WORDS - 1), false), FRAMEPOINTER_CUT); /* half of it */
    assert_int_equal(step(fixture, STACK_AVMA + 0x10000 - 16, false), FRAMEPOINTER_CUT);
    fixture->snapshot.stack_start_avma = fixture->snapshot.stack_end_avma = 0;
    assert_int_equal(step(fixture, word_avma(WORDS), false), FRAMEPOINTER_NOT_BELIEVED);
}

static void every_chain_ends(void **state)
{
    struct fixture *fixture = *state;
    /* A record that points to itself, and two that point to each other: the second step goes down. */
    put_record(fixture, 10, word_avma(10), CALL);
    put_record(fixture, 20, word_avma(30), CALL);
    put_record(fixture, 30, word_avma(20), CALL);
    static const size_t starts[] = {10, 20};
    for (size_t i = 0; i < 2; i++) {
        setup(state);
        struct fixture *fresh = *state;
        memcpy(fresh->words, fixture->words, sizeof(fresh->words));
        uint64_t rbp = word_avma(starts[i]);
        unsigned steps = 0;
        while (step(fresh, rbp, false) == FRAMEPOINTER_STEPPED) {
            steps++;
            assert_true(fresh->caller.value[REGISTER_RSP] > fresh->registers.value[REGISTER_RSP]);
            fresh->registers = fresh->caller;
            rbp = fresh->caller.value[REGISTER_RBP];
        }
        assert_int_equal(steps, i + 1);
        teardown(state);
    }
    *state = fixture;
}

/* ---- return addresses that no call stands before ---- */

static enum framepointer_answer step_to(struct fixture *fixture, uint64_t return_avma)
{
    put_record(fixture, 10, word_avma(20), return_avma);
    return step(fixture, word_avma(10), false);
}

/* `bytes` stand at NOT_CALL. Each of them counts. */
static void expect_accepted(struct fixture *fixture, const uint8_t *bytes, size_t size)
{
    memcpy(code + NOT_CALL - CODE_AVMA, bytes, size);
    assert_int_equal(step_to(fixture, NOT_CALL), FRAMEPOINTER_STEPPED);
    assert_int_equal(fixture->caller.value[REGISTER_PC], NOT_CALL);
    for (size_t i = 0; i < size; i++) {
        code[NOT_CALL - CODE_AVMA + i] ^= 1;
        if (step_to(fixture, NOT_CALL) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("without byte %zu", i);
        code[NOT_CALL - CODE_AVMA + i] ^= 1;
    }
}

static void a_handler_returns_to_its_trampoline(void **state)
{
    static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
    static const uint8_t narrow[] = {0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
    expect_accepted(*state, wide, sizeof(wide));
    expect_accepted(*state, narrow, sizeof(narrow));
}

static void a_first_function_returns_to_the_end_of_its_thread(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t exit_call[] = {0xb0, 0x3c, 0x0f, 0x05};
    expect_accepted(fixture, exit_call, sizeof(exit_call));
    /* One byte into  nop; call goexit1; nop. */
    static const uint8_t goexit[] = {0xcc, 0x90, 0xe8, 0x11, 0x22, 0x33, 0x00, 0x90};
    enum { GOEXIT_RETURN = 2 };
    memcpy(code + NOT_CALL - CODE_AVMA, goexit, sizeof(goexit));
    assert_int_equal(step_to(fixture, NOT_CALL + GOEXIT_RETURN), FRAMEPOINTER_STEPPED);
    assert_int_equal(step_to(fixture, NOT_CALL + GOEXIT_RETURN - 1), FRAMEPOINTER_NOT_BELIEVED);
}

/* ---- frames of HotSpot's interpreter ---- */

enum { INNER = 10, OUTER = 40 }; /* words of the records of the frame and of its caller */

/* The caller's frame: its record's address, and what it has right below the record. */
struct shape {
    uint64_t rbp;
    uint64_t last_sp;
    uint64_t sender_sp;
};

static const struct shape right_shape = {
    .rbp = STACK_AVMA + OUTER * 8, .last_sp = STACK_AVMA + 20 * 8, .sender_sp = STACK_AVMA + 44 * 8};

static enum framepointer_answer step_by_shape(struct fixture *fixture, struct shape shape)
{
    memset(fixture->words, 0, sizeof(fixture->words));
    uint64_t right_below[] = {shape.last_sp, shape.sender_sp};
    uint64_t off = shape.rbp - sizeof(right_below) - STACK_AVMA;
    if (off < sizeof(fixture->words) - sizeof(right_below))
        memcpy((uint8_t *)fixture->words + off, right_below, sizeof(right_below));
    put_record(fixture, INNER, shape.rbp, NOT_CALL);
    fixture->view.top_avma = 0;
    fixture->caller = (struct registers){0};
    enum framepointer_answer answer = step(fixture, word_avma(INNER), true);
    assert_int_equal(step(fixture, word_avma(INNER), false), answer);
    return answer;
}

static void expect_shape(struct fixture *fixture, struct shape shape)
{
    assert_int_equal(step_by_shape(fixture, shape), FRAMEPOINTER_STEPPED);
    assert_int_equal(fixture->caller.value[REGISTER_PC], NOT_CALL);
    assert_int_equal(fixture->caller.value[REGISTER_RSP], word_avma(INNER + 2));
    assert_int_equal(fixture->caller.value[REGISTER_RBP], shape.rbp);
    assert_int_equal(fixture->view.top_avma, word_avma(INNER + 2));
}

static void refuse_shape(struct fixture *fixture, struct shape shape)
{
    assert_int_equal(step_by_shape(fixture, shape), FRAMEPOINTER_NOT_BELIEVED);
    assert_int_equal(fixture->caller.known, 0);
    assert_int_equal(fixture->view.top_avma, 0);
}

static void an_interpreters_frame_is_known_by_its_shape(void **state)
{
    struct fixture *fixture = *state;
    expect_shape(fixture, right_shape);
    /* The edges of what fits. */
    struct shape shape = right_shape;
    shape.last_sp = word_avma(INNER + 2);
    expect_shape(fixture, shape);
    shape.last_sp = word_avma(OUTER - 8);
    expect_shape(fixture, shape);
    shape.sender_sp = word_avma(OUTER + 2);
    expect_shape(fixture, shape);
    /* It may lie where nothing was copied. */
    shape.sender_sp = fixture->snapshot.stack_end_avma - 16;
    expect_shape(fixture, shape);
    /* The smallest frame, and the highest one of the copy. */
    expect_shape(fixture, (struct shape){word_avma(INNER + 10), word_avma(INNER + 2), word_avma(INNER + 12)});
    expect_shape(fixture, (struct shape){word_avma(WORDS - 2), word_avma(INNER + 2), word_avma(WORDS)});
}

static void an_interpreters_stack_pointers_have_their_places(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t end = fixture->snapshot.stack_end_avma;
    const uint64_t last_sps[] = {word_avma(INNER + 2) - 8, word_avma(INNER), 0,  word_avma(20) + 4, word_avma(20) + 1,
                                 word_avma(OUTER - 7),     word_avma(OUTER), end};
    for (size_t i = 0; i < sizeof(last_sps) / sizeof(last_sps[0]); i++) {
        struct shape shape = right_shape;
        shape.last_sp = last_sps[i];
        if (step_by_shape(fixture, shape) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("last_sp %zu", i);
    }
    const uint64_t sender_sps[] = {word_avma(OUTER + 1), word_avma(OUTER),  word_avma(INNER), 0,
                                   word_avma(44) + 4,    word_avma(44) + 1, end - 8,          end,
                                   UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof(sender_sps) / sizeof(sender_sps[0]); i++) {
        struct shape shape = right_shape;
        shape.sender_sp = sender_sps[i];
        if (step_by_shape(fixture, shape) != FRAMEPOINTER_NOT_BELIEVED)
            fail_msg("sender_sp %zu", i);
    }
}

static void an_interpreters_record_lies_above(void **state)
{
    struct fixture *fixture = *state;
    /* One word less than the smallest frame has room for no last_sp; and anything lower. */
    const uint64_t records[] = {word_avma(INNER + 9), word_avma(INNER + 2), word_avma(INNER), word_avma(INNER - 4), 8};
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        struct shape shape = {records[i], word_avma(INNER + 2), word_avma(44)};
        refuse_shape(fixture, shape);
        shape.last_sp = records[i] - 64;
        refuse_shape(fixture, shape);
    }
    /* Misaligned, with everything else in its place relative to it. */
    refuse_shape(fixture, (struct shape){word_avma(OUTER) + 4, word_avma(20), word_avma(44)});
    refuse_shape(fixture, (struct shape){word_avma(OUTER) + 1, word_avma(20), word_avma(44)});
    /* Outside of the stack. */
    uint64_t end = fixture->snapshot.stack_end_avma;
    refuse_shape(fixture, (struct shape){end, word_avma(20), end + 16});
    refuse_shape(fixture, (struct shape){end - 8, word_avma(20), end - 16});
}

static void an_interpreters_code_is_anonymous(void **state)
{
    struct fixture *fixture = *state;
    /* Never looked into, as no segment of it explains the mapping. */
    static const char some_image;
    fixture->region.image = (const struct image *)&some_image;
    refuse_shape(fixture, right_shape);
    fixture->region.image = NULL;
    expect_shape(fixture, right_shape);
    /* Nor is it elsewhere than in executable memory. */
    fixture->region.end_avma = NOT_CALL - 1;
    refuse_shape(fixture, right_shape);
    fixture->region.end_avma = NOT_CALL;
    expect_shape(fixture, right_shape);
}

static void an_interpreters_record_above_the_copy_is_cut(void **state)
{
    struct fixture *fixture = *state;
    struct shape shape = {word_avma(WORDS), word_avma(20), word_avma(WORDS + 4)};
    assert_int_equal(step_by_shape(fixture, shape), FRAMEPOINTER_CUT);
    assert_int_equal(fixture->view.top_avma, word_avma(WORDS + 2));
    assert_int_equal(fixture->caller.known, 0);
    shape.rbp = word_avma(WORDS - 1); /* half of it */
    assert_int_equal(step_by_shape(fixture, shape), FRAMEPOINTER_CUT);
    assert_int_equal(fixture->view.top_avma, word_avma(WORDS + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(follows_a_record, setup, teardown),
        cmocka_unit_test_setup_teardown(follows_the_last_record_of_the_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_no_number, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_no_return_address_that_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_nothing_when_code_cannot_be_read, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_only_a_register_that_is_known, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_no_record_outside_the_stack, setup, teardown),
        cmocka_unit_test_setup_teardown(two_zeros_end_a_chain_and_one_proves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_record_above_the_copy_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(every_chain_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(a_handler_returns_to_its_trampoline, setup, teardown),
        cmocka_unit_test_setup_teardown(a_first_function_returns_to_the_end_of_its_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interpreters_frame_is_known_by_its_shape, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interpreters_stack_pointers_have_their_places, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interpreters_record_lies_above, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interpreters_code_is_anonymous, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interpreters_record_above_the_copy_is_cut, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
