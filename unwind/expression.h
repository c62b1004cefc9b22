/*
 * DWARF expressions of unwind information, in a compact decoded form, and their evaluation on a snapshot.
 *
 * Source: DWARF 5, section 2.5 (operations) and 6.4.2 (their use in unwind information). Operations that need a compile
 * unit, a frame base, an object address or thread-local storage have no meaning there. Any input ends: the number of
 * operations in one evaluation is limited, and that in one walk, and so is the depth of the stack.
 */
#ifndef UNWIND_EXPRESSION_H
#define UNWIND_EXPRESSION_H

#include "unwind/view.h"

struct expression_op {
    uint8_t atom;     /* DW_OP_*; constants are all DW_OP_constu, register-relative values all DW_OP_breg0 */
    uint8_t reg;      /* DW_OP_breg0: the register */
    uint16_t target;  /* DW_OP_bra and DW_OP_skip: index of the operation to go to; the count of all: the end */
    uint32_t size;    /* DW_OP_deref_size: bytes; DW_OP_pick: position */
    uint64_t operand; /* the number */
};

enum expression_answer {
    EXPRESSION_VALUE,
    EXPRESSION_NEEDS_MEMORY, /* view->failed and view->cut say which */
    EXPRESSION_UNUSABLE      /* a register that is not known, a bad stack, division by zero, or endless */
};

/*
 * Evaluates `count` operations. `first` is on the stack at the start, if not NULL (the CFA, for the location of a
 * register). `pc` stands for the register of that name. *ret_value is the top of the stack, untouched on failure.
 */
enum expression_answer expression_evaluate(const struct expression_op *ops, size_t count, const uint64_t *first,
                                           struct view *view, const struct registers *registers, uint64_t pc,
                                           uint64_t *ret_value);

/* True for an operation that expression_evaluate knows. */
bool expression_knows(uint8_t atom);

#endif
