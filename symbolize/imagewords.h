/*
 * What the loader would make of an image's data: words that relative relocations (R_X86_64_RELATIVE, told by
 * PT_DYNAMIC) write, which position-independent images may leave 0 in the file; and where in the image a word is.
 */
#ifndef SYMBOLIZE_IMAGEWORDS_H
#define SYMBOLIZE_IMAGEWORDS_H

#include "symbolize/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writes what relative relocations write, as addresses of the linker, into `bytes`, a copy of what is at `svma`. A word
 * that does not lie wholly in it is left. Damaged or more than 4 million relocations: those that could be read.
 */
void imagewords_relocate(const struct image *image, uint64_t svma, uint8_t *bytes, size_t size);

/* Told where a word is; true ends the search. */
typedef bool (*imagewords_found)(void *state, uint64_t svma);

/*
 * The words that are one of `values` and lie at a multiple of 8: first those in the file, segment by segment and at
 * most 512 MiB, then those that relocations write. Returns 0 or -ENOMEM.
 */
int imagewords_find(const struct image *image, const uint64_t *values, size_t count, imagewords_found found,
                    void *state);

#endif
