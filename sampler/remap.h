/*
 * Code of a file in memory without a file: a program that wants its own text on huge pages copies it into anonymous
 * memory, which it moves over the original range. Such a region lies where the file's code would be, between other
 * mappings of that file, and has the same bytes; it is named and unwound by the file then. The capture thread's.
 */
#ifndef SAMPLER_REMAP_H
#define SAMPLER_REMAP_H

#include "sampler/images.h"
#include "sampler/maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What was found out of one region. */
struct remap {
    uint64_t start_avma;
    uint64_t end_avma;
    uint32_t image; /* 0: of no file, or not yet: it may have been looked at while it was filled */
    unsigned looks; /* at its bytes */
    uint64_t bias;
    uint64_t map_off; /* file offset of start_avma */
};

/* Of the regions of one space. */
struct remaps {
    struct remap *items;
    size_t count;
    size_t capacity;
};

void remaps_deinit(struct remaps *remaps);

/* Whether a mapping can be such a region: executable memory without a file, on huge pages or not. */
bool remap_is_candidate(const struct mapping *mapping);

/*
 * Looks which file's code list[index], a candidate, is. The bytes are compared when a region is first seen, and where
 * they are no file's for seven more times. *ret->image is 0 for none. `file` says where the process is; its mappings
 * are not used. What `before` knows is taken over into `now`, and what is new added, so that `now` has only regions
 * that are still there. Returns 0 or -ENOMEM.
 */
int remap_find(const struct remaps *before, struct remaps *now, const struct mapping *list, size_t count, size_t index,
               struct images *images, const struct mapped_file *file, struct remap *ret);

#endif
