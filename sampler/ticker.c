#include "sampler/ticker.h"

#include "common/clock.h"

/* So many periods without a tick are a gap. */
enum { GAP_PERIODS = 10 };

static uint64_t period_ns(const struct ticker *ticker)
{
    return NS_PER_SEC / ticker->rate_hz;
}

/* Exact for every rate: periods are cut from the whole second, not added up from a rounded length. */
static uint64_t period_start(const struct ticker *ticker, uint64_t period)
{
    return ticker->start_ns + (uint64_t)((unsigned __int128)period * NS_PER_SEC / ticker->rate_hz);
}

static uint64_t period_at(const struct ticker *ticker, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns > ticker->start_ns ? now_ns - ticker->start_ns : 0;
    return (uint64_t)((unsigned __int128)elapsed_ns * ticker->rate_hz / NS_PER_SEC);
}

static void set_deadline(struct ticker *ticker)
{
    ticker->deadline_ns = period_start(ticker, ticker->period);
    if (ticker->jitter)
        ticker->deadline_ns += rng_below(&ticker->rng, ticker->stride * period_ns(ticker));
}

void ticker_init(struct ticker *ticker, unsigned rate_hz, bool jitter, uint64_t seed, uint64_t now_ns)
{
    *ticker =
        (struct ticker){.start_ns = now_ns, .rate_hz = rate_hz, .jitter = jitter, .rng = {.state = seed}, .stride = 1};
    set_deadline(ticker);
}

/* Moves on to the period of `now_ns`, if that is beyond those of the next tick, counting those in between as missed. */
static void skip_to(struct ticker *ticker, uint64_t now_ns)
{
    uint64_t current = period_at(ticker, now_ns);
    if (current >= ticker->period + ticker->stride) {
        ticker->missed += current - ticker->period;
        ticker->period = current;
    }
}

static void weigh(struct ticker *ticker)
{
    uint64_t passed = ticker->ticks ? ticker->period - ticker->last_period : 1;
    ticker->last_period = ticker->period;
    ticker->weight = passed;
    if (passed <= (uint64_t)GAP_PERIODS * ticker->stride)
        return;
    ticker->weight = ticker->stride;
    ticker->gap += passed - ticker->stride;
}

void ticker_begin(struct ticker *ticker, uint64_t now_ns)
{
    uint64_t late_ns = now_ns > ticker->deadline_ns ? now_ns - ticker->deadline_ns : 0;
    if (late_ns > period_ns(ticker) / 4)
        ticker->late++;
    /* Less than a period late is this tick still, though the clock may be in the next period already. */
    if (late_ns >= period_ns(ticker))
        skip_to(ticker, now_ns);
    weigh(ticker);
    ticker->ticks++;
}

void ticker_end(struct ticker *ticker, uint64_t now_ns)
{
    ticker->skipped += ticker->stride - 1;
    ticker->period += ticker->stride;
    skip_to(ticker, now_ns);
    set_deadline(ticker);
}

void ticker_set_stride(struct ticker *ticker, unsigned stride)
{
    ticker->stride = stride ? stride : 1;
}

void ticker_not_before(struct ticker *ticker, uint64_t earliest_ns)
{
    if (ticker->deadline_ns < earliest_ns)
        ticker->deadline_ns = earliest_ns;
}

void ticker_finish(struct ticker *ticker, uint64_t now_ns)
{
    skip_to(ticker, now_ns);
}
