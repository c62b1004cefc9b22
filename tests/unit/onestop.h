/* One request to a tracer of its own, on a thread of its own, which has no children; SIGCHLD is blocked in all threads.
 */
#ifndef TESTS_UNIT_ONESTOP_H
#define TESTS_UNIT_ONESTOP_H

#include "cmocka_all.h"

#include "common/clock.h"
#include "sampler/tracer.h"

#include <pthread.h>
#include <signal.h>

struct onestop {
    struct tracer_request *request;
    struct tracer_counters counters; /* afterwards */
};

static inline void onestop_note_exit(void *context, pid_t pid, const struct wait_event *event)
{
    (void)context;
    (void)pid;
    (void)event;
}

static inline void onestop_note_finished(void *context, struct tracer_request *request)
{
    (void)context;
    (void)request;
}

/* A thread that comes late on a busy machine is asked again. */
static inline void *onestop_own(void *argument)
{
    struct onestop *stop = argument;
    struct tracer_request *request = stop->request;
    struct tracer *tracer = NULL;
    request->error = tracer_new(onestop_note_exit, NULL, &tracer);
    if (request->error)
        return NULL;
    tracer_set_sink(tracer, onestop_note_finished, NULL);
    do {
        request->error = tracer_start(tracer, request);
        while (tracer_in_flight(tracer) > 0)
            tracer_wait(tracer, -1, clock_now_ns() + NS_PER_SEC, true);
        tracer_release(tracer, 60 * NS_PER_SEC);
    } while (request->error == 0 && request->outcome == TRACER_TIMEOUT);
    stop->counters = *tracer_counters(tracer);
    tracer_free(tracer);
    return NULL;
}

/* Returns when the thread was let go again, with its snapshot. */
static inline struct tracer_counters onestop_run(struct tracer_request *request)
{
    struct onestop stop = {.request = request};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, onestop_own, &stop), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(request->error, 0);
    assert_int_equal(request->outcome, TRACER_CAPTURED);
    return stop.counters;
}

/* A stop's SIGCHLD is the tracer's to take. Before the first thread. */
static inline void onestop_block_sigchld(void)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
}

#endif
