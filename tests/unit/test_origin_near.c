/* Where a thread's stack begins, near a frame whose frame pointer was never set. */
#include "cmocka_all.h"

#include "unwind/origin.h"

#include <string.h>

enum { REGION_BYTES = 256, WORDS = 32, CALL_BYTES = 5 };
enum { MIDDLE = 64 + CALL_BYTES, END = 128 + CALL_BYTES };

static const uint64_t STACK = 0x7f0000000000;
static const uint64_t CODE = 0x400000;

static uint8_t code[REGION_BYTES];
static uint64_t words[WORDS];

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    memcpy(buffer, code + (avma - CODE), size);
    return true;
}

static const struct memory_reader reader = {.read = read_code};
static const struct code_region region = {.start_avma = CODE, .end_avma = CODE + REGION_BYTES};
static const struct codemap map = {.generation = 1, .regions = &region, .count = 1};

/* Calls that return to MIDDLE and END; behind the latter the thread ends. */
static int setup(void **state)
{
    (void)state;
    static const uint8_t exit_call[] = {0x31, 0xff, 0xb0, 0x3c, 0x0f, 0x05}; /* xor %edi,%edi; mov $60,%al; syscall */
    memset(code, 0x90, sizeof(code));
    code[MIDDLE - CALL_BYTES] = 0xe8;
    code[END - CALL_BYTES] = 0xe8;
    memcpy(code + END, exit_call, sizeof(exit_call));
    memset(words, 0, sizeof(words));
    return 0;
}

static bool is_near(uint64_t rbp, unsigned *ret_words)
{
    struct callsite_cache images = {0};
    struct callsite_cache anonymous = {0};
    struct callsites callsites = {.images = &images, .anonymous = &anonymous};
    struct snapshot snapshot = {.ranges = {{.avma = STACK, .bytes = (const uint8_t *)words, .size = sizeof(words)}},
                                .range_count = 1};
    struct registers registers = {.known = 1U << REGISTER_RSP | 1U << REGISTER_RBP};
    registers.value[REGISTER_RSP] = STACK;
    registers.value[REGISTER_RBP] = rbp;
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    return origin_is_near(&view, callsites, &registers, ret_words);
}

static void end_of_thread_is_found(void **state)
{
    (void)state;
    unsigned at = 99;
    words[3] = CODE + 7; /* into code, but behind no call */
    words[5] = CODE + END;
    assert_true(is_near(0, &at));
    assert_int_equal(at, 5);
    assert_false(is_near(STACK + 8, &at));
}

/* A caller in between would be missing from a stack that looks whole. */
static void callers_are_not_passed_over(void **state)
{
    (void)state;
    unsigned at = 99;
    words[2] = CODE + MIDDLE;
    words[5] = CODE + END;
    assert_false(is_near(0, &at));
    assert_int_equal(at, 99);
}

static void nothing_is_found_where_nothing_is(void **state)
{
    (void)state;
    unsigned at = 99;
    assert_false(is_near(0, &at));
    words[2] = CODE + MIDDLE;
    assert_false(is_near(0, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(end_of_thread_is_found, setup),
        cmocka_unit_test_setup(callers_are_not_passed_over, setup),
        cmocka_unit_test_setup(nothing_is_found_where_nothing_is, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
