/*
 * From an address of an image to the function's name in the debug information, the calls inlined there, and lines of
 * the source, through libdw (DWARF 2 to 5).
 *
 * Compilation units are found by the ranges that they state, functions of a unit are read when an address of it is
 * asked for, lines likewise. What was read is let go now and then, so that memory stays bounded; ask in the order of
 * addresses. Damaged information gives as much as there is. Split units (.dwo files) are opened where the unit says
 * that they are; packages of them (.dwp) are not read by libdw 0.188, which is told once.
 *
 * Used by one thread.
 */
#ifndef SYMBOLIZE_DEBUGINFO_H
#define SYMBOLIZE_DEBUGINFO_H

#include "symbolize/debugfile.h"
#include "symbolize/image.h"

#include <stddef.h>
#include <stdint.h>

struct debuginfo;

/* A function, and where in the source its code at the address stands. */
struct source_frame {
    const char *name; /* maybe mangled; NULL: not known */
    const char *file; /* NULL: not known, or lines are not wanted */
    unsigned line;    /* 0: not known */
};

/*
 * Of `image`, which is the program's or its debug file, and must outlive it. NULL: it has no debug information. Returns
 * 0 or -ENOMEM.
 */
int debuginfo_new(const struct image *image, const struct debugfile_search *search, bool lines,
                  struct debuginfo **ret_debuginfo);
void debuginfo_free(struct debuginfo *debuginfo);

/*
 * The frames at `svma`, the function first, then what is inlined into it. Without a function that holds the address one
 * frame without a name, for its line; none (0) when no unit holds it. `names_function`: the function's own name is
 * wanted, too. Borrowed until the next question. Returns 0 or -ENOMEM.
 */
int debuginfo_find(struct debuginfo *debuginfo, uint64_t svma, bool names_function,
                   const struct source_frame **ret_frames, size_t *ret_count);

#endif
