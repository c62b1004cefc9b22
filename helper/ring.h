/* The helper's side of the ring: records go in from handlers of all threads, without locks, or are counted as lost. */
#ifndef HELPER_RING_H
#define HELPER_RING_H

#include "helper/layout.h"

#include <stddef.h>

/*
 * Room for a record with so many bytes behind its header, which has its `size`. NULL: there is none now. The caller
 * fills in the rest and commits it at once: the reader waits for it.
 */
struct helper_record *ring_reserve(struct helper_ring *ring, size_t bytes, uint64_t *ret_position);

/* It is whole. */
void ring_commit(struct helper_record *record, uint64_t position);

#endif
