/*
 * What the parts of flight.h share: stops (flight.c), samples of threads that are not stopped (unstopped.c), and what
 * samples count (flightcounts.c). Nobody else's.
 */
#ifndef SAMPLER_FLIGHTPARTS_H
#define SAMPLER_FLIGHTPARTS_H

#include "sampler/flight.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * An empty item; NULL: no memory, which is noted. When all are in work threads that have arrived must not wait for one,
 * so the tracer goes on meanwhile.
 */
struct item *flights_take_item(struct flights *flights, size_t buffer_bytes);

/* An item for a sample of the thread at this tick, which is counted for it. NULL as above. */
struct item *flights_new_sample(struct flights *flights, struct thread *thread, size_t buffer_bytes);

/* Gives the sample up as failed, or as none (FAILURE_NONE: its thread has ended, there is nothing to tell). */
void flights_drop_sample(struct flights *flights, struct thread *thread, struct item *item, enum failure failure);

/* The thread's last sample stands until it runs. */
void flights_keep(struct flights *flights, struct thread *thread);

/*
 * In cpu mode: it ran when it was looked at, and had gone to sleep when it was read. Where it sleeps is not where it
 * ran, so its next sample counts for that: so much, or this tick.
 */
void flights_owe(struct thread *thread, uint64_t ticks, uint64_t ns);
void flights_owe_tick(struct flights *flights, struct thread *thread);

/*
 * The stack from its pointer to the frame that rbp points to, return address included, as one number: what lies between
 * a system call and the first frame for which rbp is needed. 0: it is not in the copy, or unlikely far.
 */
uint64_t flights_hash_inner_frames(const struct memory_range *stack, const struct registers *registers);

/*
 * Does it sleep ever since a stop, but for the moment in which its system call was started again? A later call may look
 * the same, but it has been on a CPU once more to leave the first.
 */
bool flights_may_be_in_restarted_call(const struct thread *thread);

#endif
