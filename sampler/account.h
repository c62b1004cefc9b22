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
    uint64_t wait_ns; /* for which it waited for a CPU */
    bool is_of_many;  /* threads of that name that had no sample */
};

/* Threads that come and go by the thousand, too short for a sample, are one total for each name: of so many names. */
enum { ACCOUNT_MANY_MAX = 64 };

/* What a process had of the CPUs, and what it wanted more. */
struct process_total {
    pid_t pid; /* 0: the rest of many */
    char comm[PROCFS_COMM_BYTES];
    uint64_t run_ns;
    uint64_t wait_ns;
};

/* So many processes are kept one by one. */
enum { ACCOUNT_PROCESSES_MAX = 1000 };

/* All zero is empty. */
struct account {
    uint64_t cpu_ns_target;      /* of all processes, by their own clocks */
    uint64_t wait_ns_threads;    /* for which threads waited for a CPU */
    uint64_t cpu_ns_threads;     /* of the threads that were seen */
    uint64_t cpu_ns_sampled;     /* of those that have a sample */
    uint64_t threads_unsampled;  /* seen, never sampled */
    struct thread_total *totals; /* owned */
    size_t total_count;
    size_t many[ACCOUNT_MANY_MAX]; /* which of them are of many */
    size_t many_count;
    size_t total_capacity;
    struct process_total *processes; /* owned */
    size_t process_count;
    size_t process_capacity;
    struct process_total other_processes; /* of those that came when there were too many */
    size_t other_process_count;
    int error; /* -ENOMEM: a total is missing */
};

void account_deinit(struct account *account);

/* The thread has ended, or the run has. `keep_total`: its time is needed by itself. */
void account_thread(struct account *account, const struct thread *thread, bool keep_total);

/* Of the process's time, `cpu_ns` are of threads that were sampled, though never seen: as one thread, of that name. */
void account_unseen(struct account *account, struct thread_shared *shared, const char *comm, uint64_t cpu_ns);

/* The same for a process, before its threads are taken from it. */
void account_process(struct account *account, const struct process *process);

/*
 * Gives the profile's threads their CPU time and scales their samples to it (profile_scale_by_cpu). Threads that have
 * no sample are added; with `with_exited` also the time of those that were never seen. Returns 0 or -ENOMEM.
 */
int account_scale_profile(const struct account *account, struct profile *profile, bool with_exited);

/* The same of a profile in wall mode, which keeps its sum (profile_scale_by_accounts). */
int account_scale_states(const struct account *account, struct profile *profile);

#endif
