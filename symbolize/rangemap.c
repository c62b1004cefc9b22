#include "symbolize/rangemap.h"

#include "common/array.h"

#include <stdlib.h>

/* So many ranges that begin before the address and do not hold it are passed over: in real tables a few. */
enum { STEPS_MAX = 4096, RANGES_MAX = 1 << 23 };

bool rangemap_is_full(const struct rangemap *map)
{
    return map->added >= RANGES_MAX;
}

void rangemap_clear(struct rangemap *map)
{
    map->count = 0;
    map->added = 0;
}

int rangemap_add(struct rangemap *map, uint64_t start, uint64_t end, uint32_t value)
{
    if (rangemap_is_full(map))
        return 0;
    map->added++;
    if (start >= end || start < map->lowest)
        return 0;
    int error = array_room(&map->items, &map->capacity, map->count + 1);
    if (error)
        return error;
    map->items[map->count++] = (struct range){.start = start, .end = end, .value = value};
    return 0;
}

static int compare(const void *left, const void *right)
{
    const struct range *a = left;
    const struct range *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end > b->end ? -1 : 1;
    return (a->value < b->value) - (a->value > b->value);
}

void rangemap_sort(struct rangemap *map)
{
    if (map->count)
        qsort(map->items, map->count, sizeof(*map->items), compare);
    uint64_t reach = 0;
    for (size_t i = 0; i < map->count; i++) {
        reach = map->items[i].end > reach ? map->items[i].end : reach;
        map->items[i].reach = reach;
    }
}

void rangemap_deinit(struct rangemap *map)
{
    free(map->items);
    *map = (struct rangemap){0};
}

bool rangemap_find(const struct rangemap *map, uint64_t address, uint32_t *ret_value)
{
    size_t low = 0;
    size_t high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t steps = 0; low > 0 && map->items[low - 1].reach > address && steps < STEPS_MAX; steps++, low--) {
        if (map->items[low - 1].end <= address)
            continue;
        *ret_value = map->items[low - 1].value;
        return true;
    }
    return false;
}
