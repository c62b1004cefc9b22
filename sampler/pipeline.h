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
#include "sampler/options.h"
#include "sampler/space.h"
#include "sampler/targets.h"

#include <stdint.h>

/* Why a sample has no stack. */
enum failure {
    FAILURE_NONE,
    FAILURE_TIMEOUT,         /* did not stop in time */
    FAILURE_UNINTERRUPTIBLE, /* in uninterruptible sleep: not tried */
    FAILURE_NOT_ALLOWED,     /* not permitted, or set-uid */
    FAILURE_TRACED,          /* another tracer has it */
    FAILURE_FOREIGN,         /* 32-bit code */
    FAILURE_EXEC,            /* called exec just then: it is not known which image was seen */
    FAILURE_NO_MAPS,         /* its maps could not be read */
    FAILURE_ERROR,           /* another error of ptrace */
    FAILURE_UNWIND,          /* the snapshot has no program counter or stack pointer */
    FAILURE_COUNT
};

const char *failure_name(enum failure failure); /* for counters: "timeout", ... */

enum item_kind {
    ITEM_SAMPLE,
    ITEM_SPACE_END /* nothing of this space comes any more */
};

struct item {
    struct item *next;
    enum item_kind kind;
    struct space *space;          /* borrowed */
    struct address_map *map;      /* owned reference, or NULL for a failure */
    struct thread_shared *thread; /* owned reference */
    char comm[PROCFS_COMM_BYTES];
    enum failure failure;
    uint64_t count; /* ticks that it stands for */
    uint64_t ns;    /* time that it stands for, in wall mode */
    struct registers registers;
    struct extent stack;
    uint8_t *buffer; /* owned, kept from use to use */
    size_t buffer_bytes;
    uint64_t bytes_avma;
    size_t bytes;
};

struct pipeline_counters {
    uint64_t samples;
    uint64_t failed[FAILURE_COUNT];
    uint64_t ends[STACK_END_COUNT];
    uint64_t frames;
    struct unwind_counters unwind;
    uint64_t unwind_ns; /* CPU time of the unwinding thread */
};

struct pipeline;

/* `profile` is the unwinding thread's until pipeline_stop. Returns 0 or a negative errno. */
int pipeline_start(const struct options *options, struct profile *profile, struct pipeline **ret_pipeline);

/* An empty item whose buffer has `buffer_bytes`, or fewer when buffers have reached their limit. Returns 0, -EAGAIN
 * when all are in work, or -ENOMEM. */
int pipeline_take(struct pipeline *pipeline, size_t buffer_bytes, struct item **ret_item);
void pipeline_put(struct pipeline *pipeline, struct item *item);       /* to the unwinder */
void pipeline_give_back(struct pipeline *pipeline, struct item *item); /* unused after all */

/* Unwinds what is queued, ends the thread. Returns 0, or the first error that lost a sample (-ENOMEM). */
int pipeline_stop(struct pipeline *pipeline);
const struct pipeline_counters *pipeline_counters(const struct pipeline *pipeline); /* after pipeline_stop */
uint64_t pipeline_samples(struct pipeline *pipeline);                               /* so far; any thread */
void pipeline_free(struct pipeline *pipeline);

#endif
