/*
 * Where the capture thread runs. Only threads of the sampler are moved, and only among the CPUs that the sampler was
 * given (taskset, cpusets).
 */
#ifndef SAMPLER_PINNING_H
#define SAMPLER_PINNING_H

#include <stdbool.h>

/* As in options: the capture thread stays where the scheduler puts it, and looks for arrivals all the time or sleeps
 * until they come. Numbers from 0 are a CPU to stay on. */
enum { PIN_AUTO = -2, PIN_OFF = -1 };

/* Whether the calling thread may run on that CPU. */
bool pinning_may_use(int cpu);

/* For the calling thread, the capture thread; `how`: one of these or a CPU. Returns 0 or a negative errno. */
int pinning_apply(int how);

#endif
