/*
 * The samples of a tick's chosen threads: those that sleep are read, those that run are stopped, in the order in which
 * each stands still for the shortest time. The capture thread's.
 */
#ifndef SAMPLER_SAMPLING_H
#define SAMPLER_SAMPLING_H

#include "sampler/attach.h"
#include "sampler/flight.h"
#include "sampler/kernelview.h"
#include "sampler/looks.h"
#include "sampler/mapper.h"
#include "sampler/options.h"
#include "sampler/tracer.h"

#include <stddef.h>
#include <stdint.h>

/* How many there were, at all ticks together, and at the one with most. */
struct crowd {
    uint64_t sum;
    uint64_t most;
};

struct sampling {
    const struct options *options; /* borrowed, like all of these */
    struct mapper *mapper;
    struct flights *flights;
    struct tracer *tracer;
    struct kernelview *view;

    uint64_t now_ns;         /* of the tick in work */
    uint64_t execs;          /* processes found in another image than before */
    uint64_t stopped_asleep; /* threads that did not run and were asked to stop all the same */
    struct crowd live;       /* threads that were known */
    struct crowd eligible;   /* of these, runnable ones that were to be sampled, */
    uint64_t left_out;       /* and were not, for there were more than --max-stops */
    struct refusal refusal;  /* the first process that could not be read for lack of rights */
};

/*
 * First everything that takes time, with nothing stopped: maps are brought up to date, and who sleeps is read. Then the
 * stops. Those that are on another CPU than we arrive within microseconds, and are waited for; those that wait for ours
 * arrive when we sleep: they are only asked here. `choices` is put in another order.
 */
void sampling_take(struct sampling *sampling, struct choice *choices, size_t count, uint64_t now_ns);

/*
 * Makes space and map of the thread's process those of now; `image_hash` is what its stat says. Returns why there are
 * none, or FAILURE_NONE.
 */
enum failure sampling_refresh(struct sampling *sampling, const struct thread *thread, uint64_t image_hash,
                              uint64_t now_ns);

#endif
