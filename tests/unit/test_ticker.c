#include "cmocka_all.h"

#include "common/clock.h"
#include "sampler/ticker.h"

static const unsigned rates[] = {1, 7, 99, 100, 1000, 9973, 10000};

enum { RATES = sizeof(rates) / sizeof(rates[0]) };

#define START_NS UINT64_C(123456789012)

/* Exact: a period's beginning is rounded down to a nanosecond, never added up. */
static uint64_t period_start(unsigned rate_hz, uint64_t period)
{
    return START_NS + period * NS_PER_SEC / rate_hz;
}

static void test_without_jitter(void **state)
{
    (void)state;
    for (size_t r = 0; r < RATES; r++) {
        struct ticker ticker;
        ticker_init(&ticker, rates[r], false, 1, START_NS);
        for (uint64_t period = 0; period < 10 * rates[r]; period++) {
            assert_int_equal(ticker.deadline_ns, period_start(rates[r], period));
            ticker_begin(&ticker, ticker.deadline_ns);
            ticker_end(&ticker, ticker.deadline_ns + 1000);
        }
        assert_int_equal(ticker.ticks, 10 * rates[r]);
        assert_int_equal(ticker.missed, 0);
        assert_int_equal(ticker.late, 0);
        ticker_finish(&ticker, START_NS + 10 * NS_PER_SEC);
        assert_int_equal(ticker.missed, 0);
    }
}

static void test_jitter_keeps_the_rate(void **state)
{
    (void)state;
    for (size_t r = 0; r < RATES; r++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct ticker ticker;
            ticker_init(&ticker, rates[r], true, seed, START_NS);
            double sum = 0;
            uint64_t periods = 20 * rates[r];
            for (uint64_t period = 0; period < periods; period++) {
                uint64_t from_ns = period_start(rates[r], period);
                assert_true(ticker.deadline_ns >= from_ns);
                assert_true(ticker.deadline_ns < period_start(rates[r], period + 1));
                sum += (double)(ticker.deadline_ns - from_ns) * rates[r] / (double)NS_PER_SEC;
                ticker_begin(&ticker, ticker.deadline_ns);
                ticker_end(&ticker, ticker.deadline_ns + 100);
            }
            assert_int_equal(ticker.ticks, periods);
            assert_int_equal(ticker.missed, 0);
            assert_int_equal(ticker.late, 0);
            ticker_finish(&ticker, START_NS + 20 * NS_PER_SEC);
            assert_int_equal(ticker.missed, 0);
            /* Uniform inside the period: the mean of n is 1/2 with deviation 0.2887 / sqrt(n); five of them. */
            double deviation = sum / (double)periods - 0.5;
            assert_true(deviation * deviation * (double)periods < 25 * 0.0834);
        }
    }
}

static void test_jitter_depends_on_the_seed(void **state)
{
    (void)state;
    struct ticker a;
    struct ticker b;
    struct ticker c;
    ticker_init(&a, 99, true, 1, START_NS);
    ticker_init(&b, 99, true, 1, START_NS);
    ticker_init(&c, 99, true, 2, START_NS);
    size_t equal = 0;
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(a.deadline_ns, b.deadline_ns);
        equal += a.deadline_ns == c.deadline_ns;
        ticker_end(&a, a.deadline_ns);
        ticker_end(&b, b.deadline_ns);
        ticker_end(&c, c.deadline_ns);
    }
    assert_true(equal < 3);
}

static void test_late(void **state)
{
    (void)state;
    static const struct {
        uint64_t behind_ns;
        bool late;
        uint64_t missed;
    } cases[] = {
        {0, false, 0},       {2499999, false, 0}, {2500000, false, 0},
        {2500001, true, 0},  {9999999, true, 0}, /* less than a period: this tick still */
        {10000000, true, 1}, {35000000, true, 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ticker ticker;
        ticker_init(&ticker, 100, false, 1, START_NS);
        ticker_begin(&ticker, START_NS + cases[i].behind_ns);
        assert_int_equal(ticker.ticks, 1);
        assert_int_equal(ticker.late, cases[i].late);
        assert_int_equal(ticker.missed, cases[i].missed);
        ticker_end(&ticker, START_NS + cases[i].behind_ns);
        assert_int_equal(ticker.missed, cases[i].missed);
        assert_int_equal(ticker.deadline_ns, START_NS + (cases[i].missed + 1) * 10000000);
    }
}

/* Late with jitter, so that the clock is in the next period already: not missed, and the next tick is that period's. */
static void test_late_over_the_edge(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct ticker ticker;
        ticker_init(&ticker, 100, true, seed, START_NS);
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t now_ns = ticker.deadline_ns + 9999999;
            ticker_begin(&ticker, now_ns);
            assert_int_equal(ticker.missed, 0);
            ticker_end(&ticker, period_start(100, i + 1) + 1);
            assert_int_equal(ticker.missed, 0);
            assert_true(ticker.deadline_ns >= period_start(100, i + 1));
            assert_true(ticker.deadline_ns < period_start(100, i + 2));
        }
        assert_int_equal(ticker.ticks, 100);
    }
}

