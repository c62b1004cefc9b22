/* The run in numbers: the closing summary and the JSON of --stats. The field names are documented in docs/CLI.md. */
#ifndef SAMPLER_STATS_H
#define SAMPLER_STATS_H

#include "common/strbuf.h"
#include "sampler/capture.h"
#include "sampler/options.h"
#include "sampler/pipeline.h"
#include "sampler/tracer.h"

#include <stdint.h>

struct stats {
    const struct options *options;
    const struct capture_result *capture;
    const struct digest_counters *pipeline;
    const struct tracer_counters *tracer;
    uint64_t symbol_ns; /* CPU time for names */
};

uint64_t stats_failed(const struct stats *stats);
uint64_t stats_truncated(const struct stats *stats);

void stats_json(const struct stats *stats, struct strbuf *ret_text);    /* one object and a newline */
void stats_summary(const struct stats *stats, struct strbuf *ret_text); /* one or two lines, each with its newline */

#endif
