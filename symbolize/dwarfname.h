/* The name of a function in debug information. */
#ifndef SYMBOLIZE_DWARFNAME_H
#define SYMBOLIZE_DWARFNAME_H

#include "common/strbuf.h"
#include "symbolize/dwarfscopes.h"

#include <elfutils/libdw.h>

/*
 * Of a DW_TAG_subprogram or DW_TAG_inlined_subroutine: its linkage name, which may be mangled; else its name behind
 * those of the namespaces and types that it is in ("ns::Class::method", "ns::function::{lambda}::operator()"), where
 * the language has such. Replaces what is in `name`, which stays empty when there is none. Returns 0 or -ENOMEM.
 */
int dwarfname_read(struct dwarfscopes *scopes, Dwarf_Die *die, struct strbuf *name);

#endif
