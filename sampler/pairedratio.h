/*
 * By how much rates change, each compared with its plain neighbours, so that a slow drift of machine and target
 * cancels. Pure computation.
 */
#ifndef SAMPLER_PAIREDRATIO_H
#define SAMPLER_PAIREDRATIO_H

#include <stddef.h>

/* One window, in the order of time. */
struct pairedrate {
    double plain;    /* its rate when nothing was done in it; NAN else */
    double measured; /* its rate when it is one of those in question; NAN else */
};

struct pairedratio {
    size_t pairs;
    double ratio; /* geometric mean of measured / plain; NAN without a pair */
    double low;   /* 95 %, by Student's t on the logarithms; NAN with fewer than 2 pairs */
    double high;
};

/* Each measured rate is compared with the mean of the nearest plain ones before and behind it, or the one that there
 * is. */
struct pairedratio pairedratio_of(const struct pairedrate *rates, size_t count);

#endif
