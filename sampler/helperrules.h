/*
 * What a helper's handlers need to know of the code (helper/layout.h): executable regions, and rules as the unwinder
 * has used them. Written here only; what was written is remembered here too, since the target could change it.
 *
 * Any thread of ours, one at a time: the owner of the link has a mutex for it.
 */
#ifndef SAMPLER_HELPERRULES_H
#define SAMPLER_HELPERRULES_H

#include "helper/layout.h"
#include "unwind/codemap.h"
#include "unwind/row.h"

#include <stdint.h>

struct helperrules;

struct helperrules *helperrules_new(struct helper_shared *shared); /* borrowed. NULL: no memory */
void helperrules_free(struct helperrules *rules);

/*
 * The code is mapped so from now on; rules of what is not there any more, or from another file, are taken back first.
 * More than HELPER_REGIONS regions: those that are left out are nobody's. Returns whether any of an image has gone.
 */
bool helperrules_set_map(struct helperrules *rules, const struct codemap *map);

/*
 * A row that the unwinder has used for `lookup_avma`; nothing happens if it is there. Where it holds nearby, too, that
 * is told as far as nothing else has to go for it: the same code is interrupted there next.
 */
void helperrules_add(struct helperrules *rules, const struct unwind_row *row, uint64_t lookup_avma);

#endif
