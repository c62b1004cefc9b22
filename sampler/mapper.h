/*
 * Address spaces and maps of the targets, kept up to date. All spaces of the run stay in one list, since recorded
 * frames carry their numbers. The capture thread's; the list is read by others after its end.
 */
#ifndef SAMPLER_MAPPER_H
#define SAMPLER_MAPPER_H

#include "sampler/images.h"
#include "sampler/space.h"
#include "sampler/targets.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapper {
    struct images *images; /* borrowed */
    struct space **spaces; /* owned, number - 1 */
    size_t space_count;
    size_t space_capacity;
};

void mapper_deinit(struct mapper *mapper);

/*
 * A new space for the thread's process, which has none: process->space and ->image_hash. Returns 0, or a negative
 * errno: -EACCES and -EPERM (process->unreadable is set then), -ESRCH, -EAGAIN when it called exec meanwhile.
 */
int mapper_begin_space(struct mapper *mapper, const struct thread *thread);

/* Reads the maps of the process's space: process->map. Returns 0 or a negative errno; the old map stays then. */
int mapper_read_maps(struct mapper *mapper, const struct thread *thread);

/* Are the maps to be read again: none yet, code was mapped, an address was not explained, or too long ago? Two system
 * calls at most. */
bool mapper_is_old(struct process *process, uint64_t now_ns);

/* Whether reading them now, for an address that they do not explain, can help and is not done too often. */
bool mapper_may_retry(const struct process *process);

#endif
