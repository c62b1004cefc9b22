/*
 * One window of a comparison: an engine at work on the target, or none, and what came of it. The engine is a program of
 * its own: this sampler once more, or perf.
 */
#ifndef SAMPLER_COMPAREWINDOW_H
#define SAMPLER_COMPAREWINDOW_H

#include "sampler/comparestats.h"
#include "sampler/options.h"
#include "sampler/signals.h"
#include "sampler/stackcounts.h"

#include <signal.h>
#include <stdbool.h>

enum comparekind { COMPARE_OUTSIDE, COMPARE_INSIDE, COMPARE_PERF, COMPARE_NOTHING, COMPARE_KINDS };

/* "outside", "inside", "perf", "nothing" */
const char *comparekind_name(enum comparekind kind);

struct comparewindow {
    enum comparekind kind;
    double seconds;        /* over which the target was measured; NAN when it was not to the end */
    double work;           /* per second, as --work counts it; NAN */
    double calls;          /* reads and writes per second; NAN */
    double target_cpu;     /* CPUs that the target was on, in the mean; NAN */
    double sampler_cpu_ns; /* of the engine's processes; NAN without one */
    char *refusal;         /* why there is no profile, a line; NULL: there is one, or it is a window of nothing */
    struct comparestats stats;
    struct stackcounts stacks;
};

/* What all windows share; borrowed but for what is said. */
struct comparerun {
    const struct options *options;
    struct signals *signals;
    sigset_t mask; /* the one that we began with, for those that we start */
    pid_t pid;
    int pid_fd;
    int proc_fd;
    pid_t launched; /* the program that signals are passed on to; 0: none */
    uint64_t window_ns;
    const char *directory; /* for files of the windows */
    struct strings stacks;
    bool interrupted; /* a signal has ended it */
    bool target_ended;
    unsigned work_failures; /* --work gave no number so often */
    int work_error;
};

/*
 * Runs a window. Returns 0 or a negative errno for trouble of our own; that an engine was refused is in *ret_window,
 * which comparewindow_deinit frees after 0.
 */
int comparewindow_run(struct comparerun *run, enum comparekind kind, struct comparewindow *ret_window);
void comparewindow_deinit(struct comparewindow *window);

/* A window of that kind that has something to tell. */
static inline bool comparewindow_has_result(const struct comparewindow *window, enum comparekind kind)
{
    return window->kind == kind && !window->refusal;
}

/* Takes the signals that came: passes them on, notes that the run is to end. */
void comparerun_take_signals(struct comparerun *run);

#endif
