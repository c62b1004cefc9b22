/*
 * One run of the main job, from open files to exit status: launch or attach, sample, name, write, and tell.
 * The main thread's work; it never calls ptrace (see tracer.h).
 */
#ifndef SAMPLER_SESSION_H
#define SAMPLER_SESSION_H

#include "sampler/options.h"

/* Does everything, errors told on standard error included. Returns the exit status. */
int session_run(const struct options *options);

#endif
