/*
 * From the interrupted registers to the callers, in a handler: by the rules that the sampler has put into the shared
 * memory, and by frame pointers where code has no unwind information, believed as unwind/framepointer.h and
 * unwind/inspect.h believe them. What it cannot do, or does not know yet, is left to the sampler, which gets a copy of
 * the stack then, and gives the rules for the next time. So each step is one that the sampler would do.
 */
#ifndef HELPER_WALK_H
#define HELPER_WALK_H

#include "helper/layout.h"
#include "helper/safeload.h"

enum { WALK_WINDOW_BYTES = 1024 };

struct walk {
    const struct helper_shared *shared;
    enum safeload_way way;
    struct registers registers; /* of the frame that the walk has come to */
    bool exact;                 /* it is the interrupted one */
    bool is_outdated;           /* rules may be of code that is gone, but for what lasts */
    bool by_frame_pointer;      /* a frame record has led to it */
    uint64_t stack_start_avma;  /* where stack pointers have to be, half-open */
    uint64_t stack_end_avma;
    /* With SAFELOAD_CALL, the stack comes in pieces. */
    uint64_t window_avma;
    size_t window_size;
    uint8_t window[WALK_WINDOW_BYTES];
};

enum walk_step {
    WALK_CALLER, /* `registers` are the caller's */
    WALK_OUTERMOST,
    WALK_UNKNOWN /* for the sampler */
};

enum walk_step walk_step(struct walk *walk);

#endif
