#include "common/pairmap.h"

#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>

struct pairmap_slot {
    uint64_t a;
    uint64_t b;
    uint32_t value; /* 0: free */
};

void pairmap_deinit(struct pairmap *map)
{
    free(map->slots);
    *map = (struct pairmap){0};
}

/* Where the pair is, or would be. The table has a free slot. */
static struct pairmap_slot *slot_of(const struct pairmap *map, uint64_t a, uint64_t b)
{
    size_t at = (size_t)hash_pair(a, b) & (map->capacity - 1);
    while (map->slots[at].value && (map->slots[at].a != a || map->slots[at].b != b))
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

uint32_t pairmap_find(const struct pairmap *map, uint64_t a, uint64_t b)
{
    return map->capacity ? slot_of(map, a, b)->value : 0;
}

static int grow(struct pairmap *map)
{
    struct pairmap grown = {.count = map->count, .capacity = map->capacity ? map->capacity * 2 : 16};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].value)
            *slot_of(&grown, map->slots[i].a, map->slots[i].b) = map->slots[i];
    free(map->slots);
    *map = grown;
    return 0;
}

int pairmap_add(struct pairmap *map, uint64_t a, uint64_t b, uint32_t value)
{
    int error = map->count >= map->capacity / 2 ? grow(map) : 0;
    if (error)
        return error;
    *slot_of(map, a, b) = (struct pairmap_slot){.a = a, .b = b, .value = value};
    map->count++;
    return 0;
}
