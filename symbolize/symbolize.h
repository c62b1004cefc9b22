/*
 * From (image, file offset) to a function's name: by .symtab and .dynsym, and in Go programs without .symtab by the
 * table of Go's runtime. Tables are read when an image is first asked for, once; each distinct symbol is demangled
 * once. Used after the run by one thread; not thread-safe.
 */
#ifndef SYMBOLIZE_SYMBOLIZE_H
#define SYMBOLIZE_SYMBOLIZE_H

#include "symbolize/image.h"

#include <stdbool.h>

struct symbolizer;

struct symbolizer *symbolizer_new(void); /* NULL: no memory */
void symbolizer_free(struct symbolizer *symbolizer);

/*
 * The readable name of the function at file offset `off`, which must already point inside the call (never at a return
 * address). Borrowed until symbolizer_free; NULL when no symbol covers it (or no memory is left). Images must outlive
 * the symbolizer.
 */
const char *symbolizer_find(struct symbolizer *symbolizer, const struct image *image, uint64_t off);

#endif
