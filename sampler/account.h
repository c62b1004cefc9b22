/* CPU time of the targets, summed up as threads and processes end. */
#ifndef SAMPLER_ACCOUNT_H
#define SAMPLER_ACCOUNT_H

#include "profile/profile.h"
#include "sampler/targets.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CPU time of one thread, for profiles in nanoseconds. */
struct thread_total {
    struct thread_shared *shared; /* owned reference */
    char comm[PROCFS_COMM_BYTES];
    uint64_t cpu_ns;
};

/* All zero is empty. */
struct account {
    uint64_t cpu_ns_target;      /* of all processes, by their own clocks */
    uint64_t cpu_ns_threads;     /* of the threads that were seen */
    uint64_t cpu_ns_sampled;     /* of those that have a sample */
    uint64_t threads_unsampled;  /* seen, never sampled */
    struct thread_total *totals; /* owned */
    size_t total_count;
    size_t total_capacity;
    int error; /* -ENOMEM: a total is missing */
};

void account_deinit(struct account *account);

/* The thread has ended, or the run has. `keep_total`: its time is needed by itself. */
void account_thread(struct account *account, const struct thread *thread, bool keep_total);

/* The same for a process, before its threads are taken from it. */
void account_process(struct account *account, const struct process *process);

/*
 * Gives the profile's threads their CPU time and scales their samples to it (profile_scale_by_cpu). Threads that have
 * no sample are added; with `with_exited` also the time of those that were never seen. Returns 0 or -ENOMEM.
 */
int account_scale_profile(const struct account *account, struct profile *profile, bool with_exited);

#endif
