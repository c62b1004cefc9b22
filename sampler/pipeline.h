/*
 * From capture to profile: snapshots go through a bounded queue to a thread that unwinds them and adds the stacks to
 * the profile.
 *
 * The capture thread takes an empty item, fills it and puts it; when all are in work it has to wait, so that memory is
 * bounded and a slow unwinder shows as missed ticks, not as lost samples.
 */
#ifndef SAMPLER_PIPELINE_H
#define SAMPLER_PIPELINE_H

#include "profile/profile.h"
#include "sampler/digest.h"
#include "sampler/item.h"
#include "sampler/options.h"

#include <stdint.h>

struct pipeline;
struct snapfile;

/* `profile` and `snapfile` (where items are saved; NULL: nowhere) are the unwinding thread's until pipeline_stop.
 * Returns 0 or a negative errno. */
int pipeline_start(const struct options *options, struct profile *profile, struct snapfile *snapfile,
                   struct pipeline **ret_pipeline);

/* An empty item whose buffer has `buffer_bytes`, or fewer when buffers have reached their limit. Returns 0, -EAGAIN
 * when all are in work, or -ENOMEM. */
int pipeline_take(struct pipeline *pipeline, size_t buffer_bytes, struct item **ret_item);
/*
 * To the unwinder, which is woken at pipeline_end_tick: at once for an urgent item or while it learns from what it gets
 * (the next samples will be better for it), else when there is more to do. To wake it for each tick would cost more
 * than its work.
 */
void pipeline_put(struct pipeline *pipeline, struct item *item);
void pipeline_end_tick(struct pipeline *pipeline, uint64_t now_ns);
void pipeline_give_back(struct pipeline *pipeline, struct item *item); /* unused after all */

/* Unwinds what is queued, ends the thread. Returns 0, or the first error that lost a sample (-ENOMEM). */
int pipeline_stop(struct pipeline *pipeline);
const struct digest_counters *pipeline_counters(const struct pipeline *pipeline); /* after pipeline_stop */
void pipeline_free(struct pipeline *pipeline);

#endif
