/*
 * Does an address lie right behind a call instruction? A word of the stack that does not is no return address (but for
 * signal handlers, whose caller is the kernel, and for interpreters that jump: HotSpot's enters methods from frames of
 * its own, which are known by their shape, see framepointer.c).
 *
 * Encodings: Intel SDM volume 2, CALL: E8 rel32, FF /2 with any ModRM, SIB and displacement. Prefixes stand before the
 * opcode, so they do not matter when reading backwards. 9A is not valid in 64-bit mode, FF /3 (far) is used by nobody.
 */
#ifndef UNWIND_CALLSITE_H
#define UNWIND_CALLSITE_H

#include "unwind/view.h"

enum callsite_verdict { CALLSITE_CALL, CALLSITE_OTHER, CALLSITE_UNREADABLE };

/*
 * Verdicts by (image, linker address), or by (NULL, target address) for anonymous memory: the owner clears the latter
 * when the mappings change. All zero is empty. Direct-mapped, so a collision costs a read and nothing else.
 */
enum { CALLSITE_SLOTS = 2048 };

struct callsite_cache {
    struct callsite_slot {
        const struct image *image;
        uint64_t address; /* 0: unused */
        enum callsite_verdict verdict;
    } slots[CALLSITE_SLOTS];
};

/* `region` holds the byte before `avma`. An unreadable place is not remembered. */
enum callsite_verdict callsite_find(struct callsite_cache *cache, const struct view *view,
                                    const struct code_region *region, uint64_t avma);

/* Caches of call sites: of code in images, and of this address space's anonymous memory. Borrowed. */
struct callsites {
    struct callsite_cache *images;
    struct callsite_cache *anonymous;
};

/* The same, in the cache that the region belongs to. */
enum callsite_verdict callsites_find(struct callsites callsites, const struct view *view,
                                     const struct code_region *region, uint64_t avma);

#endif
