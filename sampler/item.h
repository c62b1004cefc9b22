/*
 * One look at one thread, on its way from the capture thread to the profile: what was copied, or why nothing was.
 * Plain data but for the space, maps and thread that it belongs to; a saved one (snapread.h) is the same.
 */
#ifndef SAMPLER_ITEM_H
#define SAMPLER_ITEM_H

#include "sampler/certaincode.h"
#include "sampler/space.h"
#include "sampler/targets.h"
#include "sampler/threadstate.h"
#include "unwind/snapshot.h"
#include "unwind/stack.h"

#include <stddef.h>
#include <stdint.h>

/* Why a sample has no stack. The numbers stand in snapshot files: new ones go to the end. */
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
    FAILURE_NO_ROOM,         /* with a helper: too little of its stack was left to look at it */
    FAILURE_BLOCKED,         /* with a helper: its signal was blocked */
    FAILURE_UNLOADED,        /* with a helper: in code that may have been another's by the time that we looked */
    FAILURE_COUNT
};

const char *failure_name(enum failure failure); /* for counters: "timeout", ... */

struct helperlink;

enum item_kind {
    ITEM_SAMPLE,
    ITEM_REPEAT,   /* more ticks of the thread's last sample: only `thread`, `time_ns` of the last, `count` and `ns` */
    ITEM_SPACE_END /* nothing of this space comes any more */
};

struct item {
    struct item *next;
    enum item_kind kind;
    struct space *space;          /* borrowed; NULL: a failure of a process without one */
    struct address_map *map;      /* owned reference, or NULL for a failure */
    struct thread_shared *thread; /* owned reference */
    char comm[PROCFS_COMM_BYTES];
    enum failure failure;
    bool is_urgent;   /* what is learnt from it is wanted at the next tick */
    uint64_t time_ns; /* CLOCK_MONOTONIC: when the thread was let go again; of a failure, when its tick was */
    uint64_t count;   /* ticks that it stands for */
    uint64_t ns;      /* time that it stands for, in wall mode */
    enum thread_state state;
    int16_t call; /* the system call that it slept in; -1: in none, or not known */
    struct registers registers;
    struct extent stack;
    struct memory_range ranges[SNAPSHOT_RANGES]; /* in the buffer; the first is from the stack pointer upward */
    size_t range_count;
    uint8_t *buffer; /* owned, kept from use to use */
    size_t buffer_bytes;
    /* From a helper (helped.h); NULL: from outside. Its slot, to answer; and the addresses that it has walked already,
     * innermost first: then there are no ranges. */
    struct helperlink *helper; /* borrowed */
    uint32_t helper_slot;
    bool is_doubtful;            /* code may have gone since; only this is certainly what the map says: */
    struct certaincode *certain; /* owned reference; NULL: nothing */
    uint64_t *frames;            /* owned, kept from use to use */
    size_t frame_count;
    size_t frame_capacity;
    enum stack_end end;
};

#endif
