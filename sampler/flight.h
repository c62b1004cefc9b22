/*
 * Samples in the making: from the choice of a thread to the item that goes to the unwinder. Each is in flight from the
 * moment in which its thread was asked to stop until the tracer says how that ended. The capture thread's.
 */
#ifndef SAMPLER_FLIGHT_H
#define SAMPLER_FLIGHT_H

#include "sampler/mapper.h"
#include "sampler/pipeline.h"
#include "sampler/stoplog.h"
#include "sampler/targets.h"
#include "sampler/tracer.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A sample in the making: its thread was asked to stop. */
struct flight {
    struct tracer_request request; /* first: a request is its flight */
    struct item *item;
    struct thread *thread; /* NULL: it is gone from the targets */
};

struct flights {
    struct tracer *tracer;     /* borrowed */
    struct pipeline *pipeline; /* borrowed */
    struct mapper *mapper;     /* borrowed */
    struct stoplog *stoplog;   /* borrowed; NULL: none */
    bool is_wall;
    uint64_t period_ns;
    uint64_t now_ns;                 /* of the tick in work; set by the owner */
    struct flight all[TRACER_SLOTS]; /* free: item is NULL */

    pid_t refused_pid; /* the first process that could not be stopped for lack of rights; 0: none */
    pid_t foreign_pid; /* the first that runs 32-bit code; 0: none */
    int error;         /* a sample was lost: a negative errno */
};

/* Has the tracer tell us of finished requests. Before the first start. */
void flights_attach(struct flights *flights);

/* Asks the thread to stop; its process has a space and a map. The sample comes when it does. */
void flights_start(struct flights *flights, struct thread *thread);

/* The same, but the thread is only seized: the tracer is yet to interrupt it. false: it was not. */
bool flights_seize(struct flights *flights, struct thread *thread);

/*
 * Takes the sample of a thread that does not run, without stopping it: where it sleeps is told by the kernel, its stack
 * is read, and its run time is the same before and after. A stack that needs registers which only a stop tells gets
 * those of its last stop, if that was in the same place. false: it runs, or has to be stopped for its registers and
 * `can_stop`; nothing was taken then. Its process has a space and a map.
 */
bool flights_read(struct flights *flights, struct thread *thread, bool can_stop);

/*
 * A later tick finds the thread still in flight. It has executed nothing since it was asked, so its stack is that of
 * this tick too.
 */
void flights_count_again(struct flights *flights, struct thread *thread);

/* A sample without a stack. */
void flights_fail(struct flights *flights, struct thread *thread, enum failure failure);

/* The thread is freed while its stop is still to come. */
void flights_forget(struct flights *flights, const struct thread *thread);

/* The process leaves its space: the unwinder is told when nothing of it is in flight any more. */
void flights_end_space(struct flights *flights, struct process *process);

#endif
