/*
 * Where the capture thread runs. A thread that runs is stopped soonest, and costs its program least, from its own CPU:
 * to stop it is to take its CPU, the change from one to the other needs no interrupt between CPUs, and nobody else on
 * another CPU can be in the way while it stands still. But all else that the capture thread does there is taken from
 * the target too. So it goes there for the stop alone, and leaves at once.
 *
 * Who sets its own affinity is moved by a kernel thread of the CPU that it leaves, at that CPU's cost; who is asleep is
 * just woken elsewhere. So a thread of ours, the mover, changes the affinity of the capture thread while that waits.
 *
 * Only threads of the sampler are moved, and only among the CPUs that the sampler was given (taskset, cpusets).
 */
#ifndef SAMPLER_PINNING_H
#define SAMPLER_PINNING_H

#include <stdbool.h>

/* As in options: the capture thread goes to the target's CPU for a stop; or stays where the scheduler puts it, and
 * looks for arrivals all the time or sleeps until they come. Numbers from 0 are a CPU to stay on. */
enum { PIN_TARGET = -3, PIN_AUTO = -2, PIN_OFF = -1 };

struct pinning;

/* Whether this process may run on that CPU. */
bool pinning_may_use(int cpu);

/*
 * For the calling thread, the capture thread. `how`: one of these or a CPU. With PIN_TARGET the mover is started; if
 * there is but one CPU for us, nothing is ever moved. Returns 0 or a negative errno.
 */
int pinning_new(int how, struct pinning **ret_pinning);

/* Ends the mover. NULL is fine. */
void pinning_free(struct pinning *pinning);

/* Whether pinning_enter may be tried for that CPU. */
bool pinning_can_enter(const struct pinning *pinning, int cpu);

/* Moves the calling thread onto the CPU: what it does now is taken from whoever runs there. false: it stays where it
 * is, and never tries this again. */
bool pinning_enter(struct pinning *pinning, int cpu);

/* After pinning_enter, even if it gave false: moves the calling thread to the other CPUs. */
void pinning_leave(struct pinning *pinning);

#endif
