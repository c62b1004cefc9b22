/* One walk as a list of addresses, whoever made it: ours and the two others are compared in this form. */
#ifndef ORACLE_TRACE_H
#define ORACLE_TRACE_H

#include "unwind/stack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames of one walk; ours has the same limit, so that all three end there. */
enum { TRACE_DEPTH = 4096 };

struct trace_frame {
    uint64_t avma;    /* the pc, or the return address as it is on the stack */
    uint64_t sp;      /* stack pointer in this frame; 0: not told */
    bool exact;       /* the thread was interrupted here; of the others' traces only the innermost is known to be */
    enum frame_by by; /* ours only */
};

struct trace {
    struct trace_frame *frames; /* owned, room for TRACE_DEPTH */
    size_t count;
    bool at_root; /* it ended because there is no caller, not for want of information */
    char end[64]; /* how it ended, in words */
};

int trace_init(struct trace *trace); /* 0 or -ENOMEM */
void trace_deinit(struct trace *trace);
void trace_clear(struct trace *trace);

/* false: the trace is full. */
bool trace_add(struct trace *trace, struct trace_frame frame);

/* Frames that both have in common from the innermost on. */
size_t trace_common(const struct trace *a, size_t a_count, const struct trace *b, size_t b_count);

#endif
