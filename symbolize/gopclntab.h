/*
 * Functions of a Go program from the table that its runtime needs itself, and that stripping therefore leaves
 * (.gopclntab, "pclntab"): of Go 1.2 to 1.15, 1.16 and 1.17, 1.18 and 1.19, and 1.20 and later, for 64-bit
 * little-endian programs with instructions of any length. The format is that of debug/gosym and of the linker of the Go
 * distribution.
 *
 * The table is the section .gopclntab or .data.rel.ro.gopclntab; where a linker has merged that into another section
 * (the one called for cgo with PIE) or there are no section headers, the segments are searched for its first 8 bytes.
 * Addresses in it are what the program's relocations make of them. From Go 1.18 on functions are said as offsets from
 * the start of Go's code, which the header tells; where it does not, the runtime's module data do, or .text does if
 * the program's entry point then is Go's.
 *
 * A function covers from its entry to the next entry, the last one to the table's end. A table whose entries descend or
 * are not all code is no sound one. Functions of which record or name are damaged have no name. Limits: 4 million
 * functions, 256 MiB of table, 64 KiB per name, 512 MiB of file to search.
 */
#ifndef SYMBOLIZE_GOPCLNTAB_H
#define SYMBOLIZE_GOPCLNTAB_H

#include "symbolize/image.h"
#include "symbolize/symtab.h"

/* Returns 0 with a table (empty when there is none that is sound), or -ENOMEM. */
int gopclntab_symbols(const struct image *image, struct symtab **ret_table);

#endif