/* A second in which nothing could be done at 100 Hz, in front of the tick, inside its work, or before the end. */
static void test_gap(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        for (unsigned where = 0; where < 3; where++) {
            struct ticker ticker;
            ticker_init(&ticker, 100, seed > 0, seed, START_NS);
            for (size_t i = 0; i < 10; i++) {
                ticker_begin(&ticker, ticker.deadline_ns);
                ticker_end(&ticker, ticker.deadline_ns);
            }
            uint64_t now_ns = ticker.deadline_ns + (where == 0 ? NS_PER_SEC : 0);
            if (where < 2) {
                ticker_begin(&ticker, now_ns);
                now_ns = ticker.deadline_ns + NS_PER_SEC;
                ticker_end(&ticker, now_ns);
            } else {
                now_ns += NS_PER_SEC;
                ticker_finish(&ticker, now_ns);
            }
            assert_in_range(ticker.missed, 99, 100);
            if (where == 2)
                continue;
            /* No burst to catch up: from now on there is one tick a period again. */
            assert_true(ticker.deadline_ns + NS_PER_SEC / 100 > now_ns);
            uint64_t before = ticker.ticks;
            uint64_t end_ns = now_ns + NS_PER_SEC;
            while (ticker.deadline_ns < end_ns) {
                now_ns = ticker.deadline_ns > now_ns ? ticker.deadline_ns : now_ns;
                ticker_begin(&ticker, now_ns);
                ticker_end(&ticker, now_ns);
            }
            assert_in_range(ticker.ticks - before, 99, 101);
            assert_in_range(ticker.missed, 99, 100);
        }
    }
}

/* Whatever goes wrong: each period has its tick or is missed. */
static void test_nothing_is_lost(void **state)
{
    (void)state;
    struct rng rng = {.state = 8};
    for (size_t turn = 0; turn < 400; turn++) {
        unsigned rate_hz = rates[rng_below(&rng, RATES)];
        uint64_t period_ns = NS_PER_SEC / rate_hz;
        struct ticker ticker;
        ticker_init(&ticker, rate_hz, turn % 4 > 0, turn, START_NS);
        uint64_t now_ns = START_NS;
        uint64_t before_ns = 0;
        for (size_t i = 0; i < 300; i++) {
            /* Woken up a little late, seldom much; work of all lengths. */
            uint64_t delay_ns = rng_below(&rng, rng_below(&rng, 10) ? period_ns / 3 : 4 * period_ns);
            now_ns = (ticker.deadline_ns > now_ns ? ticker.deadline_ns : now_ns) + delay_ns;
            ticker_begin(&ticker, now_ns);
            now_ns += rng_below(&rng, rng_below(&rng, 10) ? period_ns / 3 : 3 * period_ns);
            ticker_end(&ticker, now_ns);
            assert_true(ticker.deadline_ns > before_ns);
            before_ns = ticker.deadline_ns;
        }
        ticker_finish(&ticker, now_ns);
        uint64_t elapsed = (now_ns - START_NS) * rate_hz / NS_PER_SEC;
        assert_true(ticker.ticks + ticker.missed >= elapsed);
        assert_true(ticker.ticks + ticker.missed <= elapsed + 1);
        assert_int_equal(ticker.ticks, 300);
    }
}

