/* How far the windows of an engine are from those of another, as the table of a comparison tells it. */
#ifndef SAMPLER_COMPAREDISTANCE_H
#define SAMPLER_COMPAREDISTANCE_H

#include "sampler/comparesummary.h"

/*
 * Adds a pair to the summary: outside and `kind`, where both have windows. perf's stacks are compared as it tells them,
 * and its shares of the hottest stacks are noted. Returns 0 or -ENOMEM.
 */
int comparedistance_add(struct comparesummary *summary, const struct comparerun *run,
                        const struct comparewindow *windows, size_t count, enum comparekind kind);

#endif
