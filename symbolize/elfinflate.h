/*
 * An ELF file whose debug sections are compressed by zstd, as one in memory where they are not: libdw 0.188 inflates
 * zlib only.
 */
#ifndef SYMBOLIZE_ELFINFLATE_H
#define SYMBOLIZE_ELFINFLATE_H

#include "symbolize/image.h"

/*
 * The image's debug sections (.debug_*, .zdebug_*, and what leads to another file), each under the number that it has
 * there; the other sections are there without content. NULL: no section is compressed so. Returns 0; -ENODATA when a
 * section is damaged or they are more than 2 GiB; -ENOMEM. The result is the caller's to free.
 */
int elfinflate(const struct image *image, uint8_t **ret_elf, size_t *ret_bytes);

#endif
