/*
 * When to sample. Time from the start is cut into periods of 1/rate; each has one tick, at its beginning or, with
 * jitter, at a random moment inside it: the mean rate is exact and no target can be in step with it. Deadlines are
 * absolute, so lateness does not add up. A period that went by without its tick is missed, and never caught up with.
 * With a stride only one tick is taken in so many periods, at a random one of them.
 *
 * A tick stands for the periods since the last one, not for the time between them: that would weigh moments late in
 * their period more, and who is in step with the rate would show it. But a long gap (the sampler or the machine was
 * suspended) was nobody's to see, and its periods are in no tick.
 *
 * Pure arithmetic: the caller reads the clock and sleeps.
 */
#ifndef SAMPLER_TICKER_H
#define SAMPLER_TICKER_H

#include "common/rng.h"

#include <stdbool.h>
#include <stdint.h>

struct ticker {
    uint64_t start_ns;
    unsigned rate_hz;
    bool jitter;
    struct rng rng;
    uint64_t period; /* number of the one whose tick is next */
    uint64_t deadline_ns;
    unsigned stride;      /* 1: a tick in each period */
    uint64_t last_period; /* of the tick before this one */
    uint64_t weight;      /* of this tick, in periods */
    uint64_t ticks;
    uint64_t late; /* of the ticks: begun more than a quarter of a period behind their deadline */
    uint64_t missed;
    uint64_t skipped; /* periods that were to have no tick */
    uint64_t gap;     /* of the missed ones, those of long gaps */
};

void ticker_init(struct ticker *ticker, unsigned rate_hz, bool jitter, uint64_t seed, uint64_t now_ns);

/* The tick is being taken now. Counts it, and those missed before it. */
void ticker_begin(struct ticker *ticker, uint64_t now_ns);

/* The work of the tick is done: sets the next deadline. Periods that are wholly over are missed. */
void ticker_end(struct ticker *ticker, uint64_t now_ns);

/* From the next ticker_end on. At least 1. */
void ticker_set_stride(struct ticker *ticker, unsigned stride);

/* After ticker_end: the next tick is not before that. Work that does not fit the rate costs ticks, not a whole CPU. */
void ticker_not_before(struct ticker *ticker, uint64_t earliest_ns);

/* Sampling ends: periods over by now whose tick was not taken are missed. */
void ticker_finish(struct ticker *ticker, uint64_t now_ns);

#endif
