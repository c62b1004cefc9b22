#include "sampler/certaincode.h"

void certaincode_set(struct certain_code *certain, const struct address_map *map)
{
    const struct codemap *code = &map->code;
    certain->count = 0;
    for (size_t i = 0; i < code->count && certain->count < CERTAIN_RANGES; i++)
        if (code->regions[i].image)
            certain->ranges[certain->count++] =
                (struct extent){.start_avma = code->regions[i].start_avma, .end_avma = code->regions[i].end_avma};
}

static bool is_same(const struct code_region *a, const struct code_region *b)
{
    return a && b && a->image == b->image && a->has_bias == b->has_bias && a->bias == b->bias &&
           a->map_off - a->start_avma == b->map_off - b->start_avma;
}

void certaincode_keep(struct certain_code *certain, const struct address_map *before, const struct address_map *now)
{
    size_t kept = 0;
    for (size_t i = 0; i < certain->count; i++) {
        uint64_t avma = certain->ranges[i].start_avma;
        if (is_same(codemap_find(&before->code, avma), codemap_find(&now->code, avma)))
            certain->ranges[kept++] = certain->ranges[i];
    }
    certain->count = kept;
}

bool certaincode_has(const struct certain_code *certain, uint64_t avma)
{
    for (size_t i = 0; i < certain->count; i++)
        if (avma >= certain->ranges[i].start_avma && avma < certain->ranges[i].end_avma)
            return true;
    return false;
}
