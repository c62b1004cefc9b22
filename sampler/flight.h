/*
 * Samples in the making: from the choice of a thread to the item that goes to the unwinder. Each is in flight from the
 * moment in which its thread was asked to stop until the tracer says how that ended. The capture thread's.
 */
#ifndef SAMPLER_FLIGHT_H
#define SAMPLER_FLIGHT_H

#include "common/histogram.h"
#include "common/rng.h"
#include "sampler/attach.h"
#include "sampler/kernelview.h"
#include "sampler/mapper.h"
#include "sampler/othertracer.h"
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
    struct tracer *tracer;         /* borrowed */
    struct pipeline *pipeline;     /* borrowed */
    struct mapper *mapper;         /* borrowed */
    const struct targets *targets; /* borrowed; for the ticks */
    struct stoplog *stoplog;       /* borrowed; NULL: none */
    bool is_wall;
    bool may_bpf;                    /* registers of sleeping threads by BPF are wanted, and were not refused */
    struct bpfregs *bpfregs;         /* owned; NULL before the first need */
    struct flight all[TRACER_SLOTS]; /* free: item is NULL */

    struct histogram interrupted_ns; /* threads whose CPU was interrupted to read them */
    struct refusal refusal;          /* the first process that could not be stopped for lack of rights */
    pid_t foreign_pid;               /* the first that runs 32-bit code; 0: none */
    int error;                       /* a sample was lost: a negative errno */
    /* Of this tick: threads that were to be stopped, and how many of them were left out (--max-stops). */
    uint64_t eligible;
    uint64_t left_out;
    struct rng rng;
    uint64_t samples;                /* made so far, without the repetitions of kept ones */
    uint64_t kept;                   /* threads whose last sample is kept, */
    uint64_t kept_from;              /* and the sum of the ticks of those */
    struct othertracer other_tracer; /* the first that was met */
};

void flights_deinit(struct flights *flights);

/* Has the tracer tell us of finished requests. Before the first start. */
void flights_attach(struct flights *flights);

/* Asks the thread to stop; its process has a space and a map. The sample comes when it does. */
void flights_start(struct flights *flights, struct thread *thread);

/*
 * Takes the sample of a thread that does not run, without stopping it: where it sleeps is told by the kernel, its stack
 * is read, and its run time is the same before and after. A stack that needs registers which only a stop tells gets
 * those of its last stop, if that was in the same place. false: it runs, or has to be stopped for its registers and
 * `can_stop`; nothing was taken then. Its process has a space and a map. Else the sample is kept: until the thread runs
 * it needs no other.
 */
bool flights_read(struct flights *flights, struct thread *thread, bool can_stop);

/*
 * Takes the sample of a thread of which the kernel has told the registers, without stopping it; the stack too, or it is
 * read now. It sleeps, or waits for a CPU. false: it cannot be taken so, or has run meanwhile; nothing was taken.
 * `keeps` it as above, if it has not run since the look.
 */
bool flights_take_told(struct flights *flights, struct thread *thread, const struct told *told, bool keeps);

/*
 * The thread, whose last sample was kept, has run or is gone: the ticks since then, up to this one or the one before,
 * are added. Does nothing for others. The item is in the queue before the thread's next one.
 */
void flights_end_keep(struct flights *flights, struct thread *thread, bool with_this_tick);

/* The thread is gone: as above, and ticks at which it was left out go to its last sample. */
void flights_end_thread(struct flights *flights, struct thread *thread, bool with_this_tick);

/*
 * True for a thread that sleeps in a call which a stop would start again, with its whole timeout, though one has done
 * so already.
 */
bool flights_must_not_stop(struct thread *thread);

/*
 * A later tick finds the thread still in flight. It has executed nothing since it was asked, so its stack is that of
 * this tick too.
 */
void flights_count_again(struct flights *flights, struct thread *thread);

/* A sample without a stack. */
void flights_fail(struct flights *flights, struct thread *thread, enum failure failure);

/* The thread is freed while its stop is still to come. */
void flights_forget(struct flights *flights, const struct thread *thread);

/* Made so far, all repetitions included. */
uint64_t flights_samples(const struct flights *flights);

/* The process leaves its space: the unwinder is told when nothing of it is in flight any more. */
void flights_end_space(struct flights *flights, struct process *process);

#endif
