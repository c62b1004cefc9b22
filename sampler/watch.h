/*
 * What the targets did since the last look: new threads, forked children, new code in their memory. One interface,
 * whatever the source.
 *
 * /proc is the source that is always there. A cheap counter says whether there is anything to look for: the newest pid
 * of our pid namespace (last field of /proc/loadavg) moves with each new thread or process on the machine. A few new
 * numbers are asked one by one whose they are; many, or a counter that cannot be trusted, make a full scan of task/ and
 * children. Once a second there is a full scan all the same, to repair what slipped through.
 *
 * Where the kernel allows it, perf's records tell (sideband.h): nothing is polled or asked then, children are found
 * though their parents have ended at once, and mappings are told. Records that got lost make a full scan; without loss
 * there is one every ten seconds (CPUs that came later), with events of single threads every second (set-uid programs
 * lose theirs).
 *
 * Threads that end are noticed by whoever reads their counters, an exec by space.h.
 */
#ifndef SAMPLER_WATCH_H
#define SAMPLER_WATCH_H

#include "common/rng.h"
#include "sampler/options.h"
#include "sampler/sideband.h"
#include "sampler/targets.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum watch_source { WATCH_UNKNOWN, WATCH_PROC, WATCH_PERF, WATCH_PERF_THREADS };

struct watch_counters {
    enum watch_source source;
    uint64_t lost;    /* records that the kernel could not write, as far as it said */
    uint64_t repairs; /* full scans for missing records */
};

struct watch {
    struct sideband *sideband; /* owned; NULL: /proc alone */
    struct sideband_batch batch;
    bool is_blind; /* records do not tell of every process: /proc is looked at as if there were none */
    pid_t *kin;    /* owned; of the batch in work: new processes of the targets, also those that are gone again */
    size_t kin_count;
    size_t kin_capacity;
    struct watch_counters counters;
    int loadavg_fd; /* -1: no counter */
    pid_t last_pid;
    uint64_t scanned_ns;
    bool follow_children;
    int add_error; /* some thread could not be added though it may be there: a negative errno (-EMFILE), else 0 */
    struct rng rng;
};

/*
 * Opens the source that `events` wants: auto takes perf's records where they cost the targets next to nothing, those of
 * the whole machine. `launched`: a child that waits for its exec, or 0. Returns NULL when it is /proc, by choice or
 * because the rest is not allowed.
 */
struct sideband *watch_open_events(enum events events, bool follow_children, pid_t launched);

/* `sideband` is consumed; NULL: /proc alone. */
void watch_init(struct watch *watch, struct sideband *sideband, bool follow_children, uint64_t seed);
void watch_deinit(struct watch *watch);

/*
 * Begins with a process that the user named or launched: adds it, its threads and, when children are followed, its
 * descendants. `proc_fd` is consumed on success. `is_new`: it was launched by us just now. Returns 0, -ESRCH, or
 * another negative errno.
 */
int watch_add(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new);

/* Adds what is new. Cheap when nothing is. */
void watch_poll(struct watch *watch, struct targets *targets, uint64_t now_ns);

/* The part of watch_poll that needs no kernel's ring: does what the batch says. May sort it. */
void watch_obey(struct watch *watch, struct targets *targets, struct sideband_batch *batch);

/* So far. */
struct watch_counters watch_counters(const struct watch *watch);

#endif
