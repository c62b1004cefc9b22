/*
 * One look at the threads of all targets, at each tick: which of them ran, sleep or are gone, and which are to be
 * sampled. Cheap where nothing happened: cold threads (gate.h) are not looked at one by one. The capture thread's.
 */
#ifndef SAMPLER_LOOKS_H
#define SAMPLER_LOOKS_H

#include "sampler/account.h"
#include "sampler/flight.h"
#include "sampler/kernelview.h"
#include "sampler/options.h"
#include "sampler/targets.h"
#include "sampler/tracer.h"

#include <stddef.h>
#include <stdint.h>

struct helped;

/* A thread that this tick is to sample. */
struct choice {
    struct thread *thread;
    struct procfs_stat stat;
};

struct looks {
    const struct options *options; /* borrowed, like all of these */
    struct targets *targets;
    struct flights *flights;
    struct tracer *tracer;
    struct kernelview *view;
    struct account *account; /* gets the time of threads and processes that are gone */

    struct helped *helped;  /* borrowed; NULL: sampling from outside. Is told who is about to be forgotten */
    uint64_t now_ns;        /* of the tick in work */
    struct choice *choices; /* owned; of the tick in work */
    size_t choice_count;
    size_t choice_capacity;
    int loadavg_fd;         /* owned; -1: none */
    uint64_t running;       /* threads of the machine that run or wait, when the tick began; UINT64_MAX: not known */
    uint64_t running_known; /* of these, those that this tick has seen so */
    uint64_t sleeps;        /* of threads, found at their first look in it (wall mode) */
    int look_error;         /* some thread could not be looked at: a negative errno */
    int error;              /* no memory: some threads were not chosen */
};

void looks_init(struct looks *looks); /* the borrowed fields are set */
void looks_deinit(struct looks *looks);

/*
 * Looks at all threads that may have run. Those to sample are in `choices` then, until the next call; those still in
 * flight are counted once more; those that are gone have been accounted for and removed. Handles arrivals of the
 * tracer meanwhile.
 */
void looks_take(struct looks *looks, uint64_t now_ns);

/* Accounts for and removes one process, or all that have ended. */
void looks_end_process(struct looks *looks, struct process *process);
void looks_end_processes(struct looks *looks);

#endif
