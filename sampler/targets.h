/*
 * The processes and threads that are being sampled, and what is remembered of each.
 * Owned by the capture thread. Every look goes through descriptors that are bound to the process or thread, not to its
 * number.
 */
#ifndef SAMPLER_TARGETS_H
#define SAMPLER_TARGETS_H

#include "sampler/cpushare.h"
#include "sampler/gate.h"
#include "sampler/procfs.h"
#include "sampler/space.h"
#include "sampler/threadstate.h"
#include "unwind/snapshot.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What became of a thread's last sample, for those that repeat it (digest.c). */
struct sample_outcome {
    bool is_known;
    bool is_unstopped;
    bool is_inferred;
    uint8_t kind;    /* enum sample_kind */
    uint8_t failure; /* enum failure */
    uint8_t end;     /* enum stack_end, without failure */
    uint32_t thread_name;
    uint32_t stack;
    uint32_t state;  /* string */
    uint8_t account; /* enum sample_account */
};

/* The last places are remembered in which a stop was needed. */
enum { THREAD_STUCK_PLACES = 4 };

/* What capture and unwinding both know of a thread; outlives it while snapshots of it are in work. Counted references.
 */
struct thread_shared {
    atomic_uint references;
    pid_t pid;
    pid_t tid;
    atomic_size_t copy_bytes; /* how much of the stack the next copy may need; set by the unwinder */
    /* Above all that walks of it to the outermost frame have needed, on the stack where it was last; 0: none yet. Set
     * by the unwinder. */
    atomic_uint_fast64_t top_avma;
    /* Where on its signal stack that of the interrupted code is written down (struct stack); 0: it has none so far. Set
     * by the capture thread and the unwinder. */
    atomic_uint_fast64_t interrupted_sp_at_avma;
    /* Where it slept (a hash of pc and stack pointer) when its stack could not be followed with the registers that can
     * be read of a sleeping thread. Set by the unwinder. */
    atomic_uint_fast64_t stuck_at[THREAD_STUCK_PLACES];
    /* Its last sample may be better if it is taken again: a stop, a larger copy or newer maps would help. Set by the
     * unwinder. */
    atomic_bool wants_again;
    bool in_profile;               /* the unwinding thread's, until it has ended */
    uint32_t profile_thread;       /* likewise */
    uint32_t saved_number;         /* likewise: its number in the snapshot file; 0: none yet */
    struct sample_outcome outcome; /* likewise */
};

