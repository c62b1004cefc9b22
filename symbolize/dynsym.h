/*
 * Where an image defines symbols that are known by name: its dynamic symbol table, through PT_DYNAMIC, so that files
 * without section headers have it, too.
 *
 * The table is gone through once for all names; what does not fit the image is no table. At most 1 million symbols and
 * 16 MiB of names are read. Of several versions of a name the first in the table counts.
 */
#ifndef SYMBOLIZE_DYNSYM_H
#define SYMBOLIZE_DYNSYM_H

#include "symbolize/image.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Sets ret_svmas[i] to where the function names[i] is, 0 where the image does not define one. Returns 0, -ENODATA (no
 * table that can be read), or -ENOMEM.
 */
int dynsym_find(const struct image *image, const char *const *names, size_t count, uint64_t *ret_svmas);

#endif
