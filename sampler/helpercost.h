/* What a helper's handlers take of their thread: time stamp counts as nanoseconds, and what a signal itself costs. */
#ifndef SAMPLER_HELPERCOST_H
#define SAMPLER_HELPERCOST_H

#include "common/histogram.h"

#include <stdint.h>

struct helpercost {
    uint64_t began_tsc;
    uint64_t began_ns;
    double tsc_per_ns;
    struct histogram delivery_ns; /* from the interruption to the handler, and back: some times, here and now */
};

/* Measures, which takes two milliseconds. Delivers signals to the calling thread. */
void helpercost_begin(struct helpercost *cost);

/* Better with time. */
void helpercost_update(struct helpercost *cost, uint64_t now_ns);

uint64_t helpercost_now_tsc(void);
uint64_t helpercost_ns(const struct helpercost *cost, uint64_t tsc);
uint64_t helpercost_tsc(const struct helpercost *cost, uint64_t ns);

#endif
