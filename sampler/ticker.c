#include "sampler/ticker.h"

#include "common/clock.h"

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
        ticker->deadline_ns += rng_below(&ticker->rng, period_ns(ticker));
}

void ticker_init(struct ticker *ticker, unsigned rate_hz, bool jitter, uint64_t seed, uint64_t now_ns)
{
    *ticker = (struct ticker){.start_ns = now_ns, .rate_hz = rate_hz, .jitter = jitter, .rng = {.state = seed}};
    set_deadline(ticker);
}

/* Moves on to the period of `now_ns`, counting those in between as missed. */
static void skip_to(struct ticker *ticker, uint64_t now_ns)
{
    uint64_t current = period_at(ticker, now_ns);
    if (current > ticker->period) {
        ticker->missed += current - ticker->period;
        ticker->period = current;
    }
}

void ticker_begin(struct ticker *ticker, uint64_t now_ns)
{
    uint64_t late_ns = now_ns > ticker->deadline_ns ? now_ns - ticker->deadline_ns : 0;
    if (late_ns > period_ns(ticker) / 4)
        ticker->late++;
    /* Less than a period late is this tick still, though the clock may be in the next period already. */
    if (late_ns >= period_ns(ticker))
        skip_to(ticker, now_ns);
    ticker->ticks++;
}

void ticker_end(struct ticker *ticker, uint64_t now_ns)
{
    ticker->period++;
    skip_to(ticker, now_ns);
    set_deadline(ticker);
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
