/*
 * `sampler compare`: the same target sampled from outside, from inside (--helper) and by perf, and left alone, in short
 * windows in turn; one table of what each saw and cost. It samples nothing itself: each window is a program that it
 * starts (comparewindow.h).
 */
#ifndef SAMPLER_COMPARE_H
#define SAMPLER_COMPARE_H

#include "sampler/options.h"

/* Does the whole job, and tells the user of trouble on standard error. Returns the exit status. */
int compare_run(const struct options *options);

#endif
