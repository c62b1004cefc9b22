#include "cmocka_all.h"
#include "near.h"

#include "sampler/profiledistance.h"

#include <math.h>
#include <stdio.h>

enum { STACKS = 20, WINDOWS = 6 };

static void add(struct stackcounts *counts, struct strings *stacks, unsigned number, uint64_t count)
{
    char name[16];
    snprintf(name, sizeof(name), "t;f%u", number);
    assert_int_equal(stackcounts_add(counts, stacks, name, count), 0);
}

static void test_known_distances(void **state)
{
    (void)state;
    const double a[] = {10, 30, 60, 0};
    const double scaled[] = {1, 3, 6, 0};
    const double apart[] = {0, 0, 0, 7};
    const double partly[] = {30, 30, 40, 0};
    const double none[] = {0, 0, 0, 0};
    assert_near(distance_tvd(a, scaled, 4), 0, 1e-12);
    assert_near(distance_tvd(a, apart, 4), 1, 1e-12);
    assert_near(distance_tvd(a, partly, 4), 0.2, 1e-12);
    assert_near(distance_tvd(partly, a, 4), 0.2, 1e-12);
    assert_true(isnan(distance_tvd(a, none, 4)));
    assert_true(isnan(distance_tvd(none, a, 4)));
    assert_true(isnan(distance_tvd(none, none, 0)));
}

static void test_hot_stacks(void **state)
{
    (void)state;
    const double a[] = {500, 5, 495, 0, 0};
    const double b[] = {500, 20, 0, 470, 10};
    size_t hot;
    size_t both;
    distance_hot(a, b, 5, 0.01, &hot, &both);
    assert_int_equal(hot, 5); /* the last one is at the limit */
    assert_int_equal(both, 2);
    distance_hot(a, b, 5, 0.011, &hot, &both);
    assert_int_equal(hot, 4);
    const double none[] = {0, 0, 0, 0, 0};
    distance_hot(none, none, 5, 0.01, &hot, &both);
    assert_int_equal(hot, 0);
    assert_int_equal(both, 0);
}

static void test_poisson_has_its_mean_and_variance(void **state)
{
    (void)state;
    struct rng rng = {.state = 3};
    const double means[] = {0.5, 7, 29, 31, 500};
    enum { DRAWS = 20000 };
    assert_near(distance_poisson(&rng, 0), 0, 0);
    assert_near(distance_poisson(&rng, NAN), 0, 0);
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
        double sum = 0;
        double squares = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            double value = distance_poisson(&rng, means[i]);
            sum += value;
            squares += value * value;
        }
        double mean = sum / DRAWS;
        double variance = squares / DRAWS - mean * mean;
        /* Five standard errors; that of the variance of a Poisson number is sqrt((2 m^2 + m) / n). */
        assert_near(mean, means[i], 5 * sqrt(means[i] / DRAWS));
        assert_near(variance, means[i], 5 * sqrt((2 * means[i] * means[i] + means[i]) / DRAWS));
    }
}

/* Windows of samples, each drawn for itself. */
struct drawn {
    struct strings stacks;
    struct stackcounts windows[2][WINDOWS];
    const struct stackcounts *lists[2][WINDOWS];
    struct windowset sets[2];
};

static void drawn_deinit(struct drawn *drawn)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < WINDOWS; i++)
            stackcounts_deinit(&drawn->windows[side][i]);
    strings_deinit(&drawn->stacks);
}

/* The shares of stack number n: 1/20 each; on the second side `shift` of the whole has moved from the first half to the
 * second. So the distance is `shift`. */
static unsigned draw(struct rng *rng, int side, double shift)
{
    unsigned stack = (unsigned)rng_below(rng, STACKS);
    if (side == 1 && stack < STACKS / 2 && rng_unit(rng) < 2 * shift)
        stack += STACKS / 2;
    return stack;
}

static void drawn_init(struct drawn *drawn, struct rng *rng, size_t windows, unsigned samples, double shift)
{
    *drawn = (struct drawn){0};
    assert_int_equal(strings_init(&drawn->stacks), 0);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < windows; i++) {
            unsigned counts[STACKS] = {0};
            for (unsigned sample = 0; sample < samples; sample++)
                counts[draw(rng, side, shift)]++;
            for (unsigned stack = 0; stack < STACKS; stack++)
                add(&drawn->windows[side][i], &drawn->stacks, stack, counts[stack]);
            drawn->lists[side][i] = &drawn->windows[side][i];
        }
        drawn->sets[side] = (struct windowset){.windows = drawn->lists[side], .count = windows};
    }
}

static struct distance measure(const struct drawn *drawn, struct rng *rng)
{
    struct distance distance;
    assert_int_equal(distance_between(&drawn->sets[0], &drawn->sets[1], drawn->stacks.count, rng, &distance), 0);
    return distance;
}

static bool covers(struct interval interval, double value)
{
    return interval.low <= value && value <= interval.high;
}

struct coverage {
    int by_samples;
    int by_windows;
    int different;
};

enum { TRIALS = 60 };

static struct coverage cover(uint64_t seed, unsigned samples, double shift)
{
    struct rng rng = {.state = seed};
    struct coverage coverage = {0};
    for (int trial = 0; trial < TRIALS; trial++) {
        struct drawn drawn;
        drawn_init(&drawn, &rng, WINDOWS, samples, shift);
        struct distance distance = measure(&drawn, &rng);
        coverage.by_samples += covers(distance.by_samples, shift);
        coverage.by_windows += covers(distance.by_windows, shift);
        coverage.different += distance.verdict == VERDICT_DIFFERENT;
        assert_true(distance.by_samples.high - distance.by_samples.low < 0.3);
        drawn_deinit(&drawn);
    }
    return coverage;
}

