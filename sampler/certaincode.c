#include "sampler/certaincode.h"

#include <stdlib.h>

struct certaincode *certaincode_new(void)
{
    struct certaincode *certain = calloc(1, sizeof(*certain));
    if (certain)
        certain->references = 1;
    return certain;
}

void certaincode_add(struct certaincode *certain, uint64_t start_avma, uint64_t end_avma)
{
    if (certain->count < CERTAIN_RANGES)
        certain->ranges[certain->count++] = (struct extent){.start_avma = start_avma, .end_avma = end_avma};
}

struct certaincode *certaincode_of_map(const struct address_map *map)
{
    struct certaincode *certain = certaincode_new();
    for (size_t i = 0; certain && i < map->code.count; i++)
        if (map->code.regions[i].image)
            certaincode_add(certain, map->code.regions[i].start_avma, map->code.regions[i].end_avma);
    return certain;
}

static bool is_same(const struct code_region *a, const struct code_region *b)
{
    return a && b && a->image == b->image && a->has_bias == b->has_bias && a->bias == b->bias &&
           a->map_off - a->start_avma == b->map_off - b->start_avma;
}

struct certaincode *certaincode_kept(const struct certaincode *certain, const struct address_map *before,
                                     const struct address_map *now)
{
    struct certaincode *kept = certaincode_new();
    for (size_t i = 0; kept && certain && i < certain->count; i++) {
        const struct extent *range = &certain->ranges[i];
        if (is_same(codemap_find(&before->code, range->start_avma), codemap_find(&now->code, range->start_avma)))
            certaincode_add(kept, range->start_avma, range->end_avma);
    }
    return kept;
}

struct certaincode *certaincode_ref(struct certaincode *certain)
{
    if (certain)
        atomic_fetch_add(&certain->references, 1);
    return certain;
}

void certaincode_unref(struct certaincode *certain)
{
    if (certain && atomic_fetch_sub(&certain->references, 1) == 1)
        free(certain);
}

bool certaincode_has(const struct certaincode *certain, uint64_t avma)
{
    for (size_t i = 0; certain && i < certain->count; i++)
        if (avma >= certain->ranges[i].start_avma && avma < certain->ranges[i].end_avma)
            return true;
    return false;
}
