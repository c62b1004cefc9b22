#include "unwind/codemap.h"

const struct code_region *codemap_find(const struct codemap *map, uint64_t avma)
{
    size_t low = 0;
    size_t high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->regions[middle].end_avma <= avma)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == map->count || map->regions[low].start_avma > avma)
        return NULL;
    return &map->regions[low];
}
