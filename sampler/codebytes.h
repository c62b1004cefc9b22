/*
 * Bytes of code that is in no image (JIT code), as they were last seen, by address: one store per space. The writer of
 * a snapshot file keeps one to save only what is new; the reader keeps one that has, at every item, what the writer's
 * had.
 *
 * At its limit a store forgets everything before it takes more: both sides at the same place, since both are given the
 * same calls in the same order.
 */
#ifndef SAMPLER_CODEBYTES_H
#define SAMPLER_CODEBYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct codebytes;

struct codebytes *codebytes_new(void); /* NULL: no memory */
void codebytes_free(struct codebytes *store);

/* These bytes are at `avma` now. avma + size does not wrap. Returns 0 or -ENOMEM. */
int codebytes_set(struct codebytes *store, uint64_t avma, const void *bytes, size_t size);

/* Nothing can be read there now. */
void codebytes_forget(struct codebytes *store, uint64_t avma, size_t size);

/* false, and the buffer undefined, unless all bytes are known. */
bool codebytes_read(const struct codebytes *store, uint64_t avma, void *buffer, size_t size);

#endif
