#include "cmocka_all.h"

#include "unwind/codemap.h"

static const struct code_region regions[] = {
    {.start_avma = 0x1000, .end_avma = 0x2000},
    {.start_avma = 0x2000, .end_avma = 0x3000},
    {.start_avma = 0x8000, .end_avma = 0x8001},
    {.start_avma = UINT64_MAX - 0xfff, .end_avma = UINT64_MAX},
};

static void finds_the_region_that_holds_an_address(void **state)
{
    (void)state;
    struct codemap map = {.generation = 1, .regions = regions, .count = 4};
    assert_ptr_equal(codemap_find(&map, 0x1000), &regions[0]);
    assert_ptr_equal(codemap_find(&map, 0x1fff), &regions[0]);
    assert_ptr_equal(codemap_find(&map, 0x2000), &regions[1]);
    assert_ptr_equal(codemap_find(&map, 0x8000), &regions[2]);
    assert_ptr_equal(codemap_find(&map, UINT64_MAX - 1), &regions[3]);
}

static void finds_nothing_between_and_beyond(void **state)
{
    (void)state;
    struct codemap map = {.generation = 1, .regions = regions, .count = 4};
    assert_null(codemap_find(&map, 0));
    assert_null(codemap_find(&map, 0xfff));
    assert_null(codemap_find(&map, 0x3000));
    assert_null(codemap_find(&map, 0x8001));
    assert_null(codemap_find(&map, UINT64_MAX));
    map.count = 0;
    assert_null(codemap_find(&map, 0x1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_region_that_holds_an_address),
        cmocka_unit_test(finds_nothing_between_and_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
