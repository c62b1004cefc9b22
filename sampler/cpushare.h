/*
 * How much of a tick a runnable thread gets in cpu mode.
 *
 * From outside one sees "runnable", which includes waiting for a CPU. A runnable thread counts by its share run / (run
 * + wait), as the kernel accounts it, so that the expected count is CPU time x rate: 1 on an idle machine, a quarter
 * when 8 threads share 2 CPUs. Fractions add up from tick to tick; a thread is sampled when it has a whole one.
 *
 * The share is taken over the recent past (a fading memory of a quarter second) and not over the last tick alone: the
 * kernel adds waiting time when it ends, in pieces longer than a tick, and a mean of per-tick ratios would count
 * waiting threads too high.
 */
#ifndef SAMPLER_CPUSHARE_H
#define SAMPLER_CPUSHARE_H

#include <stdbool.h>
#include <stdint.h>

struct cpushare {
    double run_ns;
    double wait_ns;
    double ratio; /* of the two when they last were anything */
    double credit;
    uint64_t updated_ns;
    bool was_runnable;     /* at the last look */
    double stopped_ns;     /* of our stops, not yet found among what is unaccounted */
    double unaccounted_ns; /* neither run nor waited, while runnable */
};

/*
 * `start` in [0, 1): where the fraction begins; random, so that the rounding of many threads has no direction. `run_ns`
 * and `wait_ns` are the thread's life so far: what is known of it before it is seen running or waiting. Both 0: a
 * thread that has not run yet, whose share is 0.
 */
void cpushare_init(struct cpushare *share, double start, uint64_t run_ns, uint64_t wait_ns, uint64_t now_ns);

/* What the thread ran and waited since the last call. */
void cpushare_add(struct cpushare *share, uint64_t run_ns, uint64_t wait_ns, uint64_t now_ns);

/*
 * We stopped the thread for at most so long. It was not on a CPU then, and the kernel counts that neither as running
 * nor as waiting, so it is counted as waiting here, as far as there is time that the kernel accounted to neither. (What
 * a stop took includes the thread's wait for a CPU.)
 */
void cpushare_stopped(struct cpushare *share, uint64_t stopped_ns);

/* The thread is runnable at a tick: adds its share, and takes a whole tick if there is one. */
bool cpushare_tick(struct cpushare *share);

#endif
