/*
 * Keeps a CPU awake while the thread that ran on it is stopped. A CPU with nothing to run goes idle at once, and to
 * wake it takes longer than the rest of a stop, most of all on a virtual machine, where it is given back to the host.
 * So a thread of ours, the keeper, waits on that CPU with policy SCHED_IDLE: it gets the CPU when the target stops, not
 * before, and the target takes it back as soon as it is let go. It looks at nothing but a time, and sleeps in between.
 *
 * Only on CPUs that the sampler was given (taskset, cpusets). All calls by one thread, the capture thread.
 */
#ifndef SAMPLER_KEEPER_H
#define SAMPLER_KEEPER_H

#include "common/clock.h"

#include <stdbool.h>

/* So long after keepers_begin a CPU is kept at most: a stop is over by then, or so long that the wake-up matters
 * little. */
#define KEEPER_NS_MAX (300 * NS_PER_US)

struct keepers;

/* Returns 0 or a negative errno. */
int keepers_new(struct keepers **ret_keepers);

/* Ends all keepers. NULL is fine. */
void keepers_free(struct keepers *keepers);

/*
 * Until keepers_end, or until the time is over, that CPU has something to run. false: it has not: it is the calling
 * thread's own or not ours to use; its keeper is not ready yet, which the first call starts; or there is none to be
 * had.
 */
bool keepers_begin(struct keepers *keepers, int cpu);

/* For all CPUs. */
void keepers_end(struct keepers *keepers);

#endif
