/*
 * How deep the stack is at an instruction of a function: the distance from the stack pointer up to the CFA (the stack
 * pointer before the call), by what the instructions on the ways there push, pop, add and subtract. For frames whose
 * unwind information counts from a frame pointer that is not known.
 *
 * Compilers write code that has one depth at each instruction, whichever way leads there, unless it takes memory of a
 * size that is known at run time only. So all direct ways are followed from where unwind information tells the depth:
 * the function's entry and every place at which the CFA is counted from the stack pointer. Two ways with different
 * depths, or an instruction that sets the stack pointer to what cannot be followed, make it unknown from there on. What
 * only jump tables lead to has the depth of the jumps through tables; what nothing leads to (landing pads), that of
 * all other jumps, if these have one.
 *
 * It is a guess with good reasons, not knowledge: somebody has to check what comes of it.
 */
#ifndef UNWIND_PROLOGUE_H
#define UNWIND_PROLOGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer functions are looked at so far. */
enum { PROLOGUE_CODE_MAX = 1 << 16 };

/* What unwind information says from an offset on, up to the next mark. */
struct prologue_mark {
    uint32_t off;
    int32_t depth; /* CFA = stack pointer + depth; 0: counted from the frame pointer; negative: otherwise */
};

struct prologue_code {
    const uint8_t *bytes; /* borrowed; from the function's start on */
    size_t size;
    const struct prologue_mark *marks; /* borrowed; ascending, starting with offset 0 */
    size_t mark_count;
    int32_t frame_off; /* where a mark's depth is 0: CFA = frame pointer + frame_off */
};

struct prologue;

struct prologue *prologue_new(void); /* NULL: no memory */
void prologue_free(struct prologue *prologue);

/*
 * The depth at `off`: when the instruction there is about to run (`exact`), or when the call that ends there returns.
 * 0: not known.
 */
int32_t prologue_depth(struct prologue *prologue, const struct prologue_code *code, uint32_t off, bool exact);

#endif
