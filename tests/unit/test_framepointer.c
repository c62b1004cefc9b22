/* Frame pointers over stacks that are arrays of words. Code is anonymous: 0x400000 up, all of it calls (ff d0,
 * repeated). */
#include "cmocka_all.h"

#include "guarded.h"
#include "unwind/framepointer.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_AVMA = 0x400000, CODE_BYTES = 0x1000, STACK_AVMA = 0x7f0000, WORDS = 64 };
enum { CALL = CODE_AVMA + 0x100, NOT_CALL = CODE_AVMA + 0x101 };

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    if (avma < CODE_AVMA || avma + size > CODE_AVMA + CODE_BYTES)
        return false;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)buffer)[i] = (avma + i) % 2 ? 0xd0 : 0xff;
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
