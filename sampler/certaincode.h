/* Code that does not go away while it is sampled (struct certain_code). */
#ifndef SAMPLER_CERTAINCODE_H
#define SAMPLER_CERTAINCODE_H

#include "sampler/item.h"

/* All images of the map, as far as there is room. */
void certaincode_set(struct certain_code *certain, const struct address_map *map);

/* Only what is the same code in both maps stays. */
void certaincode_keep(struct certain_code *certain, const struct address_map *before, const struct address_map *now);

bool certaincode_has(const struct certain_code *certain, uint64_t avma);

#endif
