/*
 * Sampling through helpers in the targets (--helper): what they record becomes items for the unwinding thread, their
 * threads get timers, and in wall mode signals. The capture thread's; takes the place of sampling.h.
 */
#ifndef SAMPLER_HELPED_H
#define SAMPLER_HELPED_H

#include "sampler/account.h"
#include "sampler/flight.h"
#include "sampler/helpedparts.h"
#include "sampler/helperlink.h"
#include "sampler/looks.h"
#include "sampler/options.h"
#include "sampler/sampling.h"
#include "sampler/targets.h"

#include <stddef.h>
#include <stdint.h>

struct capture_target;

/* A process with a helper, and what became of it. */
struct helped_process {
    struct helperlink *link; /* NULL: there is none just now */
    struct helperlink **own; /* owned: those that were made after an exec */
    size_t own_count, own_capacity;
    struct helper_counters past; /* of links that are over */
    bool is_checked;             /* it is in the program that we look at, or is not */
    uint64_t began_ns;
    unsigned tries;          /* to put a helper into the program that exec has made of it */
    uint64_t try_ns;         /* when the next one is due; 0: none is */
    struct strbuf why_not;   /* of the last try */
    struct process *process; /* NULL: it has ended, or is another program now */
    /* Threads that were gone before they were seen, all as one: their samples are under the process's name. */
    struct thread_shared *unseen; /* owned reference; NULL: none so far */
    char comm[PROCFS_COMM_BYTES];
    uint64_t unseen_ns;
    /* Code that lasts; the map before this one; the helper's count of unloads at which this one was read; until when
     * samples are of a time before we saw that code was gone; when the ring was read last. */
    struct certaincode *certain;  /* owned reference; NULL: not known yet, or no memory */
    struct address_map *last_map; /* owned reference */
    uint32_t map_unloads;
    uint64_t doubtful_until_ns;
    uint64_t drained_ns;
    uint64_t first_ns; /* of sampling */
    uint64_t ticks;    /* of all that it has sent */
    bool has_own_tids; /* its threads have other numbers in its own pid namespace */
    bool has_filter;   /* a seccomp filter, as far as was looked */
    uint64_t filter_read_ns;
};

struct helped {
    const struct options *options; /* borrowed, like these */
    struct flights *flights;
    struct sampling *sampling;
    struct pipeline *pipeline;
    struct targets *targets;

    struct helped_process *processes; /* owned */
    size_t process_count;
    struct helpedparts parts;
    unsigned cpu_count;
    unsigned own_filters; /* of seccomp, of ourselves */
    uint64_t now_ns;
    size_t first_asks; /* of this tick */
};

/* After they were added to the targets. 0 or -ENOMEM. */
int helped_init(struct helped *helped, const struct capture_target *targets, size_t count);
void helped_deinit(struct helped *helped);

/* A tick begins: what was recorded since the last one becomes items. */
void helped_begin_tick(struct helped *helped, uint64_t now_ns);

/* The thread, or the process, is about to be forgotten: what is there of it is taken before. */
void helped_end_thread(struct helped *helped, struct thread *thread);
void helped_end_process(struct helped *helped, struct process *process);

/* Threads that were seen get their timers; in wall mode the chosen ones get their signals. */
void helped_take(struct helped *helped, const struct choice *choices, size_t count);

/* Sampling ends: helpers withdraw, and what they have recorded is taken. */
void helped_finish(struct helped *helped);

/* CPU time of threads that were never seen, as far as it was sampled. */
void helped_account(const struct helped *helped, struct account *account);

/* A process that has lost its helper by exec, and why there is no other; NULL: none. Valid until helped_deinit. */
const char *helped_why_missing(const struct helped *helped);

/* Of all. */
struct helper_counters helped_counters(const struct helped *helped);

#endif
