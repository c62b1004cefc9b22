/*
 * What the helper has in its process besides the shared memory: whether there is one, and who is using it just now.
 *
 * Handlers and hooks of threads enter before they touch the shared memory and leave afterwards. Who withdraws takes the
 * memory away from those to come, and the last one of those that are in unmaps it. All async-signal-safe.
 */
#ifndef HELPER_STATE_H
#define HELPER_STATE_H

#include "helper/layout.h"

#include <stdbool.h>
#include <x86intrin.h>

/* The shared memory, for use until state_leave. NULL: there is none now; to be left all the same. */
struct helper_shared *state_enter(void);
void state_leave(void);

/* The memory is there from now on. false: there is some already, or somebody still uses the last one. */
bool state_set(struct helper_shared *shared);

/* Nobody gets it any more. The caller has entered. NULL: another one was faster. */
struct helper_shared *state_take(void);

/* The time stamp counter; 0 where reading it is forbidden. */
static inline uint64_t state_tsc(const struct helper_shared *shared)
{
    bool is_forbidden = atomic_load_explicit(&shared->settings.limits, memory_order_relaxed) & HELPER_NO_TSC;
    return is_forbidden ? 0 : __rdtsc();
}

/* In a forked child, which has one thread: it is the parent's. */
void state_forget(void);

#endif