/* A tick stands for the periods since the last one, whenever in its period it is taken; not for those of a gap. */
static void test_weights(void **state)
{
    (void)state;
    static const struct {
        unsigned periods; /* until the next tick */
        unsigned weight;
        unsigned gap;
    } cases[] = {{1, 1, 0}, {2, 2, 0}, {1, 1, 0}, {10, 10, 0}, {11, 1, 10}, {1, 1, 10}, {500, 1, 509}};
    for (unsigned jitter = 0; jitter < 2; jitter++) {
        struct ticker ticker;
        ticker_init(&ticker, 100, jitter, 7, START_NS);
        ticker_begin(&ticker, ticker.deadline_ns);
        ticker_end(&ticker, ticker.deadline_ns);
        assert_int_equal(ticker.weight, 1);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            ticker_begin(&ticker, ticker.deadline_ns + (cases[i].periods - 1) * 10 * NS_PER_MS);
            assert_int_equal(ticker.weight, cases[i].weight);
            assert_int_equal(ticker.gap, cases[i].gap);
            ticker_end(&ticker, period_start(100, ticker.period));
        }
    }
}

/* One tick in three periods, at a random one of them; nothing is lost. */
static void test_stride(void **state)
{
    (void)state;
    struct ticker ticker;
    unsigned in_period[3] = {0};
    ticker_init(&ticker, 100, true, 3, START_NS);
    ticker_begin(&ticker, ticker.deadline_ns);
    ticker_set_stride(&ticker, 3);
    ticker_end(&ticker, ticker.deadline_ns);
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t first = ticker.period;
        assert_int_equal(first, 3 * (i + 1));
        assert_true(ticker.deadline_ns >= period_start(100, first) &&
                    ticker.deadline_ns < period_start(100, first + 3));
        in_period[(ticker.deadline_ns - period_start(100, first)) / (10 * NS_PER_MS)]++;
        ticker_begin(&ticker, ticker.deadline_ns);
        assert_int_equal(ticker.weight, 3);
        ticker_end(&ticker, ticker.deadline_ns + NS_PER_MS);
    }
    assert_int_equal(ticker.missed, 0);
    assert_int_equal(ticker.ticks, 3001);
    assert_int_equal(ticker.skipped, 2 * 3001);
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(in_period[i], 900, 1100);
    /* Late, but in its periods still; and beyond them. */
    ticker_begin(&ticker, period_start(100, ticker.period + 2));
    ticker_end(&ticker, period_start(100, ticker.period + 2));
    assert_int_equal(ticker.missed, 0);
    ticker_begin(&ticker, period_start(100, ticker.period + 7));
    assert_int_equal(ticker.missed, 7);
    assert_int_equal(ticker.weight, 10);
    ticker_end(&ticker, period_start(100, ticker.period));
    ticker_set_stride(&ticker, 0); /* as often as there are periods */
    assert_int_equal(ticker.stride, 1);
}

/* Years of uptime and weeks of sampling do not overflow. */
static void test_long_run(void **state)
{
    (void)state;
    struct ticker ticker;
    uint64_t start_ns = UINT64_C(5) * 365 * 86400 * NS_PER_SEC;
    ticker_init(&ticker, 10000, true, 1, start_ns);
    uint64_t now_ns = start_ns + UINT64_C(90) * 86400 * NS_PER_SEC;
    ticker_begin(&ticker, now_ns);
    ticker_end(&ticker, now_ns);
    assert_int_equal(ticker.ticks, 1);
    assert_int_equal(ticker.missed, UINT64_C(90) * 86400 * 10000);
    assert_true(ticker.deadline_ns >= now_ns && ticker.deadline_ns < now_ns + 200000);
}

/* Work that fills its period is followed by as much rest; what was missed is counted. */
static void rests_when_told(void **state)
{
    (void)state;
    struct ticker ticker;
    ticker_init(&ticker, 1000, false, 1, START_NS);
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 100; i++) {
        now_ns = ticker.deadline_ns > now_ns ? ticker.deadline_ns : now_ns;
        ticker_begin(&ticker, now_ns);
        now_ns += 3 * NS_PER_MS;
        ticker_end(&ticker, now_ns);
        ticker_not_before(&ticker, now_ns + 3 * NS_PER_MS);
        assert_true(ticker.deadline_ns >= now_ns + 3 * NS_PER_MS);
    }
    ticker_not_before(&ticker, START_NS); /* earlier than the deadline: no change */
    assert_true(ticker.deadline_ns > now_ns);
    ticker_finish(&ticker, now_ns);
    assert_int_equal(ticker.ticks, 100);
    assert_in_range(ticker.missed, 595 - 100 - 5, 600 - 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_jitter),
        cmocka_unit_test(test_jitter_keeps_the_rate),
        cmocka_unit_test(test_jitter_depends_on_the_seed),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_late_over_the_edge),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_stride),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(rests_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
