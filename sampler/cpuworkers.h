/*
 * Reading threads that run, without a stop: a thread of ours takes their CPU for some microseconds. While it is there
 * they are not, so the kernel's view (bpflook.h) tells their registers and copies their stacks. To the target that is
 * what happens whenever something else has a turn on a CPU. There is one such thread of ours for each CPU that was
 * asked for; it sleeps for the rest of the time, and is let in before others (slice.h).
 */
#ifndef SAMPLER_CPUWORKERS_H
#define SAMPLER_CPUWORKERS_H

#include "sampler/bpflook.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpuworkers;

/* When a worker was asked, and from when to when it was on its CPU; CLOCK_MONOTONIC. */
struct cpuworkers_times {
    uint64_t asked_ns;
    uint64_t began_ns;
    uint64_t ended_ns;
};

struct cpuworkers *cpuworkers_new(struct bpflook *bpflook); /* borrowed; NULL: no memory */
void cpuworkers_free(struct cpuworkers *workers);

/*
 * Answers of the round before are needed no more. In one round each worker is asked once: so none writes over an
 * answer that is still to be used, and for one that is not let in nobody waits twice.
 */
void cpuworkers_begin_round(struct cpuworkers *workers);

/*
 * Where to write what is to be asked of the thread on the CPU, and where its stack will be (borrowed, until the next
 * round). NULL: there is no worker for it (the first time one is only made), it is at work, or it was asked in this
 * round. Never waits.
 */
struct bpf_look *cpuworkers_slot(struct cpuworkers *workers, int cpu, const unsigned char **ret_stack);
void cpuworkers_ask(struct cpuworkers *workers, int cpu); /* what its slot says */

/*
 * Waits until all who were asked are done; who has not begun after 1 ms is not waited for any more, and will not begin.
 * `spins`: looks all the time for the first 100 us. Else workers have to wake us before they leave their CPU, 10 us
 * later.
 */
void cpuworkers_wait(struct cpuworkers *workers, bool spins);

/* What came of the last ask on that CPU. false: it was not done. */
bool cpuworkers_done(const struct cpuworkers *workers, int cpu, struct cpuworkers_times *ret);

#endif
