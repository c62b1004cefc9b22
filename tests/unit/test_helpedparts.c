/* Stacks that come in several records. */
#include "cmocka_all.h"

#include "sampler/helpedparts.h"

#include <string.h>

enum { DEPTH = 1000 };
static int owner_a, owner_b;

static const struct helpedpart *add(struct helpedparts *parts, const void *owner, pid_t tid, uint32_t part,
                                    uint64_t first, size_t count)
{
    uint64_t frames[HELPER_RECORD_FRAMES];
    struct helper_event event = {.kind = HELPER_RECORD_FRAMES_PART, .tid = tid, .part = part, .count = count};
    for (size_t i = 0; i < count; i++)
        frames[i] = first + i;
    return helpedparts_add(parts, owner, &event, (const uint8_t *)frames, DEPTH);
}

static void parts_come_together(void **state)
{
    (void)state;
    struct helpedparts parts = {0};
    assert_non_null(add(&parts, &owner_a, 1, 0, 0, 64));
    assert_non_null(add(&parts, &owner_b, 1, 0, 1000, 64)); /* the same number in another process */
    assert_non_null(add(&parts, &owner_a, 2, 0, 2000, 64));
    const struct helpedpart *part = add(&parts, &owner_a, 1, 1, 64, 10);
    assert_non_null(part);
    assert_int_equal(part->count, 74);
    for (size_t i = 0; i < 74; i++)
        assert_int_equal(part->frames[i], i);
    helpedparts_take(&parts, part);
    assert_int_equal(parts.lost, 0);
    assert_null(add(&parts, &owner_a, 1, 2, 0, 1)); /* nothing before it */
    helpedparts_deinit(&parts);
}

/* The end of a stack got lost, and the next one's first record or a later one comes. */
static void two_stacks_are_never_one(void **state)
{
    (void)state;
    struct helpedparts parts = {0};
    assert_non_null(add(&parts, &owner_a, 1, 0, 0, 64));
    const struct helpedpart *part = add(&parts, &owner_a, 1, 0, 500, 64);
    assert_non_null(part);
    assert_int_equal(part->count, 64);
    assert_int_equal(part->frames[0], 500);
    assert_int_equal(parts.lost, 1);
    assert_null(add(&parts, &owner_a, 1, 2, 0, 64)); /* number 1 is missing */
    assert_int_equal(parts.lost, 2);
    assert_non_null(add(&parts, &owner_a, 1, 0, 7, 64));
    helpedparts_drop(&parts, &owner_a, 1);
    assert_null(add(&parts, &owner_a, 1, 1, 0, 1));
    assert_int_equal(parts.lost, 2);
    helpedparts_deinit(&parts);
}

static void there_is_an_end(void **state)
{
    (void)state;
    struct helpedparts parts = {0};
    uint32_t part = 0;
    while (add(&parts, &owner_a, 1, part, 0, 64))
        part++;
    assert_in_range(part, DEPTH / 64, DEPTH / 64 + 2);
    for (pid_t tid = 1; tid <= 3 * HELPEDPARTS; tid++)
        assert_non_null(add(&parts, &owner_a, tid, 0, 0, 1));
    assert_int_equal(parts.lost, 1 + 2 * HELPEDPARTS);
    helpedparts_deinit(&parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_together),
        cmocka_unit_test(two_stacks_are_never_one),
        cmocka_unit_test(there_is_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
