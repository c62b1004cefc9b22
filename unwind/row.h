/* Rows of unwind information as they hold in one address space, for others who walk as the unwinder does. */
#ifndef UNWIND_ROW_H
#define UNWIND_ROW_H

#include "unwind/rule.h"
#include "unwind/unwind.h"

/* Half-open, within its region. */
struct unwind_row {
    uint64_t start_avma;
    uint64_t end_avma;
    struct rule rule; /* RULE_PLAIN, or RULE_NONE: no unwind information covers these addresses */
};

/*
 * The row with which the unwinder leaves a frame at `lookup_avma` (frame_lookup_avma). false: there is none that is so
 * simple. On the unwinder's thread.
 */
bool unwinder_find_row(struct unwinder *unwinder, const struct codemap *map, uint64_t lookup_avma,
                       struct unwind_row *ret_row);

#endif
