/*
 * One step by unwind information that we do not evaluate ourselves, through libunwind.
 *
 * The only file pair that includes libunwind. Of it, no more is used than its evaluation of a CFI program: its unw_step
 * would go on by guesses where there is no CFI (frame pointers, PLT patterns), and its cache would mistake a return
 * address for the same address interrupted. So the row of the address is taken from it (unw_reg_states_iterate) and
 * applied to the registers at hand (unw_apply_reg_state). Nothing is kept: this is rare.
 *
 * Belongs to one thread.
 */
#ifndef UNWIND_FOREIGN_H
#define UNWIND_FOREIGN_H

#include "unwind/cfitable.h"
#include "unwind/rule.h"

struct foreign;

struct foreign *foreign_new(void); /* NULL: no memory */
void foreign_free(struct foreign *foreign);

/* As rule_apply_plain; `svma` is the lookup address in the image. RULE_UNUSABLE also for entries of more than 8 KB. */
enum rule_answer foreign_apply(struct foreign *foreign, const struct cfitable *table,
                               const struct cfi_function *function, uint64_t svma, struct view *view,
                               struct registers *registers, uint64_t lookup_avma);

#endif
