/* The result of unwinding one snapshot: code addresses, innermost first, and how the walk ended. */
#ifndef UNWIND_STACK_H
#define UNWIND_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which rule gave this frame from the one below it; FRAME_INNERMOST for the first. */
enum frame_by {
    FRAME_INNERMOST,
    FRAME_BY_FP,
    FRAME_BY_CFI,
    FRAME_BY_LIBUNWIND,  /* CFI that we leave to it */
    FRAME_BY_INSPECTION, /* the instruction at the pc says where the return address is */
    FRAME_BY_HELPER,     /* walked in the target */
    FRAME_BY_COUNT
};

struct frame {
    uint64_t avma; /* the pc, or the return address as found on the stack: nothing subtracted */
    /*
     * True: the thread executes (or was interrupted) exactly here: the innermost frame and the one under a signal
     * frame. False: a return address, which may already belong to the next function (after a call that does not
     * return).
     */
    bool exact;
    enum frame_by by;
};

enum stack_end {
    STACK_COMPLETE, /* the unwind information or a zero frame pointer says: no caller */
    /* truncated: the frames that are there are right */
    STACK_CUT_COPY,        /* the copy of the stack was too short; a larger one helps */
    STACK_CUT_MEMORY,      /* needed memory that is neither copied nor in an image */
    STACK_CUT_NO_RULE,     /* no unwind information, and no frame pointer that can be believed */
    STACK_CUT_BAD_RULE,    /* unwind information that cannot be used (damaged, unsupported, unknown register) */
    STACK_CUT_BAD_PC,      /* the caller's address is not in executable memory */
    STACK_CUT_NO_PROGRESS, /* the next frame would not lie above this one */
    STACK_CUT_DEPTH,       /* the limit on frames */
    STACK_END_COUNT
};

/* Short name for counters ("copy", "no_rule", ...); "complete" for STACK_COMPLETE. */
const char *stack_end_name(enum stack_end end);

struct stack {
    struct frame *frames; /* owned */
    size_t count;
    size_t capacity;
    enum stack_end end;
    uint64_t top_avma; /* the highest stack address that the walk needed; 0 for none */
    /*
     * A signal handler runs on a stack of its own: where, on that one, the kernel has put the stack pointer of the code
     * that it interrupted; 0 for none. It is the same place as long as handlers are entered there. And how many bytes
     * of the second copied range, from there upward, the walk needed.
     */
    uint64_t interrupted_sp_at_avma;
    uint64_t other_bytes;
    /* Frames whose frame pointer was not known and was found from how deep their function's stack is (inference.h). */
    unsigned inferred;
};

void stack_deinit(struct stack *stack);
void stack_clear(struct stack *stack); /* keeps the memory */
int stack_grow(struct stack *stack);   /* room for one more; 0 or -ENOMEM */

/* 0 or -ENOMEM */
static inline int stack_add(struct stack *stack, uint64_t avma, bool exact, enum frame_by by)
{
    if (stack->count == stack->capacity) {
        int err = stack_grow(stack);
        if (err)
            return err;
    }
    stack->frames[stack->count++] = (struct frame){.avma = avma, .exact = exact, .by = by};
    return 0;
}

/*
 * The address to look names, lines and unwind rules up with: inside the call instruction for a return address, the pc
 * itself for an exact frame. The one place where 1 is subtracted.
 */
static inline uint64_t frame_lookup_avma(uint64_t avma, bool exact)
{
    return exact ? avma : avma - 1;
}

#endif