struct thread {
    pid_t tid;
    struct process *process;
    int schedstat_fd; /* -1: too many descriptors; opened for each look */
    int stat_fd;
    int syscall_fd;  /* -1: not read twice yet, or too many */
    bool was_asleep; /* `syscall` was read of it */
    int16_t call;    /* as it told last; -1: in none */
    struct procfs_schedstat last;
    struct procfs_schedstat fresh; /* read for the gate, not looked at yet */
    bool has_fresh;
    /* Told by the kernel for the tick `told_ns`, with `fresh` (kernelview.h); and when the thread began, which is how
     * it is known there; 0: not known. */
    struct procfs_stat told_stat;
    bool told_on_cpu;
    size_t told_slot;
    unsigned first_tid;    /* its number in the first pid namespace */
    uint64_t told_threads; /* how many its process has */
    uint64_t told_ns;
    uint64_t began_ns;
    bool is_new;             /* it began during the run */
    uint64_t ran_ns;         /* the look at which it was last found to have run; 0: never yet */
    bool is_cold;            /* among the cold threads of its process */
    bool is_settled;         /* needs no look until it runs: is to be among them */
    uint64_t cold_run_ns;    /* its part of the process's */
    bool is_wanted;          /* by the user's choice of threads, as its name was at the last look */
    uint64_t cpu_ns;         /* CPU time in the sampled interval, while wanted */
    uint64_t wait_ns;        /* likewise, time for which it waited for a CPU */
    enum thread_state state; /* at this tick, if it is to be sampled */
    bool seen_off_cpu;  /* at the last look, which `last` is not younger than: equal counters mean the same stack */
    bool has_schedstat; /* else nothing proves that it did not run, and a runnable tick counts whole */
    bool is_zombie;     /* has ended; the main thread of a process stays so until the last one ends */
    char comm[PROCFS_COMM_BYTES];
    struct cpushare share;
    uint64_t counted_tick;    /* wall mode: ticks until this one are in the profile, */
    uint64_t counted_wall_ns; /* and time of the targets' clock until this */
    /* Its last sample, taken while it slept, is its stack until it runs again: ticks since then are added when that is
     * over. */
    bool is_kept;
    uint64_t owed_ticks; /* in cpu mode, it ran at these and slept when it was to be read: its next sample's */
    uint64_t owed_ns;
    bool is_left_out;      /* since its last sample, for there were too many to stop (wall mode) */
    bool may_lose_timeout; /* where it slept last, as far as known: a stop can rob that call of its timeout's answer */
    uint64_t woken_ns;     /* the tick that found it awake, when the one before had found it asleep */
    unsigned reads;        /* samples taken of it since it ran last */
    bool was_asked;        /* it slept, and was stopped for its registers: its next sleep is the same one */
    struct extent stack;   /* where its stack was last */
    uint64_t samples;
    /* Of the last stop that made a system call start again: the registers, how often it had been on a CPU, and how many
     * such stops this one call has seen. */
    struct registers restarted_at;
    uint64_t restarted_slices;
    unsigned restarts;
    /* Of the last stop: the registers, and a hash of the stack's innermost frames. */
    struct registers stopped_at;
    uint64_t stopped_hash;
    /* Of one with a helper inside (helped.h). Its id as the process itself sees it, 0: not known yet; its slot; when it
     * was first seen, asked by a signal and heard of last. */
    pid_t helper_tid;
    uint32_t helper_slot;
    bool is_armed;       /* it has a timer */
    bool helper_blocked; /* it had our signal blocked, when that was last asked: */
    uint64_t helper_blocked_ns;
    uint64_t helper_seen_ns;
    uint64_t helper_asked_ns;
    uint64_t helper_answered_ns;
    uint64_t helper_slices; /* turns on a CPU, and where it slept, when it was asked */
    struct procfs_syscall helper_slept_at;
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
    uint64_t counter_read_ns;
    bool maps_told;       /* new executable mappings are told as they are made (watch.h) */
    bool maps_moved;      /* one was, since the maps were read */
    bool is_fork;         /* began as a copy of another, maybe in its memory (vfork), and has not called exec */
    uint64_t checked_ns;  /* the tick at which space and map were found to be those of now */
    bool memory_was_gone; /* a sample met other memory than its space's */
    bool unreadable;      /* its memory may not be read (said once) */
    pid_t traced_tid;     /* a thread of it that another tracer has, so we stay out; 0: none (othertracer.h) */
    uint64_t tracer_looked_ns;
    /* Owned. First the hot ones, which are looked at at each tick; the others only when the gate does not say that none
     * of them has run. */
    struct thread **threads;
    size_t thread_count;
    size_t hot_count;
    uint64_t cold_run_ns; /* sum of the cold threads' run times at their last look */
    struct gate gate;
    bool wants_all;        /* this tick looks at the cold ones too */
    bool has_lost_threads; /* at this tick */
    bool has_run;          /* some thread of it has, or may have, before this tick */
    size_t thread_capacity;
    uint64_t first_cpu_ns; /* the process CPU clock when sampling of it began */
    uint64_t last_cpu_ns;
    uint64_t cpu_read_ns;
    uint64_t known_cpu_ns;  /* CPU time of its threads that are gone again */
    uint64_t known_wait_ns; /* and time for which those waited for one */
    bool had_other_threads; /* than the one that it has, as far as its CPU time tells */
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
    /* The time that wall mode's samples stand for: up to this tick, and up to the one before. */
    uint64_t tick;
    uint64_t wall_ns;
    uint64_t last_wall_ns;
    uint64_t ticked_ns;      /* CLOCK_MONOTONIC of this tick, */
    uint64_t last_ticked_ns; /* and of the one before */
};

int targets_init(struct targets *targets); /* 0 or -ENOMEM */
void targets_deinit(struct targets *targets);

/* A tick begins, and stands for so much time (ticker.h). */
void targets_begin_tick(struct targets *targets, uint64_t now_ns, uint64_t stands_for_ns);

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

/* Moves those that are settled to the cold threads, and the others away from them. `all`: else the cold ones are as
 * they were. */
void process_sort_threads(struct process *process, bool all);

/*
 * One look: schedstat. *ret_moved: it ran since the last look, or may have. Updates `last`, cpu_ns and the share.
 * Returns 0, -ESRCH when it is gone, or another negative errno that says nothing of it (-EMFILE).
 */
int thread_look(struct thread *thread, uint64_t now_ns, bool *ret_moved);

/* What its status file says, its own tracer for example. 0 or a negative errno. */
int thread_read_status(const struct thread *thread, struct procfs_status *ret);

int thread_read_schedstat(const struct thread *thread, struct procfs_schedstat *ret); /* without noting it */

/* Where the thread sleeps. -EAGAIN: it runs, or does not sleep in one place; -EPERM: not allowed, or not supported. */
int thread_read_syscall(struct thread *thread, struct procfs_syscall *ret);

/* State, name and program image of the thread now. */
int thread_read_stat(const struct thread *thread, struct procfs_stat *ret);

/* Reads the process CPU clock: always when `must`, else when a look at its threads says that it has moved and not more
 * often than it may cost. */
void process_read_cpu(struct process *process, uint64_t now_ns, bool must);

/* CPU time of the process's threads since sampling of them began, those that are gone included. */
uint64_t process_known_cpu_ns(const struct process *process);

/*
 * At the end: counters are behind by up to a scheduler tick for threads that are on a CPU, the process clock is not.
 * What it is ahead goes to those, unless it is more than that.
 */
void process_settle(struct process *process, uint64_t now_ns);

/* The unwinder's: samples of the thread in this place need a stop. Any thread may ask. */
void thread_note_stuck(struct thread_shared *shared, const struct registers *registers);
bool thread_is_stuck_at(const struct thread_shared *shared, const struct registers *registers);

struct thread_shared *thread_shared_new(pid_t pid, pid_t tid); /* one reference; NULL: no memory */
struct thread_shared *thread_shared_ref(struct thread_shared *shared);
void thread_shared_unref(struct thread_shared *shared);

#endif
