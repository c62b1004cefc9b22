#include "cmocka_all.h"

#include "common/clock.h"
#include "sampler/overhead.h"

#define PERIOD_NS (10 * NS_PER_MS)

/* Runs for so long with ticks that cost what `cost` says; returns the ticks taken, and the share of a CPU that they
 * took. */
static uint64_t run(double limit, double seconds, uint64_t (*cost)(uint64_t tick), double *ret_used)
{
    struct overhead overhead;
    overhead_init(&overhead, limit);
    uint64_t cost_ns = 123456789;
    uint64_t start_ns = 5 * NS_PER_SEC;
    uint64_t now_ns = start_ns;
    uint64_t ticks = 0;
    while ((double)(now_ns - start_ns) < seconds * (double)NS_PER_SEC) {
        cost_ns += cost(ticks++);
        now_ns += PERIOD_NS * overhead_stride(&overhead, cost_ns, now_ns, PERIOD_NS);
    }
    *ret_used = overhead_used(&overhead, cost_ns, now_ns);
    return ticks;
}

static uint64_t cheap(uint64_t tick)
{
    return tick < 3 ? 50 * NS_PER_MS : 20 * NS_PER_US;
}

static uint64_t dear(uint64_t tick)
{
    (void)tick;
    return NS_PER_MS;
}

/* One in ten takes a hundred times as long. */
static uint64_t uneven(uint64_t tick)
{
    return tick % 10 ? 20 * NS_PER_US : 2 * NS_PER_MS;
}

/* Changes its mind. */
static uint64_t rising(uint64_t tick)
{
    return tick < 200 ? 20 * NS_PER_US : 3 * NS_PER_MS;
}

static uint64_t impossible(uint64_t tick)
{
    (void)tick;
    return NS_PER_SEC;
}

/* The clocks of its parts are read one after the other, so a sum may be less than the one before. */
static void test_cost_falls(void **state)
{
    (void)state;
    struct overhead overhead;
    overhead_init(&overhead, 0.02);
    uint64_t cost_ns = NS_PER_SEC;
    for (uint64_t tick = 0; tick < 10; tick++) {
        cost_ns -= 1000;
        assert_int_equal(overhead_stride(&overhead, cost_ns, tick * PERIOD_NS, PERIOD_NS), 1);
        assert_true(overhead_used(&overhead, cost_ns, tick * PERIOD_NS) == 0);
    }
}

static void test_no_limit(void **state)
{
    (void)state;
    double used;
    assert_int_equal(run(0, 10, dear, &used), 1000);
    assert_true(used == 0);
}

static void test_within(void **state)
{
    (void)state;
    double used;
    assert_int_equal(run(0.01, 10, cheap, &used), 1000); /* 0.2 %, but for the beginning */
    assert_true(used < 0.0021 && used > 0.0019);
}

/* A tenth of a CPU at the full rate, and 1 % allowed: one tick in eleven or so. */
static void test_dear(void **state)
{
    (void)state;
    double used;
    uint64_t ticks = run(0.01, 100, dear, &used);
    assert_true(used <= 0.01 && used > 0.008);
    assert_true(ticks > 800 && ticks <= 1000);
}

static void test_uneven(void **state)
{
    (void)state;
    double used;
    run(0.01, 100, uneven, &used);
    assert_true(used <= 0.01 && used > 0.005);
}

static void test_rising(void **state)
{
    (void)state;
    double used;
    uint64_t ticks = run(0.01, 100, rising, &used);
    assert_true(used <= 0.01 && used > 0.008);
    assert_true(ticks > 200 && ticks < 1000);
}

static void test_impossible(void **state)
{
    (void)state;
    double used;
    uint64_t ticks = run(0.001, 100, impossible, &used);
    assert_true(ticks >= 10 && ticks < 20); /* still now and then */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit),   cmocka_unit_test(test_cost_falls), cmocka_unit_test(test_within),
        cmocka_unit_test(test_dear),       cmocka_unit_test(test_uneven),     cmocka_unit_test(test_rising),
        cmocka_unit_test(test_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
