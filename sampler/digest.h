/*
 * From items to the profile: unwinds each and adds its stack. Knows nothing of queues, threads or where items come
 * from: a run gives those of its targets (pipeline.h), a report those of a file (report.h).
 */
#ifndef SAMPLER_DIGEST_H
#define SAMPLER_DIGEST_H

#include "profile/profile.h"
#include "sampler/item.h"
#include "unwind/unwind.h"

#include <stddef.h>
#include <stdint.h>

struct digest_counters {
    uint64_t samples;
    uint64_t unstopped; /* of these, taken without a stop */
    uint64_t inferred;  /* of those, with an rbp that was inferred, or told by an earlier stop in the same place */
    uint64_t by_bpf;    /* of those, samples whose registers came by BPF, without their repetitions */
    uint64_t kept;      /* of these, ticks at which the thread had not run since its last sample */
    uint64_t failed[FAILURE_COUNT];
    uint64_t ends[STACK_END_COUNT];
    uint64_t frames;
    uint64_t frames_by_helper; /* walked in the target */
    struct unwind_counters unwind;
    uint64_t unwind_ns; /* CPU time of the unwinding thread */
};

/* All zero is empty. One thread's at a time. */
struct digest {
    struct profile *profile; /* borrowed */
    struct unwinder *unwinder;
    struct stack stack;
    uint32_t *frames;
    size_t frame_capacity;
    bool has_learnt; /* something for which the next samples will be better; the caller's to take back */
    struct digest_counters counters; /* the last two fields: after digest_finish */
};

int digest_init(struct digest *digest, enum unwind_mode mode, size_t max_depth, struct profile *profile);
void digest_deinit(struct digest *digest);

/*
 * Adds one sample. `reader` gives bytes of code that is in no image (unwind/unwind.h). An item that cannot be unwound
 * becomes a failure. Returns 0, or -ENOMEM: the sample is lost.
 */
int digest_add(struct digest *digest, struct item *item, const struct memory_reader *reader);

/* Adds what an ITEM_REPEAT says. Returns 0, or -ENOMEM; a repetition of nothing counts for nothing. */
int digest_repeat(struct digest *digest, const struct item *item);

/* The last counters: everything the calling thread did was unwinding, for `unwind_ns`. */
void digest_finish(struct digest *digest, uint64_t unwind_ns);

#endif