/* 95 % of the intervals hold the truth: of 60, 51 or fewer do in one case of 500. Those by 6 windows a side are known
 * to be narrow: 45. */
static void test_intervals_hold_the_truth(void **state)
{
    (void)state;
    struct coverage coverage = cover(17, 300, 0.2);
    assert_true(coverage.by_samples > 51);
    assert_true(coverage.by_windows > 45);
    assert_int_equal(coverage.different, TRIALS);
}

/* What is seen of a distance of 0.1 with so few samples lies at 0.17 in the mean: chance's part has to be known. */
static void test_intervals_without_what_chance_adds(void **state)
{
    (void)state;
    struct coverage coverage = cover(29, 100, 0.1);
    assert_true(coverage.by_samples > 45);
    assert_true(coverage.by_windows > 45);
}

/* Of equal distributions one in twenty is called different; nine or more of 60 is less likely than one in 200, and
 * both tests have to agree. The floor is where such distances lie. */
static void test_the_same_is_no_more_than_chance(void **state)
{
    (void)state;
    struct rng rng = {.state = 5};
    int different = 0;
    int above_floor = 0;
    double tvds = 0;
    double floors = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct drawn drawn;
        drawn_init(&drawn, &rng, 4, 200, 0);
        struct distance distance = measure(&drawn, &rng);
        different += distance.verdict == VERDICT_DIFFERENT;
        above_floor += distance.tvd > distance.chance_samples.p95;
        tvds += distance.tvd / TRIALS;
        floors += distance.chance_samples.mean / TRIALS;
        assert_true(distance.verdict != VERDICT_NONE);
        if (distance.chance_samples.p > 0.05)
            assert_near(distance.by_samples.low, 0, 0);
        drawn_deinit(&drawn);
    }
    assert_true(different < 9);
    assert_true(above_floor < 10);
    assert_near(tvds, floors, 0.1 * floors);
}

static void test_what_few_windows_can_tell(void **state)
{
    (void)state;
    struct rng rng = {.state = 11};
    struct drawn drawn;
    drawn_init(&drawn, &rng, 3, 500, 0.3);
    assert_int_equal(measure(&drawn, &rng).verdict, VERDICT_FEW_WINDOWS);
    drawn_deinit(&drawn);
    drawn_init(&drawn, &rng, 1, 500, 0.3);
    struct distance distance = measure(&drawn, &rng);
    assert_int_equal(distance.verdict, VERDICT_FEW_WINDOWS);
    assert_true(isnan(distance.chance_windows.p));
    assert_true(isnan(distance.by_windows.low));
    drawn_deinit(&drawn);
}

/* Each side's windows differ among themselves as much as the sides do: by samples that is a difference, by windows it
 * is none. */
static void test_windows_that_drift(void **state)
{
    (void)state;
    struct rng rng = {.state = 23};
    struct drawn drawn = {0};
    assert_int_equal(strings_init(&drawn.stacks), 0);
    static const uint64_t shares[2][WINDOWS] = {{900, 100, 800, 200, 700, 500}, {100, 800, 900, 300, 200, 500}};
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < WINDOWS; i++) {
            add(&drawn.windows[side][i], &drawn.stacks, 0, shares[side][i]);
            add(&drawn.windows[side][i], &drawn.stacks, 1, 1000 - shares[side][i]);
            drawn.lists[side][i] = &drawn.windows[side][i];
        }
        drawn.sets[side] = (struct windowset){.windows = drawn.lists[side], .count = WINDOWS};
    }
    struct distance distance = measure(&drawn, &rng);
    assert_true(distance.chance_samples.p < 0.01);
    assert_true(distance.chance_windows.p > 0.2);
    assert_int_equal(distance.verdict, VERDICT_BY_SAMPLES);
    assert_near(distance.by_windows.low, 0, 0);
    drawn_deinit(&drawn);
}

static void test_ends(void **state)
{
    (void)state;
    struct rng rng = {.state = 1};
    struct drawn drawn;
    drawn_init(&drawn, &rng, WINDOWS, 100, 0);
    drawn.sets[1].count = 0;
    struct distance distance = measure(&drawn, &rng);
    assert_true(isnan(distance.tvd));
    assert_int_equal(distance.verdict, VERDICT_NONE);
    /* The same windows on both sides, and none of the same stacks. */
    drawn.sets[1] = drawn.sets[0];
    distance = measure(&drawn, &rng);
    assert_near(distance.tvd, 0, 1e-12);
    assert_near(distance.by_samples.low, 0, 0);
    assert_true(distance.by_samples.high > 0.02);
    assert_int_equal(distance.verdict, VERDICT_SAME);
    assert_near(distance.chance_windows.p, 1, 0);
    for (int i = 0; i < WINDOWS; i++) {
        stackcounts_deinit(&drawn.windows[1][i]);
        add(&drawn.windows[1][i], &drawn.stacks, 99, 100);
    }
    drawn.sets[1] = (struct windowset){.windows = drawn.lists[1], .count = WINDOWS};
    distance = measure(&drawn, &rng);
    assert_near(distance.tvd, 1, 1e-12);
    assert_int_equal(distance.verdict, VERDICT_DIFFERENT);
    assert_near(distance.by_samples.low, 1, 0.02);
    assert_near(distance.by_samples.high, 1, 1e-9);
    drawn_deinit(&drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_distances),
        cmocka_unit_test(test_hot_stacks),
        cmocka_unit_test(test_poisson_has_its_mean_and_variance),
        cmocka_unit_test(test_intervals_hold_the_truth),
        cmocka_unit_test(test_intervals_without_what_chance_adds),
        cmocka_unit_test(test_the_same_is_no_more_than_chance),
        cmocka_unit_test(test_what_few_windows_can_tell),
        cmocka_unit_test(test_windows_that_drift),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
