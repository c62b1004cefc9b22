/*
 * The executable mappings of one address space at one time: where code lies and which image it is from.
 * Built by the sampler from the target's maps, sorted and without overlaps; immutable while an unwinder reads it.
 */
#ifndef UNWIND_CODEMAP_H
#define UNWIND_CODEMAP_H

#include "symbolize/image.h"

#include <stddef.h>
#include <stdint.h>

struct code_region {
    uint64_t start_avma;
    uint64_t end_avma;
    uint64_t map_off;          /* file offset of start_avma */
    uint64_t bias;             /* avma - svma; only when has_bias */
    const struct image *image; /* borrowed; NULL for anonymous memory (JIT code) */
    bool has_bias;             /* the image is a good ELF and a segment of it explains this mapping */
};

struct codemap {
    /* Two codemaps with the same generation are the same code at the same places; never 0. Caches are keyed by it. */
    uint64_t generation;
    const struct code_region *regions; /* borrowed */
    size_t count;
};

/* The region that holds `avma`, borrowed, or NULL. */
const struct code_region *codemap_find(const struct codemap *map, uint64_t avma);

#endif
