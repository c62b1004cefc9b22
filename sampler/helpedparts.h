/*
 * Stacks that come from helpers in several records, put together. So many at a time; of more, the oldest is given up,
 * and so is one of which a record is missing: never are two stacks made one. The capture thread's.
 */
#ifndef SAMPLER_HELPEDPARTS_H
#define SAMPLER_HELPEDPARTS_H

#include "sampler/helperring.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HELPEDPARTS = 64 };

struct helpedpart {
    const void *owner; /* the process; NULL: free */
    pid_t tid;
    uint32_t next;    /* record of it */
    uint64_t *frames; /* owned */
    size_t count;
    size_t capacity;
};

/* All zero is empty. */
struct helpedparts {
    struct helpedpart all[HELPEDPARTS];
    size_t next;
    uint64_t lost; /* stacks that were given up */
};

void helpedparts_deinit(struct helpedparts *parts);

/*
 * The frames of a record, behind those of its stack that came before. The stack so far, borrowed until the next call;
 * NULL: these were not the ones before it, they are too many, or there is no memory.
 */
const struct helpedpart *helpedparts_add(struct helpedparts *parts, const void *owner, const struct helper_event *event,
                                         const uint8_t *bytes, size_t max_depth);

/* That stack is whole, and was used: room for another. */
void helpedparts_take(struct helpedparts *parts, const struct helpedpart *part);

/* What has come of a stack of that thread is void: another begins. */
void helpedparts_give_up(struct helpedparts *parts, const void *owner, pid_t tid);

/* The same, but that is as it should be: the helper sends a copy instead. */
void helpedparts_drop(struct helpedparts *parts, const void *owner, pid_t tid);

#endif
