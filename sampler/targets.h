/*
 * The processes and threads that are being sampled, and what is remembered of each.
 * Owned by the capture thread. Every look goes through descriptors that are bound to the process or thread, not to its
 * number.
 */
#ifndef SAMPLER_TARGETS_H
#define SAMPLER_TARGETS_H

#include "sampler/cpushare.h"
#include "sampler/procfs.h"
#include "sampler/space.h"
#include "unwind/snapshot.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What capture and unwinding both know of a thread; outlives it while snapshots of it are in work. Counted references.
 */
struct thread_shared {
    atomic_uint references;
    pid_t pid;
    pid_t tid;
    atomic_size_t copy_bytes; /* how much of the stack the next copy should have; set by the unwinder */
    /* Where on its signal stack that of the interrupted code is written down (struct stack); 0: it has none so far. Set
     * by the capture thread and the unwinder. */
    atomic_uint_fast64_t interrupted_sp_at_avma;
    /* Its stack could not be followed with the registers that can be read of a sleeping thread. Set by the unwinder. */
    atomic_bool needs_stop;
    bool in_profile;         /* the unwinding thread's, until it has ended */
    uint32_t profile_thread; /* likewise */
    uint32_t saved_number;   /* likewise: its number in the snapshot file; 0: none yet */
};

struct thread {
    pid_t tid;
    struct process *process;
    int schedstat_fd; /* -1: too many descriptors; opened for each look */
    int stat_fd;
    struct procfs_schedstat last;
    bool is_wanted;     /* by the user's choice of threads, as its name was at the last look */
    uint64_t cpu_ns;    /* CPU time in the sampled interval, while wanted */
    bool seen_off_cpu;  /* at the last look, which `last` is not younger than: equal counters mean the same stack */
    bool has_schedstat; /* else nothing proves that it did not run, and a runnable tick counts whole */
    bool is_zombie;     /* has ended; the main thread of a process stays so until the last one ends */
    char comm[PROCFS_COMM_BYTES];
    struct cpushare share;
    uint64_t counted_until_ns; /* wall mode: time before this is in the profile */
    struct extent stack;       /* where its stack was last */
    uint64_t samples;
    struct registers restarted_at; /* of the last stop that made a system call start again */
    /* Of the last stop: the registers, and a hash of the stack's innermost frames. */
    struct registers stopped_at;
    uint64_t stopped_hash;
    struct item *in_flight; /* the capture's: its sample in the making, or NULL */
    struct thread_shared *shared;
};

struct process {
    pid_t pid;
    int proc_fd;
    struct space *space;     /* borrowed from the capture's list */
    uint64_t image_hash;     /* of the program image that `space` is */
    struct address_map *map; /* owned reference; NULL before the first look */
    uint64_t map_counter;
    uint64_t map_read_ns;
    bool maps_told;          /* new executable mappings are told as they are made (watch.h) */
    bool maps_moved;         /* one was, since the maps were read */
    bool is_fork;            /* began as a copy of another, maybe in its memory (vfork), and has not called exec */
    uint64_t checked_ns;     /* the tick at which space and map were found to be those of now */
    bool unreadable;         /* its memory may not be read (said once) */
    struct thread **threads; /* owned */
    size_t thread_count;
    size_t thread_capacity;
    uint64_t first_cpu_ns; /* the process CPU clock when sampling of it began */
    uint64_t last_cpu_ns;
    uint64_t cpu_read_ns;
    uint64_t known_cpu_ns; /* CPU time of its threads that are gone again */
};

struct targets {
    struct process **processes; /* owned */
    size_t process_count;
    size_t process_capacity;
    struct thread **by_tid; /* open addressing by tid, borrowed */
    size_t slot_count;
    size_t thread_count;
    bool has_schedstat; /* this kernel keeps the counters (CONFIG_SCHED_INFO) */
    uint64_t threads_seen;
    uint64_t threads_vanished;
    uint64_t processes_seen;
};

int targets_init(struct targets *targets); /* 0 or -ENOMEM */
void targets_deinit(struct targets *targets);

struct process *targets_find_process(const struct targets *targets, pid_t pid); /* borrowed or NULL */
struct thread *targets_find_thread(const struct targets *targets, pid_t tid);   /* borrowed or NULL */

/*
 * Adds a process without threads. `proc_fd` is consumed on success. `is_new`: it began during the run, so all its CPU
 * time counts. Returns 0, -EEXIST, or another negative errno.
 */
int targets_add_process(struct targets *targets, pid_t pid, int proc_fd, bool is_new, struct process **ret_process);

/* Adds a thread of it; 0 also when it is known. -ESRCH when it is gone. `share_start` as cpushare_init has it. */
int targets_add_thread(struct targets *targets, struct process *process, pid_t tid, bool is_new, double share_start);

/* The thread or process is gone. The thread is freed, the process too. */
void targets_remove_thread(struct targets *targets, struct thread *thread);
void targets_remove_process(struct targets *targets, struct process *process);

/*
 * One look: schedstat. *ret_moved: it ran since the last look, or may have. Updates `last`, cpu_ns and the share.
 * Returns 0, -ESRCH when it is gone, or another negative errno that says nothing of it (-EMFILE).
 */
int thread_look(struct thread *thread, uint64_t now_ns, bool *ret_moved);

/* What its status file says, its own tracer for example. 0 or a negative errno. */
int thread_read_status(const struct thread *thread, struct procfs_status *ret);

int thread_read_schedstat(const struct thread *thread, struct procfs_schedstat *ret); /* without noting it */

/* Where the thread sleeps. -EAGAIN: it runs, or does not sleep in one place; -EPERM: not allowed, or not supported. */
int thread_read_syscall(const struct thread *thread, struct procfs_syscall *ret);

/* State, name and program image of the thread now. */
int thread_read_stat(const struct thread *thread, struct procfs_stat *ret);

/* Reads the process CPU clock: always when `must`, else not more often than it may cost. */
void process_read_cpu(struct process *process, uint64_t now_ns, bool must);

struct thread_shared *thread_shared_ref(struct thread_shared *shared);
void thread_shared_unref(struct thread_shared *shared);

#endif
