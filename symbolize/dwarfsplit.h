/* Split DWARF: a unit whose functions are in a file of its own (.dwo), beside a skeleton with its ranges and lines. */
#ifndef SYMBOLIZE_DWARFSPLIT_H
#define SYMBOLIZE_DWARFSPLIT_H

#include "symbolize/image.h"

#include <elfutils/libdw.h>
#include <stdbool.h>

bool dwarfsplit_is_split(Dwarf_Die *unit);        /* `unit` is such a skeleton */
const char *dwarfsplit_name(Dwarf_Die *skeleton); /* of the other file, as the unit has it; borrowed */

/*
 * The unit in its own file, which libdw opens, maps, and closes with the other, that of `image`. `*ret_guarded` is what
 * it is mapped at: guarded, which is to be undone before it is closed (mapguard_remove). false: it is not there, or of
 * another build.
 */
bool dwarfsplit_open(const struct image *image, Dwarf_Die *skeleton, Dwarf_Die *ret_unit, const void **ret_guarded);

bool dwarfsplit_is_regular(const char *path);

#endif
