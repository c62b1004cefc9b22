/*
 * How far two profiles are apart, and whether that is more than chance. Pure computation on counts of stacks.
 *
 * The distance is the total variation distance: half the sum over stacks of the differences of their shares, the part
 * of the samples that would have to be elsewhere for the profiles to be equal. Two samples of the same distribution are
 * never at 0, and the more stacks there are the farther apart they lie; so each distance comes with that noise floor.
 *
 * What chance is, is computed twice. By samples: as if each sample were drawn for itself (Poisson counts around those
 * of the pooled profile). By windows: windows are dealt out anew between the two sides, which allows for a target that
 * does other things at other times. A difference is one when both say so.
 */
#ifndef SAMPLER_PROFILEDISTANCE_H
#define SAMPLER_PROFILEDISTANCE_H

#include "common/rng.h"
#include "sampler/stackcounts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The windows of one side: borrowed. */
struct windowset {
    const struct stackcounts *const *windows;
    size_t count;
};

/* Of 95 %; NAN where it cannot be told. */
struct interval {
    double low;
    double high;
};

struct chance {
    double mean; /* of the distances that chance alone makes */
    double p95;  /* 95 % of them are not above this */
    double p;    /* how probable such a distance, or a greater one, is by chance alone */
};

enum verdict {
    VERDICT_NONE,       /* a side has no samples */
    VERDICT_SAME,       /* no more than chance */
    VERDICT_DIFFERENT,  /* more than chance, by samples and by windows */
    VERDICT_BY_SAMPLES, /* more than chance by samples alone: windows differ as much among themselves */
    VERDICT_FEW_WINDOWS /* more than chance by samples; there are too few windows to tell by them */
};

struct distance {
    double tvd; /* NAN when a side has no samples */
    /*
     * Of the distance of what was sampled: those distances, in the direction of what was seen, of which that is no
     * surprise. So what chance adds is not in it, and it may lie below `tvd`; it begins at 0 where p > 0.05. By windows
     * NAN with fewer than 3 windows on a side; both NAN with more than 50,000 stacks.
     */
    struct interval by_samples;
    struct interval by_windows;
    struct chance chance_samples;
    struct chance chance_windows; /* NAN with fewer than 2 windows on a side */
    enum verdict verdict;
};

/* Of counts by stack number; NAN when one side is empty. */
double distance_tvd(const double *a, const double *b, size_t count);

/* `stack_count`: all numbers are below. Returns 0 or -ENOMEM. */
int distance_between(const struct windowset *a, const struct windowset *b, size_t stack_count, struct rng *rng,
                     struct distance *ret_distance);

/* Counts by stack number of all windows together; `ret_counts` has room for `stack_count` and is zeroed first. */
void windowset_pool(const struct windowset *set, size_t stack_count, double *ret_counts);

/* Stacks with a share of at least `hot` on either side, and those of them that both sides have seen. */
void distance_hot(const double *a, const double *b, size_t count, double hot, size_t *ret_hot, size_t *ret_both);

/* A number from the Poisson distribution of that mean (above 30 by the normal one). */
double distance_poisson(struct rng *rng, double mean);

#endif
