/*
 * The files that a command leaves: the profile and the counters. Opened before anything else is done, written at the
 * end, there whole or not at all.
 */
#ifndef SAMPLER_RESULTS_H
#define SAMPLER_RESULTS_H

#include "common/strbuf.h"
#include "output/sink.h"
#include "profile/profile.h"
#include "sampler/options.h"
#include "sampler/outfile.h"
#include "sampler/stats.h"

#include <signal.h>

enum {
    STATUS_TROUBLE = 1,
    STATUS_BROKEN_PIPE = 128 + SIGPIPE,
};

struct results {
    const struct options *options; /* borrowed */
    struct outfile output;
    struct outfile stats_file; /* fd -1: none was asked for */
};

/* Returns 0 or a negative errno, and in *ret_name what could not be opened ("standard output"). */
int results_open(struct results *results, const struct options *options, const char **ret_name);

/* Forgets what was not written. Fine after a failed results_open. */
void results_deinit(struct results *results);

/* Writes the named profile through `sink`, whose fd is set here. Returns 0 or a negative errno: -EPIPE, -ECANCELED. */
int results_write_profile(struct results *results, const struct profile *profile, struct sink *sink);

/* Writes the counters, if asked for. Returns 0 or a negative errno. */
int results_write_stats(struct results *results, const struct stats *stats);

/* The exit status of a profile that was lost by `error`, and the line that says so, if one is to be said. */
int results_explain(const struct results *results, int error, struct strbuf *ret_line);

#endif
