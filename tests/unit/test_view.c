/* What a walk may read besides the copied stack: code of images, never what memory holds by now. */
#include "cmocka_all.h"

#include "unwind/view.h"

#include <string.h>

static const uint64_t STACK = 0x7f0000000000;
static const uint64_t CODE = 0x400000;
enum { REGION_BYTES = 0x10000 };

/* The target, which has run on. */
static bool read_target(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    (void)avma;
    memset(buffer, 0xcc, size);
    return true;
}

static const struct memory_reader reader = {.read = read_target};
/* Anonymous code, and a stack that may be executed (a program that wants trampolines on it). */
static const struct code_region regions[] = {
    {.start_avma = CODE, .end_avma = CODE + REGION_BYTES},
    {.start_avma = STACK, .end_avma = STACK + REGION_BYTES},
};
static const struct codemap map = {.generation = 1, .regions = regions, .count = 2};

static const uint8_t copy[64] = {1, 2, 3, 4, 5, 6, 7, 8};
static const struct snapshot snapshot = {
    .stack_start_avma = STACK,
    .stack_end_avma = STACK + REGION_BYTES,
    .ranges = {{.avma = STACK + 0x100, .bytes = copy, .size = sizeof(copy)}},
    .range_count = 1,
};

static void copied_words_are_read(void **state)
{
    (void)state;
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    uint64_t word;
    assert_true(view_word(&view, STACK + 0x100, &word));
    assert_int_equal(word, UINT64_C(0x0807060504030201));
    assert_int_equal(view.top_avma, STACK + 0x108);
}

/* Above the copy: a larger one would have it. */
static void executable_stack_is_not_read_later(void **state)
{
    (void)state;
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    uint64_t word;
    assert_false(view_word(&view, STACK + 0x200, &word));
    assert_true(view.failed);
    assert_true(view.cut);
    assert_int_equal(view.top_avma, STACK + 0x208);
    /* Below it: nothing would. */
    assert_false(view_word(&view, STACK, &word));
    assert_false(view.cut);
}

static void anonymous_code_is_no_data(void **state)
{
    (void)state;
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    uint64_t word;
    assert_false(view_read(&view, CODE, &word, sizeof(word)));
    assert_true(view.failed);
    assert_false(view.cut);
    /* As code it is read. */
    assert_true(view_read_code(&view, &regions[0], CODE, &word, sizeof(word)));
    assert_int_equal(word, UINT64_C(0xcccccccccccccccc));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_words_are_read),
        cmocka_unit_test(executable_stack_is_not_read_later),
        cmocka_unit_test(anonymous_code_is_no_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
