/*
 * A frame whose caller is counted from a frame pointer that is not known: of a thread that was not stopped only the
 * stack pointer is, and so is rbp as long as no inner frame has saved it. How deep the function's stack is at that
 * place (prologue.h) gives the CFA and with it the frame pointer.
 *
 * That is a guess, and here is a part of its check: the return address found so must be of a call of this very
 * function, as far as the files tell (calltarget.h), or of a signal handler. The other part is the walk's: from there
 * it comes to the stack's beginning by return addresses alone.
 *
 * Answers are remembered by image and address, in a fixed amount of memory. Belongs to one thread. Images outlive it.
 */
#ifndef UNWIND_INFERENCE_H
#define UNWIND_INFERENCE_H

#include "unwind/callsite.h"
#include "unwind/cfi.h"
#include "unwind/view.h"

struct inference;

struct inference *inference_new(void); /* NULL: no memory */
void inference_free(struct inference *inference);

/* A frame: where it is, and its rule, which is plain and counts from rbp. */
struct inferred_frame {
    const struct code_region *region;
    uint64_t lookup_avma;
    bool exact;
    uint64_t sp_avma;
    int32_t cfa_off; /* of the rule */
};

/* false: it cannot be found; or no memory. */
bool inference_find_rbp(struct inference *inference, struct cfi *cfi, const struct view *view,
                        const struct inferred_frame *frame, uint64_t *ret_rbp);

/* Can `return_avma` be where the frame's function returns to? */
bool inference_is_caller(struct inference *inference, struct cfi *cfi, const struct view *view,
                         struct callsites callsites, const struct inferred_frame *frame, uint64_t return_avma);

#endif
