#include "cmocka_all.h"

#include "common/pairmap.h"

static void test_many(void **state)
{
    (void)state;
    struct pairmap map = {0};
    assert_int_equal(pairmap_find(&map, 0, 0), 0);
    uint32_t value = 0;
    for (uint64_t a = 0; a < 50; a++)
        for (uint64_t b = 0; b < 50; b++)
            assert_int_equal(pairmap_add(&map, a, b << 32, ++value), 0);
    assert_int_equal(map.count, 2500);
    value = 0;
    for (uint64_t a = 0; a < 50; a++) {
        for (uint64_t b = 0; b < 50; b++) {
            assert_int_equal(pairmap_find(&map, a, b << 32), ++value);
            assert_int_equal(pairmap_find(&map, a, (b << 32) + 1), 0);
        }
    }
    pairmap_deinit(&map);
    assert_int_equal(pairmap_find(&map, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
