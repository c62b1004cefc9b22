/*
 * Another tracer (a debugger, strace) may take a process while we sample it. Then we stay out of all its threads: a
 * stop of ours in one that the other has not reached yet would make its attach fail. What needs no stop goes on.
 *
 * It is looked for only where a sign of it shows: a refused PTRACE_SEIZE, or a thread in a tracing stop that is not
 * ours. Whether it is gone again is looked for every OTHERTRACER_LOOK_NS. On the capture thread, which is our tracer.
 */
#ifndef SAMPLER_OTHERTRACER_H
#define SAMPLER_OTHERTRACER_H

#include "common/clock.h"
#include "sampler/targets.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define OTHERTRACER_LOOK_NS (100 * NS_PER_MS)

/* The first one that was met in a run, to be told. */
struct othertracer {
    pid_t target_pid;             /* 0: none was met */
    pid_t pid;                    /* as TracerPid says; 0: it was gone again, or is in a pid namespace above ours */
    char comm[PROCFS_COMM_BYTES]; /* empty: not known */
};

/* A thread shows a sign of another tracer. `was_refused`: PTRACE_SEIZE of it gave EPERM though we have the right.
 * *first is filled in once. */
void othertracer_note(struct othertracer *first, const struct thread *thread, bool was_refused, uint64_t now_ns);

/* Whether another tracer has the process, as far as was noted: no thread of it is to be stopped. */
bool othertracer_holds(struct process *process, uint64_t now_ns);

#endif
