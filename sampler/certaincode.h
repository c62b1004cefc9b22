/*
 * Code that does not go away while it is sampled: who was seen there was there, whatever the maps of a moment later
 * say. Immutable once items refer to it; counted references from any thread.
 */
#ifndef SAMPLER_CERTAINCODE_H
#define SAMPLER_CERTAINCODE_H

#include "sampler/space.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CERTAIN_RANGES = 1024 };

struct certaincode {
    atomic_uint references;
    bool is_told; /* by a helper that was there when the program began: it lasts for ever */
    size_t count;
    struct extent ranges[CERTAIN_RANGES];
};

/* None, for the caller to add to before anybody else has it. One reference; NULL: no memory. */
struct certaincode *certaincode_new(void);
void certaincode_add(struct certaincode *certain, uint64_t start_avma, uint64_t end_avma); /* as far as there is room */

/* All images of the map. NULL: no memory. */
struct certaincode *certaincode_of_map(const struct address_map *map);

/* Only what is the same code in both maps. NULL: no memory. */
struct certaincode *certaincode_kept(const struct certaincode *certain, const struct address_map *before,
                                     const struct address_map *now);

struct certaincode *certaincode_ref(struct certaincode *certain); /* NULL is fine, here and below: nothing is certain */
void certaincode_unref(struct certaincode *certain);
bool certaincode_has(const struct certaincode *certain, uint64_t avma);

#endif
