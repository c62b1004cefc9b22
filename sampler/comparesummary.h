/* What the windows of a comparison come to: a number for each row and column of its table, distances, hottest stacks.
 */
#ifndef SAMPLER_COMPARESUMMARY_H
#define SAMPLER_COMPARESUMMARY_H

#include "sampler/comparewindow.h"
#include "sampler/profiledistance.h"

/* In the order of the table. Times are in nanoseconds; those of percentiles are medians over the windows. */
enum comparerow {
    ROW_WINDOWS,
    ROW_SECONDS,
    ROW_SAMPLES,
    ROW_TICKS_MISSED,
    ROW_LOST,
    ROW_NO_ROOM,
    ROW_BLOCKED,
    ROW_TIMERS_FAILED,
    ROW_WALKED,
    ROW_COPIED,
    ROW_TRUNCATED,
    ROW_FAILED,
    ROW_FAULTS,
    ROW_STACKS,
    ROW_DEPTH_MEAN,
    ROW_DEPTH_P50,
    ROW_DEPTH_MAX,
    ROW_STOPS,
    ROW_HELD_P50,
    ROW_HELD_P99,
    ROW_HELD_MAX,
    ROW_INTERRUPTED,
    ROW_INTERRUPTED_P50,
    ROW_INTERRUPTED_P99,
    ROW_INTERRUPTED_MAX,
    ROW_HANDLER_P50,
    ROW_HANDLER_P99,
    ROW_HANDLER_MAX,
    ROW_DELIVERY_P50,
    ROW_DELIVERY_P99,
    ROW_DELIVERY_MAX,
    ROW_EINTR_SEEN,
    ROW_EINTR_HIDDEN,
    ROW_ENGINE_CPU, /* CPU time of the engine's processes, all of it, in nanoseconds a window */
    ROW_NAMING_CPU, /* the part of it that names took, after sampling */
    ROW_TARGET_CPU, /* CPUs that the target was on, in the mean */
    ROW_WORK,       /* per second, in the mean */
    ROW_SLOWDOWN,   /* per cent of the work that was not done; an interval of 95 % */
    ROW_SLOWDOWN_LOW,
    ROW_SLOWDOWN_HIGH,
    ROW_COUNT
};

enum { HOTTEST = 10, PAIRS_MAX = 2 };

/* A stack is hot with this share of either side's samples. */
#define HOT_SHARE 0.01

struct comparecolumn {
    double rows[ROW_COUNT];    /* NAN: unknown */
    struct comparestats stats; /* of it only the causes */
    const char *refusal;       /* borrowed from a window; NULL: none */
};

struct comparepair {
    enum comparekind a;
    enum comparekind b;
    struct distance distance; /* of whole stacks */
    struct distance
        innermost; /* of threads' names with the innermost functions: who ran, however the stacks were followed */
    size_t hot;
    size_t hot_in_both;
};

struct comparehot {
    const char *stack;            /* borrowed from the run */
    double shares[COMPARE_KINDS]; /* NAN where there is no profile */
};

enum worksource { WORK_UNKNOWN, WORK_COMMAND, WORK_CALLS };

struct comparesummary {
    struct comparecolumn columns[COMPARE_KINDS];
    struct comparepair pairs[PAIRS_MAX];
    size_t pair_count;
    struct comparehot hottest[HOTTEST];
    size_t hot_count;
    enum worksource work;
};

/* `windows` in the order of time. What is borrowed lives as long as the windows and the run. 0 or -ENOMEM. */
int comparesummary_make(struct comparerun *run, const struct comparewindow *windows, size_t count,
                        struct comparesummary *ret_summary);

#endif
