/* What handlers in a target are told of the code: as they would look it up. */
#include "cmocka_all.h"

#include "sampler/helperrules.h"
#include "symbolize/image.h"

#include <stdlib.h>
#include <string.h>

struct fixture {
    struct helper_shared *shared;
    struct helperrules *rules;
};

static const struct image *image_number(uintptr_t number)
{
    return (const struct image *)(number * 64); /* only compared */
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->shared = aligned_alloc(64, sizeof(*fixture->shared));
    memset(fixture->shared, 0, sizeof(*fixture->shared));
    fixture->rules = helperrules_new(fixture->shared);
    *state = fixture;
    if (!fixture->rules)
        return -1;
    struct code_region all = {.end_avma = UINT64_C(1) << 47, .image = image_number(9), .has_bias = true};
    struct codemap map = {.generation = 1, .regions = &all, .count = 1};
    assert_false(helperrules_set_map(fixture->rules, &map));
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    helperrules_free(fixture->rules);
    free(fixture->shared);
    free(fixture);
    return 0;
}

static const struct helper_rule *find(const struct fixture *fixture, uint64_t avma)
{
    const struct helper_rule *set = fixture->shared->rules[helper_rule_set(avma)];
    for (size_t way = 0; way < HELPER_RULE_WAYS; way++) {
        assert_int_equal(set[way].version % 2, 0);
        if (avma - set[way].start_avma < set[way].length)
            return &set[way];
    }
    return NULL;
}

static void add(const struct fixture *fixture, uint64_t start, uint64_t end, int32_t cfa_off, uint64_t lookup)
{
    struct unwind_row row = {.start_avma = start,
                             .end_avma = end,
                             .rule = {.kind = RULE_PLAIN, .cfa_register = REGISTER_RSP, .cfa_off = cfa_off}};
    helperrules_add(fixture->rules, &row, lookup);
}

static void row_is_found_in_the_granule_that_was_used(void **state)
{
    struct fixture *fixture = *state;
    add(fixture, 0x1005, 0x1100, 16, 0x1008);
    assert_non_null(find(fixture, 0x1008));
    assert_non_null(find(fixture, 0x100f));
    assert_non_null(find(fixture, 0x1005));
    assert_null(find(fixture, 0x1004));
    assert_int_equal(find(fixture, 0x1008)->rule.cfa_off, 16);
    add(fixture, 0x1005, 0x1100, 16, 0x10ff);
    assert_non_null(find(fixture, 0x10ff));
    assert_null(find(fixture, 0x1100));
}

/* Code of one row is told of around the place where it was used; not beyond the row, nor beyond what is mapped. */
static void row_is_found_nearby(void **state)
{
    struct fixture *fixture = *state;
    struct code_region region = {.start_avma = 0x1000, .end_avma = 0x3000, .image = image_number(1), .has_bias = true};
    struct codemap map = {.generation = 2, .regions = &region, .count = 1};
    helperrules_set_map(fixture->rules, &map);
    add(fixture, 0x1108, 0x1218, 16, 0x1180);
    for (uint64_t avma = 0x1100; avma < 0x1220; avma++)
        assert_int_equal(find(fixture, avma) != NULL, avma >= 0x1108 && avma < 0x1218);
    add(fixture, 0x2e00, 0x3100, 24, 0x2ff0);
    assert_non_null(find(fixture, 0x2e00));
    assert_non_null(find(fixture, 0x2fff));
    assert_null(find(fixture, 0x3000));
    add(fixture, 0x2000, 0x2d00, 32, 0x2800); /* too long for all of it */
    assert_non_null(find(fixture, 0x2600));
    assert_non_null(find(fixture, 0x29ff));
    assert_null(find(fixture, 0x25ff));
    assert_null(find(fixture, 0x2a00));
}

/* What was used stays before what only could be. */
static void row_nearby_takes_nobodys_place(void **state)
{
    struct fixture *fixture = *state;
    uint32_t set = helper_rule_set(0x400010);
    uint64_t others[HELPER_RULE_WAYS];
    size_t count = 0;
    for (uint64_t avma = 0x800000; count < HELPER_RULE_WAYS; avma += 16) {
        if (helper_rule_set(avma) != set)
            continue;
        add(fixture, avma, avma + 16, 8, avma);
        others[count++] = avma;
    }
    add(fixture, 0x400000, 0x400030, 16, 0x400000);
    assert_non_null(find(fixture, 0x400000));
    assert_non_null(find(fixture, 0x400020));
    assert_null(find(fixture, 0x400010));
    for (size_t i = 0; i < count; i++)
        assert_non_null(find(fixture, others[i]));
}

