/*
 * From (image, file offset) to functions: the one whose code it is, and those that the compiler has inlined there, with
 * the places in the source where each stands.
 *
 * Where names come from, in this order (docs/names.md): the image's .symtab; its separate debug file (debugfile.h); its
 * .gnu_debugdata (debugdata.h); .dynsym; with inlined functions or lines, the name in DWARF; a Go program's own table
 * (gopclntab.h). Inlined functions and lines come from DWARF, of the image or of its debug file (debuginfo.h).
 *
 * Used after the run by one thread; not thread-safe.
 */
#ifndef SYMBOLIZE_SYMBOLIZE_H
#define SYMBOLIZE_SYMBOLIZE_H

#include "symbolize/image.h"

#include <stdbool.h>
#include <stddef.h>

struct symbolizer;

struct symbolizer_options {
    bool inlines;
    bool lines;
    bool debuginfod;             /* debug files that are not here may be fetched from the servers in DEBUGINFOD_URLS */
    const char *debug_directory; /* in the place of /usr/lib/debug; NULL: that one. Borrowed */
    /* What `context` is for. All may be NULL. */
    void (*warn)(void *context, const char *text); /* one line, without an end of line */
    bool (*is_cancelled)(void *context);           /* asked now and then */
    void *context;
};

/* A function at an address. All borrowed until symbolizer_free. */
struct called {
    const char *function; /* readable */
    const char *file;     /* of the source, with its directory as far as is known; NULL: not known, or not asked for */
    unsigned line;        /* 0: not known */
    bool is_inlined;      /* into the one before */
};

/* Told of the offset number `index`: outermost function first; none: no name. Returns 0 or a negative errno. */
typedef int (*symbolizer_found)(void *context, size_t index, const struct called *called, size_t count);

struct symbolizer *symbolizer_new(const struct symbolizer_options *options); /* NULL: no memory */
void symbolizer_free(struct symbolizer *symbolizer);

/*
 * Tells `found` of each of these file offsets, which must be sorted and already point inside the call (never at a
 * return address). Tables and debug files are opened for the time of this call: ask for all of an image at once.
 * Returns 0, -ENOMEM, -ECANCELED, or what `found` returned.
 */
int symbolizer_resolve(struct symbolizer *symbolizer, const struct image *image, const uint64_t *offs, size_t count,
                       symbolizer_found found, void *context);

#endif
