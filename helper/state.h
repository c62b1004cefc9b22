/*
 * What the helper has in its process besides the shared memory: whether there is one, and who is using it just now.
 *
 * Handlers and hooks of threads enter before they touch the shared memory and leave afterwards. Who withdraws takes the
 * memory away from those to come, and the last one of those that are in unmaps it. All of it is in a page that a forked
 * child finds empty, however it was forked: the memory is its parent's. All async-signal-safe.
 */
#ifndef HELPER_STATE_H
#define HELPER_STATE_H

#include "helper/layout.h"

#include <signal.h>
#include <stdbool.h>
#include <x86intrin.h>

/* Before anything else of this. 0 or a negative errno. */
int state_init(void);

/* The shared memory, for use until state_leave. NULL: there is none now; to be left all the same. */
struct helper_shared *state_enter(void);
void state_leave(void);

/* Is anybody in? */
bool state_is_used(void);

/* The memory is there from now on. false: there is some already, or somebody still uses the last one. */
bool state_set(struct helper_shared *shared);

/* Nobody gets it any more. The caller has entered, and it is there until it leaves. NULL: another one was faster. */
struct helper_shared *state_take(void);

/*
 * Around fork: before it, and in the child, where the memory can be unmapped if nobody was using it. (Who forks in a
 * handler that has interrupted ours goes on with ours in the child, too.)
 */
void state_before_fork(void);
void state_in_child(void);

/* Is that signal one that this helper has asked for, now or in an earlier turn? */
bool state_knows(const siginfo_t *info);

/* The time stamp counter; 0 where reading it is forbidden. */
static inline uint64_t state_tsc(const struct helper_shared *shared)
{
    bool is_forbidden = atomic_load_explicit(&shared->settings.limits, memory_order_relaxed) & HELPER_NO_TSC;
    return is_forbidden ? 0 : __rdtsc();
}

#endif
