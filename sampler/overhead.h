/*
 * How seldom to sample so that it costs no more than was allowed (--overhead): a share of one CPU. Pure arithmetic.
 *
 * What ticks cost is known from those that were taken, the later ones most. What was spent beyond the allowance so far
 * is taken from that of the next second.
 */
#ifndef SAMPLER_OVERHEAD_H
#define SAMPLER_OVERHEAD_H

#include <stdint.h>

struct overhead {
    double limit; /* of one CPU, 0.01 for a percent; 0: none */
    uint64_t ticks;
    uint64_t start_ns;
    uint64_t start_cost_ns;
    uint64_t last_cost_ns;
    double tick_cost_ns;
};

void overhead_init(struct overhead *overhead, double limit);

/*
 * A tick is over at `now_ns`; all has cost `cost_ns` so far. Returns in how many periods the next tick is to be taken.
 * The first ticks, with which everything begins, are not counted.
 */
unsigned overhead_stride(struct overhead *overhead, uint64_t cost_ns, uint64_t now_ns, uint64_t period_ns);

/* The share of one CPU that was used, of all ticks that count; 0 before. */
double overhead_used(const struct overhead *overhead, uint64_t cost_ns, uint64_t now_ns);

#endif
