#include "cmocka_all.h"

#include "common/clock.h"
#include "common/rng.h"
#include "sampler/cpushare.h"

static void test_alone(void **state)
{
    (void)state;
    static const double starts[] = {0, 0.5, 0.999};
    for (size_t s = 0; s < 3; s++) {
        struct cpushare share;
        cpushare_init(&share, starts[s], NS_PER_MS, 0, 0);
        uint64_t now_ns = 0;
        /* Runnable all the time, though it has not run since the last look: it has never waited. */
        for (size_t i = 0; i < 1000; i++) {
            now_ns += 10 * NS_PER_MS;
            cpushare_add(&share, i < 10 ? 0 : 10 * NS_PER_MS, 0, now_ns);
            assert_true(cpushare_tick(&share));
        }
    }
}

/* Runnable from its first moment, and waiting for its first CPU: that is no CPU time. */
static void test_not_run_yet(void **state)
{
    (void)state;
    struct cpushare share;
    cpushare_init(&share, 0.999, 0, 0, 0);
    for (uint64_t i = 1; i <= 100; i++) {
        cpushare_add(&share, 0, 0, i * NS_PER_MS);
        assert_false(cpushare_tick(&share));
    }
    cpushare_add(&share, NS_PER_MS, 0, 101 * NS_PER_MS);
    assert_true(cpushare_tick(&share));
}

/* What is known of it before the first look counts until there is more. */
static void test_past(void **state)
{
    (void)state;
    struct cpushare share;
    cpushare_init(&share, 0, 5 * NS_PER_SEC, 15 * NS_PER_SEC, 0);
    size_t taken = 0;
    for (size_t i = 0; i < 400; i++)
        taken += cpushare_tick(&share);
    assert_in_range(taken, 99, 100);
    /* But little: a run of ten milliseconds says more. */
    cpushare_add(&share, 10 * NS_PER_MS, 0, 10 * NS_PER_MS);
    taken = 0;
    for (size_t i = 0; i < 100; i++)
        taken += cpushare_tick(&share);
    assert_in_range(taken, 90, 100);
}

/* A look at a sleeping thread is no tick: its credit does not grow while it sleeps. */
static void test_sleeping(void **state)
{
    (void)state;
    struct cpushare share;
    cpushare_init(&share, 0.25, NS_PER_MS, 0, 0);
    uint64_t now_ns = 0;
    for (size_t round = 0; round < 100; round++) {
        for (size_t i = 0; i < 99; i++) {
            now_ns += 10 * NS_PER_MS;
            cpushare_add(&share, 0, 0, now_ns);
        }
        now_ns += 10 * NS_PER_MS;
        cpushare_add(&share, 5 * NS_PER_MS, 0, now_ns);
        assert_true(cpushare_tick(&share));
    }
    assert_true(share.credit >= 0.24 && share.credit < 0.26);
}

/* After a wait that is long ago a thread that has its CPU again counts wholly. */
static void test_memory_fades(void **state)
{
    (void)state;
    struct cpushare share;
    cpushare_init(&share, 0, NS_PER_MS, 0, 0);
    uint64_t now_ns = 0;
    for (size_t i = 0; i < 100; i++) {
        now_ns += 10 * NS_PER_MS;
        cpushare_add(&share, 1 * NS_PER_MS, 9 * NS_PER_MS, now_ns);
        cpushare_tick(&share);
    }
    size_t taken = 0;
    for (size_t i = 0; i < 300; i++) {
        now_ns += 10 * NS_PER_MS;
        cpushare_add(&share, 10 * NS_PER_MS, 0, now_ns);
        taken += cpushare_tick(&share);
    }
    assert_true(taken > 260);
    size_t last = 0;
    for (size_t i = 0; i < 100; i++) {
        now_ns += 10 * NS_PER_MS;
        cpushare_add(&share, 10 * NS_PER_MS, 0, now_ns);
        last += cpushare_tick(&share);
    }
    assert_true(last >= 99);
}

/* Two hundred threads that get a tenth each: the random beginning keeps the sum right from the first tick on. */
static void test_start_has_no_direction(void **state)
{
    (void)state;
    enum { THREADS = 200, TICKS = 5 };
    struct rng rng = {.state = 12};
    size_t taken = 0;
    for (size_t t = 0; t < THREADS; t++) {
        struct cpushare share;
        cpushare_init(&share, rng_unit(&rng), 1, 9, 0);
        for (uint64_t i = 1; i <= TICKS; i++) {
            cpushare_add(&share, 1 * NS_PER_MS, 9 * NS_PER_MS, i * 10 * NS_PER_MS);
            taken += cpushare_tick(&share);
        }
    }
    /* Expected 100; a sum of 200 yes-or-no with mean 1/2 has the deviation 7.1, four of them. */
    assert_in_range(taken, 72, 128);
}

/*
 * Threads that are always runnable, on fewer CPUs, in turns of a slice. As the kernel does it: run time is told up to
 * now, waiting time only when the wait has ended.
 */
struct round_robin {
    uint64_t threads;
    uint64_t cpus;
    uint64_t slice_ns;
};

