/*
 * Writes a snapshot file (snapformat.h): everything that unwinding and naming need, as the run goes on.
 *
 * The unwinding thread's until pipeline_stop, then the main thread's. The first error ends the saving and is told by
 * snapfile_finish; the run goes on as without. Items of at most a second are lost when the sampler is killed.
 */
#ifndef SAMPLER_SNAPFILE_H
#define SAMPLER_SNAPFILE_H

#include "sampler/capture.h"
#include "sampler/images.h"
#include "sampler/item.h"
#include "sampler/options.h"
#include "sampler/tracer.h"

#include <stddef.h>

struct snapfile;

/* `fd` and `images` are borrowed. Returns 0 or -ENOMEM. */
int snapfile_new(int fd, const struct options *options, const struct images *images, struct snapfile **ret_file);
void snapfile_free(struct snapfile *file);

/* A reader that asks `inner` and saves the answers as the space's. Both are borrowed until the next call of it. */
struct memory_reader snapfile_reader(struct snapfile *file, const struct space *space,
                                     const struct memory_reader *inner);

/* The item, after it was unwound (so that the code bytes that this took stand before it). `failure`: as it was before.
 */
void snapfile_add(struct snapfile *file, const struct item *item, enum failure failure);
void snapfile_repeat(struct snapfile *file, const struct item *item); /* an ITEM_REPEAT */
void snapfile_end_space(struct snapfile *file, const struct space *space);

/* What is known at the end only. */
struct snapfile_totals {
    struct space *const *spaces; /* their perf maps are read */
    size_t space_count;
    const struct capture_result *capture;
    const struct tracer_counters *tracer;
};

/* Writes the rest. Returns 0 or the first error, a negative errno; then the file is not whole. */
int snapfile_finish(struct snapfile *file, const struct snapfile_totals *totals);

#endif
