#include "cmocka_all.h"

#include "guarded.h"
#include "unwind/snapshot.h"

#include <string.h>

enum { STACK_AVMA = 0x7000, COPIED = 64 };

static struct snapshot snapshot_of(const uint8_t *bytes)
{
    return (struct snapshot){
        .stack_start_avma = 0x6000,
        .stack_end_avma = 0x8000,
        .ranges = {{.avma = STACK_AVMA, .bytes = bytes, .size = COPIED}},
        .range_count = 1,
    };
}

static void reads_what_one_range_holds(void **state)
{
    (void)state;
    uint8_t data[COPIED];
    for (size_t i = 0; i < COPIED; i++)
        data[i] = (uint8_t)i;
    struct guarded copy = guarded_new(data, COPIED);
    assert_non_null(copy.bytes);
    struct snapshot snapshot = snapshot_of(copy.bytes);
    uint8_t read[COPIED];
    assert_true(snapshot_read(&snapshot, STACK_AVMA, read, COPIED));
    assert_memory_equal(read, data, COPIED);
    assert_true(snapshot_read(&snapshot, STACK_AVMA + COPIED - 8, read, 8));
    assert_memory_equal(read, data + COPIED - 8, 8);
    assert_false(snapshot_read(&snapshot, STACK_AVMA + COPIED - 7, read, 8));
    assert_false(snapshot_read(&snapshot, STACK_AVMA - 1, read, 8));
    assert_false(snapshot_read(&snapshot, STACK_AVMA + COPIED, read, 1));
    assert_false(snapshot_read(&snapshot, UINT64_MAX - 3, read, 8));
    assert_false(snapshot_read(&snapshot, 0, read, 8));
    guarded_free(&copy);
}

static void a_range_at_the_end_of_the_address_space_does_not_wrap(void **state)
{
    (void)state;
    static const uint8_t data[16] = {1};
    struct snapshot snapshot = {.ranges = {{.avma = UINT64_MAX - 15, .bytes = data, .size = 16}}, .range_count = 1};
    uint8_t read[16];
    assert_true(snapshot_read(&snapshot, UINT64_MAX - 15, read, 16));
    assert_false(snapshot_read(&snapshot, UINT64_MAX - 14, read, 16));
    assert_false(snapshot_read(&snapshot, 0, read, 1));
}

static void reads_from_the_range_that_has_it(void **state)
{
    (void)state;
    static const uint8_t low[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t high[8] = {9, 10, 11, 12, 13, 14, 15, 16};
    struct snapshot snapshot = {
        .ranges = {{.avma = 0x2000, .bytes = high, .size = 8}, {.avma = 0x1000, .bytes = low, .size = 8}},
        .range_count = 2,
    };
    uint8_t read[8];
    assert_true(snapshot_read(&snapshot, 0x1000, read, 8));
    assert_memory_equal(read, low, 8);
    assert_true(snapshot_read(&snapshot, 0x2004, read, 4));
    assert_memory_equal(read, high + 4, 4);
}

static void knows_what_a_larger_copy_would_have(void **state)
{
    (void)state;
    static const uint8_t data[COPIED];
    struct snapshot snapshot = snapshot_of(data);
    assert_false(snapshot_is_cut(&snapshot, 0x6000)); /* below the copy: not by a larger one */
    assert_false(snapshot_is_cut(&snapshot, STACK_AVMA));
    assert_false(snapshot_is_cut(&snapshot, STACK_AVMA + COPIED - 1));
    assert_true(snapshot_is_cut(&snapshot, STACK_AVMA + COPIED));
    assert_true(snapshot_is_cut(&snapshot, 0x7fff));
    assert_false(snapshot_is_cut(&snapshot, 0x8000));
    snapshot.stack_start_avma = snapshot.stack_end_avma = 0;
    assert_false(snapshot_is_cut(&snapshot, STACK_AVMA + COPIED));
    snapshot = snapshot_of(data);
    snapshot.range_count = 0;
    assert_true(snapshot_is_cut(&snapshot, STACK_AVMA));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_one_range_holds),
        cmocka_unit_test(a_range_at_the_end_of_the_address_space_does_not_wrap),
        cmocka_unit_test(reads_from_the_range_that_has_it),
        cmocka_unit_test(knows_what_a_larger_copy_would_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
