/* The test process as a target: its code map, and snapshots of its own stack. */
#ifndef TESTS_UNIT_SELF_TARGET_H
#define TESTS_UNIT_SELF_TARGET_H

#include "unwind/codemap.h"
#include "unwind/snapshot.h"
#include "unwind/unwind.h"

enum { SELF_REGIONS_MAX = 256, SELF_COPY_MAX = 1 << 20, SELF_BACKTRACE_MAX = 512 };

struct self_target {
    struct codemap map;
    struct code_region regions[SELF_REGIONS_MAX];
    struct image *images[SELF_REGIONS_MAX]; /* owned */
    size_t image_count;
    struct memory_reader reader; /* of this process */
};

/* Reads /proc/self/maps. Returns 0 or -1. Regions come and go: load again after mmap of code. */
int self_target_load(struct self_target *target);
void self_target_unload(struct self_target *target);

/* What was copied at one point: here, with the frames that glibc's backtrace() has for it. */
struct moment {
    struct snapshot snapshot;
    uint8_t *bytes[2]; /* owned */
    void *backtrace[SELF_BACKTRACE_MAX];
    size_t backtrace_count;
    uint64_t other_stack_avma; /* set by the caller, if not 0: copy that stack, too, from here upward */
};

/* The innermost frame is moment_take itself. It has a frame pointer. */
void moment_take(struct moment *moment);
void moment_release(struct moment *moment);

#endif