/* Sets are small: the oldest goes, none is damaged. */
static void many_rows_of_one_set_replace_each_other(void **state)
{
    struct fixture *fixture = *state;
    uint32_t set = helper_rule_set(0x400000);
    unsigned added = 0;
    for (uint64_t avma = 0x400000; added < 3 * HELPER_RULE_WAYS; avma += 16) {
        if (helper_rule_set(avma) != set)
            continue;
        add(fixture, avma, avma + 16, (int32_t)(avma >> 4), avma);
        added++;
        assert_non_null(find(fixture, avma));
        assert_int_equal(find(fixture, avma)->rule.cfa_off, (int32_t)(avma >> 4));
    }
}

static void rows_of_what_is_unmapped_go(void **state)
{
    struct fixture *fixture = *state;
    struct code_region regions[] = {
        {.start_avma = 0x1000, .end_avma = 0x2000, .image = image_number(1), .has_bias = true},
        {.start_avma = 0x2000, .end_avma = 0x3000, .image = image_number(2), .has_bias = true},
        {.start_avma = 0x5000, .end_avma = 0x6000},
    };
    struct codemap map = {.generation = 1, .regions = regions, .count = 3};
    helperrules_set_map(fixture->rules, &map);
    assert_int_equal(fixture->shared->regions.count, 3);
    assert_int_equal(fixture->shared->regions.all[2].code, HELPER_CODE_BARE);
    assert_int_equal(fixture->shared->regions.all[1].code, HELPER_CODE_TABLES);
    add(fixture, 0x1010, 0x1020, 8, 0x1010);
    add(fixture, 0x2010, 0x2020, 8, 0x2010);
    /* Another file takes the second one's place, and something new comes below it all. */
    struct code_region later[] = {
        {.start_avma = 0x800, .end_avma = 0x900, .image = image_number(4), .has_bias = true},
        regions[0],
        {.start_avma = 0x2000, .end_avma = 0x3000, .image = image_number(3), .has_bias = true},
        regions[2],
    };
    map = (struct codemap){.generation = 2, .regions = later, .count = 4};
    assert_true(helperrules_set_map(fixture->rules, &map));
    assert_non_null(find(fixture, 0x1010));
    assert_null(find(fixture, 0x2010));
    assert_int_equal(fixture->shared->regions.count, 4);
    map = (struct codemap){.generation = 3, .regions = NULL, .count = 0};
    helperrules_set_map(fixture->rules, &map);
    assert_null(find(fixture, 0x1010));
    assert_int_equal(fixture->shared->regions.count, 0);
}

static void more_regions_than_there_is_room_for(void **state)
{
    struct fixture *fixture = *state;
    size_t count = HELPER_REGIONS + 10;
    struct code_region *regions = calloc(count, sizeof(*regions));
    for (size_t i = 0; i < count; i++)
        regions[i] = (struct code_region){.start_avma = (i + 1) * 0x1000, .end_avma = (i + 1) * 0x1000 + 0x800};
    struct codemap map = {.generation = 1, .regions = regions, .count = count};
    helperrules_set_map(fixture->rules, &map);
    assert_int_equal(fixture->shared->regions.count, HELPER_REGIONS);
    assert_false(helperrules_set_map(fixture->rules, &map)); /* code without an image */
    /* What the handlers are not told of has no rules either: nothing would take them back. */
    add(fixture, (count - 1) * 0x1000 + 0x1000, (count - 1) * 0x1000 + 0x1010, 8, (count - 1) * 0x1000 + 0x1000);
    assert_null(find(fixture, (count - 1) * 0x1000 + 0x1000));
    free(regions);
}

/* The target has written into what is ours: what we remember counts, and versions stay even behind us. */
static void target_may_write_anything(void **state)
{
    struct fixture *fixture = *state;
    add(fixture, 0x1000, 0x1010, 8, 0x1000);
    memset(fixture->shared->rules, 0xff, sizeof(fixture->shared->rules));
    add(fixture, 0x1000, 0x1010, 8, 0x1000); /* there, as far as we know */
    add(fixture, 0x7000, 0x7010, 24, 0x7000);
    assert_non_null(memchr(fixture->shared->rules, 0x18, sizeof(fixture->shared->rules)));
    struct codemap map = {.generation = 1};
    helperrules_set_map(fixture->rules, &map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(row_is_found_in_the_granule_that_was_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(row_is_found_nearby, set_up, tear_down),
        cmocka_unit_test_setup_teardown(row_nearby_takes_nobodys_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_rows_of_one_set_replace_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_of_what_is_unmapped_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_regions_than_there_is_room_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(target_may_write_anything, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
