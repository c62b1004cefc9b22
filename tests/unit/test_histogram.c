#include "cmocka_all.h"

#include "common/histogram.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

static void test_empty(void **state)
{
    (void)state;
    struct histogram histogram = {0};
    for (unsigned percent = 0; percent <= 100; percent++)
        assert_int_equal(histogram_percentile(&histogram, percent), 0);
}

/* The limit of one value's bucket, seen with a larger value behind it: max must not hide it. */
static uint64_t limit_of(uint64_t value)
{
    struct histogram histogram = {0};
    histogram_add(&histogram, value);
    histogram_add(&histogram, UINT64_MAX);
    return histogram_percentile(&histogram, 50);
}

static void test_error_bounds(void **state)
{
    (void)state;
    for (uint64_t value = 0; value < 32; value++)
        assert_int_equal(limit_of(value), value);
    for (unsigned bit = 5; bit < 64; bit++) {
        uint64_t base = UINT64_C(1) << bit;
        for (uint64_t part = 0; part < 64; part++) {
            for (int step = -1; step <= 1; step++) {
                uint64_t value = base + part * (base / 64) + (uint64_t)(int64_t)step;
                uint64_t limit = limit_of(value);
                assert_true(limit >= value);
                assert_true(limit - value < (value + 15) / 16);
            }
        }
    }
    assert_true(limit_of(UINT64_MAX) == UINT64_MAX);
}

static void test_limits_grow(void **state)
{
    (void)state;
    uint64_t before = 0;
    for (uint64_t value = 0; value < 100000; value++) {
        uint64_t limit = limit_of(value);
        assert_true(limit >= before);
        before = limit;
    }
}

static void test_sums(void **state)
{
    (void)state;
    struct histogram histogram = {0};
    histogram_add(&histogram, 100);
    histogram_add(&histogram, 0);
    histogram_add(&histogram, 7);
    assert_int_equal(histogram.count, 3);
    assert_int_equal(histogram.sum, 107);
    assert_int_equal(histogram.max, 100);
    assert_int_equal(histogram_percentile(&histogram, 0), 0);
    assert_int_equal(histogram_percentile(&histogram, 33), 0);
    assert_int_equal(histogram_percentile(&histogram, 34), 7);
    assert_int_equal(histogram_percentile(&histogram, 66), 7);
    assert_int_equal(histogram_percentile(&histogram, 67), 100);
    assert_int_equal(histogram_percentile(&histogram, 100), 100);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_percentiles_against_sorted(void **state)
{
    (void)state;
    enum { VALUES = 5000 };
    struct rng rng = {.state = 11};
    for (unsigned turn = 0; turn < 20; turn++) {
        struct histogram histogram = {0};
        uint64_t *values = calloc(VALUES, sizeof(*values));
        size_t count = 1 + rng_below(&rng, VALUES - 1);
        for (size_t i = 0; i < count; i++) {
            values[i] = rng_next(&rng) >> rng_below(&rng, 64);
            histogram_add(&histogram, values[i]);
        }
        qsort(values, count, sizeof(*values), compare);
        for (unsigned percent = 1; percent <= 100; percent++) {
            uint64_t exact = values[(count * percent + 99) / 100 - 1];
            uint64_t got = histogram_percentile(&histogram, percent);
            assert_true(got >= exact);
            assert_true(got - exact < exact / 16 + 1);
            assert_true(got <= histogram.max);
        }
        assert_true(histogram_percentile(&histogram, 100) == values[count - 1]);
        free(values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_error_bounds),
        cmocka_unit_test(test_limits_grow),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_percentiles_against_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
