#include "cmocka_all.h"

#include "common/rng.h"

static void test_same_seed_same_numbers(void **state)
{
    (void)state;
    struct rng a = {.state = 9};
    struct rng b = {.state = 9};
    struct rng c = {.state = 10};
    size_t equal = 0;
    for (size_t i = 0; i < 1000; i++) {
        uint64_t value = rng_next(&a);
        assert_true(value == rng_next(&b));
        equal += value == rng_next(&c);
    }
    assert_int_equal(equal, 0);
}

static void test_below(void **state)
{
    (void)state;
    static const uint64_t limits[] = {1, 2, 3, 7, 100, 10101010, UINT64_C(1) << 63, UINT64_MAX};
    struct rng rng = {.state = 1};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        for (size_t turn = 0; turn < 10000; turn++)
            assert_true(rng_below(&rng, limits[i]) < limits[i]);
    assert_int_equal(rng_below(&rng, 0), 0);
}

/* Each of 10 values is binomial, 10,000 of 100,000: standard deviation 95, six of them allowed. */
static void test_below_is_even(void **state)
{
    (void)state;
    size_t seen[10] = {0};
    struct rng rng = {.state = 2};
    for (size_t i = 0; i < 100000; i++)
        seen[rng_below(&rng, 10)]++;
    for (size_t i = 0; i < 10; i++)
        assert_in_range(seen[i], 10000 - 570, 10000 + 570);
}

/* The mean of n uniform values has the standard deviation 0.2887 / sqrt(n): 0.0009 here. */
static void test_unit(void **state)
{
    (void)state;
    double sum = 0;
    double least = 1;
    double most = 0;
    struct rng rng = {.state = 3};
    for (size_t i = 0; i < 100000; i++) {
        double value = rng_unit(&rng);
        assert_true(value >= 0.0 && value < 1.0);
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    assert_true(sum / 100000 > 0.4945 && sum / 100000 < 0.5055);
    assert_true(least < 0.001 && most > 0.999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_numbers),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_below_is_even),
        cmocka_unit_test(test_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
