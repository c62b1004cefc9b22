/*
 * The threads' slots and timers. By default each thread has a timer on its own CPU clock whose signal goes to that very
 * thread (SIGEV_THREAD_ID): a signal a process can have only one of would be lost while several threads run, and which
 * thread gets it is up to the kernel. Its first tick is at a random moment of the first period, so that short threads
 * get their share on average.
 *
 * The kernel looks at CPU clocks at its own ticks (CONFIG_HZ) only: with a shorter period signals come bundled, and say
 * how many ticks they stand for. Async-signal-safe.
 */
#ifndef HELPER_TIMERS_H
#define HELPER_TIMERS_H

#include "helper/layout.h"

#include <stdbool.h>

/* The slot of a thread of this process, made if there is none. HELPER_SLOTS: all that it may have are taken. */
uint32_t timers_slot(struct helper_shared *shared, int32_t tid);

/* Its thread has our signal blocked: no timer now. */
void timers_note_blocked(struct helper_shared *shared, uint32_t slot);

/* Makes the slot's timer, if it wants one and another is not at it. */
void timers_arm(struct helper_shared *shared, uint32_t slot);

/* Does what is to be done for all slots that were moved by the sampler: makes and deletes timers. */
void timers_obey(struct helper_shared *shared);

/* The calling thread ends: its timer goes; its last ticks, for which no signal will come, are recorded. */
void timers_end_thread(struct helper_shared *shared, uint32_t slot);

/* All slots of the process's threads, and their timers. Not in a handler. 0 or a negative errno. */
int timers_arm_all(struct helper_shared *shared);

/*
 * The process's own timer: the only one, if it is of that kind; where nothing else ticks, one each second of CPU time,
 * so that somebody looks whether the sampler is still there. 0 or a negative errno.
 */
int timers_arm_process(struct helper_shared *shared);

/* Does that thread have our signal blocked? It would only pile up, or go to who waits for signals. Not in a handler. */
bool timers_is_blocked(const struct helper_shared *shared, int32_t tid);

/* Deletes all. */
void timers_delete_all(struct helper_shared *shared);

#endif