/* The threads go in groups of as many as there are CPUs, one group a slice. */
static uint64_t run_ns_at(const struct round_robin *robin, uint64_t thread, uint64_t now_ns)
{
    uint64_t groups = robin->threads / robin->cpus;
    uint64_t group = thread / robin->cpus;
    uint64_t round_ns = groups * robin->slice_ns;
    uint64_t whole_ns = now_ns / round_ns * robin->slice_ns;
    uint64_t inside_ns = now_ns % round_ns;
    uint64_t from_ns = group * robin->slice_ns;
    if (inside_ns <= from_ns)
        return whole_ns;
    uint64_t ran_ns = inside_ns - from_ns;
    return whole_ns + (ran_ns < robin->slice_ns ? ran_ns : robin->slice_ns);
}

static uint64_t wait_ns_at(const struct round_robin *robin, uint64_t thread, uint64_t now_ns)
{
    uint64_t groups = robin->threads / robin->cpus;
    uint64_t round_ns = groups * robin->slice_ns;
    uint64_t from_ns = thread / robin->cpus * robin->slice_ns;
    /* The wait before its first slice, then one between each two. */
    if (now_ns < from_ns)
        return 0;
    return from_ns + (now_ns - from_ns) / round_ns * (round_ns - robin->slice_ns);
}

static void test_model(void **state)
{
    (void)state;
    const struct round_robin robin = {.threads = 8, .cpus = 2, .slice_ns = 3};
    uint64_t ran[8] = {0};
    uint64_t waited[8] = {0};
    uint64_t waits[8] = {0};
    for (uint64_t now_ns = 0; now_ns < 200; now_ns++) {
        for (uint64_t t = 0; t < 8; t++) {
            bool runs = now_ns / 3 % 4 == t / 2;
            if (runs) {
                waited[t] += waits[t];
                waits[t] = 0;
            }
            if (now_ns % 12 != 0)
                assert_int_equal(wait_ns_at(&robin, t, now_ns), waited[t]);
            assert_int_equal(run_ns_at(&robin, t, now_ns), ran[t]);
            ran[t] += runs;
            waits[t] += !runs;
        }
    }
}

static void expect_share(struct round_robin robin, unsigned rate_hz, uint64_t seconds, double tolerance)
{
    struct rng rng = {.state = rate_hz};
    struct cpushare shares[16];
    uint64_t ran_ns[16] = {0};
    uint64_t waited_ns[16] = {0};
    size_t taken[16] = {0};
    for (uint64_t t = 0; t < robin.threads; t++)
        cpushare_init(&shares[t], rng_unit(&rng), 0, 0, 0);
    uint64_t ticks = rate_hz * seconds;
    uint64_t period_ns = NS_PER_SEC / rate_hz;
    for (uint64_t tick = 0; tick < ticks; tick++) {
        uint64_t now_ns = tick * period_ns + rng_below(&rng, period_ns);
        for (uint64_t t = 0; t < robin.threads; t++) {
            uint64_t run_ns = run_ns_at(&robin, t, now_ns);
            uint64_t wait_ns = wait_ns_at(&robin, t, now_ns);
            cpushare_add(&shares[t], run_ns - ran_ns[t], wait_ns - waited_ns[t], now_ns);
            ran_ns[t] = run_ns;
            waited_ns[t] = wait_ns;
            taken[t] += cpushare_tick(&shares[t]);
        }
    }
    double wanted = (double)robin.cpus / (double)robin.threads;
    double sum = 0;
    for (uint64_t t = 0; t < robin.threads; t++) {
        double share = (double)taken[t] / (double)ticks;
        if (share < wanted * (1 - tolerance) || share > wanted * (1 + tolerance))
            fail_msg("%u Hz, thread %d: %f, expected %f", rate_hz, (int)t, share, wanted);
        sum += share;
    }
    sum /= (double)robin.threads;
    assert_true(sum > wanted * (1 - tolerance) && sum < wanted * (1 + tolerance));
}

static void test_round_robin(void **state)
{
    (void)state;
    const struct round_robin robin = {.threads = 8, .cpus = 2, .slice_ns = 3 * NS_PER_MS};
    expect_share(robin, 99, 10, 0.05);
    expect_share(robin, 1000, 10, 0.05);
    expect_share(robin, 10000, 10, 0.05);
}

static void test_other_machines(void **state)
{
    (void)state;
    expect_share((struct round_robin){.threads = 2, .cpus = 1, .slice_ns = 3 * NS_PER_MS}, 99, 10, 0.05);
    expect_share((struct round_robin){.threads = 16, .cpus = 4, .slice_ns = 1 * NS_PER_MS}, 997, 10, 0.05);
    expect_share((struct round_robin){.threads = 4, .cpus = 4, .slice_ns = 3 * NS_PER_MS}, 99, 10, 0.001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),          cmocka_unit_test(test_not_run_yet),
        cmocka_unit_test(test_past),           cmocka_unit_test(test_sleeping),
        cmocka_unit_test(test_memory_fades),   cmocka_unit_test(test_start_has_no_direction),
        cmocka_unit_test(test_model),          cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_other_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
