/*
 * The capture thread: at each tick it chooses the threads to sample, has the tracer stop and copy them, and hands the
 * snapshots on. It owns the targets and the tracer.
 */
#ifndef SAMPLER_CAPTURE_H
#define SAMPLER_CAPTURE_H

#include "sampler/account.h"
#include "sampler/attach.h"
#include "sampler/helperlink.h"
#include "sampler/images.h"
#include "sampler/options.h"
#include "sampler/othertracer.h"
#include "sampler/pipeline.h"
#include "sampler/sampling.h"
#include "sampler/stoplog.h"
#include "sampler/ticker.h"
#include "sampler/tracer.h"
#include "sampler/watch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Valid after capture_join. */
struct capture_result {
    struct ticker ticker;
    uint64_t wall_ns;
    struct account account;
    uint64_t threads_seen;
    uint64_t threads_vanished;
    uint64_t processes_seen;
    uint64_t execs;
    uint64_t sleeps;                 /* times that a thread was found asleep where it had run before (wall mode) */
    uint64_t stopped_asleep;         /* threads that did not run and were asked to stop all the same */
    struct histogram interrupted_ns; /* threads whose CPU was interrupted to read them, for how long */
    struct crowd live;               /* threads, tick by tick; of these, */
    struct crowd eligible;           /* those that ran and were to be sampled; */
    uint64_t left_out;               /* those that were not, for there were too many */
    double overhead;                 /* with --overhead, the share of one CPU that ticks took; else 0 */
    struct refusal refusal;          /* the first process that could not be read or stopped for lack of rights */
    pid_t foreign_pid;               /* the first that runs 32-bit code; 0: none */
    int look_error;                  /* some thread could not be looked at at some tick: a negative errno */
    int error;                       /* the thread gave up: a negative errno */
    struct othertracer other_tracer; /* the first that was met in a process */
    struct watch_counters events;
    struct helper_counters helper; /* with --helper */
};

struct capture_target {
    pid_t pid;
    int proc_fd;             /* consumed by capture_start on success */
    struct helperlink *link; /* borrowed; NULL: sampled from outside, as all are then */
};

struct capture;

/*
 * Starts the thread and the tracer. `targets` are the processes that the user named, or the one launched (`launched`).
 * `sideband` is consumed (watch.h).
 * `ended_fd` is an eventfd that is written when no process is left or the thread gave up. Returns 0 or a negative
 * errno.
 */
int capture_start(const struct options *options, struct pipeline *pipeline, struct images *images,
                  struct tracer *tracer, struct sideband *sideband, struct stoplog *stoplog,
                  const struct capture_target *targets, size_t target_count, bool launched, int ended_fd,
                  struct capture **ret_capture);

/*
 * Ends sampling, in three steps because the caller has to go on watching the tracer meanwhile: ask, wait until the done
 * descriptor (an eventfd, borrowed) is readable, join. Then no thread of the target is stopped or traced, and the last
 * counters were taken.
 */
void capture_ask_stop(struct capture *capture);
int capture_done_fd(const struct capture *capture);
void capture_join(struct capture *capture);

/*
 * A pause, for a sampler that is stopped itself (Ctrl-Z): ask, go on watching the tracer until the rest descriptor (an
 * eventfd, borrowed) is readable; from then until capture_resume nothing of the target is held. It is readable also
 * when the thread has ended.
 */
void capture_ask_pause(struct capture *capture);
int capture_rest_fd(const struct capture *capture);
void capture_resume(struct capture *capture);

/* For progress; any thread. */
uint64_t capture_threads_now(const struct capture *capture);
uint64_t capture_samples_now(const struct capture *capture);

/* With --helper, why a program that exec has made has none; NULL: all have. After capture_join. */
const char *capture_why_no_helper(const struct capture *capture);
const struct capture_result *capture_result(const struct capture *capture);            /* after capture_join */
struct space *const *capture_spaces(const struct capture *capture, size_t *ret_count); /* after capture_join */
void capture_free(struct capture *capture); /* spaces included: after pipeline_stop */

#endif
