/* Split DWARF: a unit whose functions are in a file of its own (.dwo), beside a skeleton with its ranges and lines. */
#ifndef SYMBOLIZE_DWARFSPLIT_H
#define SYMBOLIZE_DWARFSPLIT_H

#include "symbolize/image.h"

#include <elfutils/libdw.h>
#include <stdbool.h>

bool dwarfsplit_is_split(Dwarf_Die *unit); /* `unit` is such a skeleton */

/*
 * The unit in its own file, which libdw opens and closes with the other, that of `image`. false: it is not there, or of
 * another build.
 */
bool dwarfsplit_open(const struct image *image, Dwarf_Die *skeleton, Dwarf_Die *ret_unit);

bool dwarfsplit_is_regular(const char *path);

#endif
