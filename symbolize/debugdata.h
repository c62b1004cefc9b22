/*
 * The symbols of .gnu_debugdata: an ELF file with a .symtab of what .dynsym has not, compressed by xz, in a section of
 * the stripped image (GDB's manual, "MiniDebugInfo").
 */
#ifndef SYMBOLIZE_DEBUGDATA_H
#define SYMBOLIZE_DEBUGDATA_H

#include "symbolize/image.h"

/*
 * It as an image in memory, for the caller to free; NULL: none, damaged, or larger than 64 MiB in the file or 256 MiB
 * in memory. Returns 0 or -ENOMEM.
 */
int debugdata_open(const struct image *image, struct image **ret_debug);

#endif
