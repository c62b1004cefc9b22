/*
 * What the targets did since the last look: new threads, forked children. One interface, whatever the source; today the
 * source is /proc.
 *
 * A cheap counter says whether there is anything to look for: the newest pid of our pid namespace (last field of
 * /proc/loadavg) moves with each new thread or process on the machine. A few new numbers are asked one by one whose
 * they are; many, or a counter that cannot be trusted, make a full scan of task/ and children. Once a second there is a
 * full scan all the same, to repair what slipped through. Threads that end are noticed by whoever reads their counters,
 * an exec by space.h.
 */
#ifndef SAMPLER_WATCH_H
#define SAMPLER_WATCH_H

#include "common/rng.h"
#include "sampler/targets.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct watch {
    int loadavg_fd; /* -1: no counter */
    pid_t last_pid;
    uint64_t scanned_ns;
    bool follow_children;
    int add_error; /* some thread could not be added though it may be there: a negative errno (-EMFILE), else 0 */
    struct rng rng;
};

void watch_init(struct watch *watch, bool follow_children, uint64_t seed);
void watch_deinit(struct watch *watch);

/*
 * Begins with a process that the user named or launched: adds it, its threads and, when children are followed, its
 * descendants. `proc_fd` is consumed on success. `is_new`: it was launched by us just now. Returns 0, -ESRCH, or
 * another negative errno.
 */
int watch_add(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new);

/* Adds what is new. Cheap when nothing is. */
void watch_poll(struct watch *watch, struct targets *targets, uint64_t now_ns);

#endif
