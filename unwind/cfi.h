/*
 * One step by unwind information (CFI).
 *
 * The only file pair that includes libunwind, which runs the CFI programs. Of libunwind, no more is used than that: its
 * unw_step would go on by guesses where there is no CFI (frame pointers, PLT patterns), and its cache would mistake a
 * return address for the same address interrupted, and block signals twice per frame. So the rows of a function are
 * taken from it once (unw_reg_states_iterate), kept here by (image, linear address) and applied to the registers at
 * hand (unw_apply_reg_state). A rule does not depend on where the image is mapped: all address spaces share them, and
 * no change of mappings makes them wrong.
 *
 * Belongs to one thread.
 */
#ifndef UNWIND_CFI_H
#define UNWIND_CFI_H

#include "unwind/view.h"

struct cfi;

struct cfi *cfi_new(void); /* NULL: no memory */
void cfi_free(struct cfi *cfi);

enum cfi_kind {
    CFI_NONE, /* no unwind information covers the address */
    CFI_BAD,  /* there is some, but damaged or not supported */
    CFI_RULE
};

struct cfi_rule; /* opaque; valid until the next cfi_find */

/*
 * The rule for the instruction at `lookup_avma` (frame_lookup_avma), which lies in `region`. NULL: no memory. The kind
 * says whether it can be applied.
 */
const struct cfi_rule *cfi_find(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma);
enum cfi_kind cfi_rule_kind(const struct cfi_rule *rule);
bool cfi_rule_is_signal(const struct cfi_rule *rule); /* the caller was interrupted: its frame is exact */

enum cfi_answer {
    CFI_STEPPED,
    CFI_OUTERMOST,    /* the return address is undefined */
    CFI_NEEDS_MEMORY, /* view->failed and view->cut say which */
    CFI_UNUSABLE,     /* needs a register that is not known, or cannot be evaluated */
    CFI_NO_PROGRESS   /* pc and CFA stay what they are */
};

/*
 * Applies a rule of kind CFI_RULE. `registers` are the frame's, with pc and rsp known; the pc is replaced by
 * `lookup_avma`, so that an expression sees an address inside the function. On CFI_STEPPED *ret_registers are the
 * caller's: those that a call preserves and that can be had; after a signal frame all of them.
 */
enum cfi_answer cfi_apply(struct cfi *cfi, const struct cfi_rule *rule, struct view *view,
                          const struct registers *registers, uint64_t lookup_avma, struct registers *ret_registers);

#endif
