/*
 * Does the call before a return address call this function? The test for return addresses that were found by a guess
 * of where they lie: the words of a stack are full of return addresses, but few of them are of calls of one function.
 *
 * A direct call leads to the function itself, or to it by way of jumps: a stub of the procedure linkage table, whose
 * slot is looked up in the files (gotslot.h), or another function that ends with a jump to it.
 */
#ifndef UNWIND_CALLTARGET_H
#define UNWIND_CALLTARGET_H

#include "unwind/cfi.h"
#include "unwind/view.h"

enum calltarget {
    CALLTARGET_NONE,     /* no call, or it cannot be read */
    CALLTARGET_OTHER,    /* calls something else */
    CALLTARGET_OPEN,     /* through a pointer of which the files do not tell where it leads */
    CALLTARGET_FUNCTION, /* the function */
};

/* A function by its start. */
struct calltarget_function {
    const struct code_region *region; /* with an image */
    uint64_t start_avma;
};

/* `return_avma` lies in `region`, which has an image; so has the function's. */
enum calltarget calltarget_find(struct cfi *cfi, const struct view *view, const struct code_region *region,
                                uint64_t return_avma, const struct calltarget_function *function);

#endif
