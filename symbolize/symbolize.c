#include "symbolize/symbolize.h"

#include "common/hash.h"
#include "symbolize/demangle.h"
#include "symbolize/gopclntab.h"
#include "symbolize/symtab.h"

#include <stdlib.h>

/* Open addressing from a pointer to an owned pointer. Nothing is removed. */
struct pointer_map {
    struct pointer_slot *slots;
    size_t count;
    size_t capacity; /* a power of two, or 0 */
};

struct pointer_slot {
    const void *key; /* NULL: free */
    void *value;
};

struct symbolizer {
    struct pointer_map tables;    /* struct image -> struct symtab */
    struct pointer_map go_tables; /* the same, of those that the ordinary table has not sufficed for */
    struct pointer_map names;     /* name in a table -> readable name; NULL when it is readable as it is */
};

static struct pointer_slot *slot_of(const struct pointer_map *map, const void *key)
{
    size_t at = (size_t)hash_u64((uintptr_t)key) & (map->capacity - 1);
    while (map->slots[at].key && map->slots[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

static bool pointer_map_grow(struct pointer_map *map)
{
    if (map->count < map->capacity / 2)
        return true;
    struct pointer_map grown = {.count = map->count, .capacity = map->capacity ? map->capacity * 2 : 64};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key)
            *slot_of(&grown, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = grown;
    return true;
}

/* The slot of `key`, or a free one to be filled with pointer_map_fill; NULL: no memory. */
static struct pointer_slot *pointer_map_slot(struct pointer_map *map, const void *key)
{
    return pointer_map_grow(map) ? slot_of(map, key) : NULL;
}

static void pointer_map_fill(struct pointer_map *map, struct pointer_slot *slot, const void *key, void *value)
{
    *slot = (struct pointer_slot){.key = key, .value = value};
    map->count++;
}

struct symbolizer *symbolizer_new(void)
{
    return calloc(1, sizeof(struct symbolizer));
}

void symbolizer_free(struct symbolizer *symbolizer)
{
    if (!symbolizer)
        return;
    for (size_t i = 0; i < symbolizer->tables.capacity; i++)
        symtab_free(symbolizer->tables.slots[i].value);
    for (size_t i = 0; i < symbolizer->go_tables.capacity; i++)
        symtab_free(symbolizer->go_tables.slots[i].value);
    for (size_t i = 0; i < symbolizer->names.capacity; i++)
        free(symbolizer->names.slots[i].value);
    free(symbolizer->tables.slots);
    free(symbolizer->go_tables.slots);
    free(symbolizer->names.slots);
    free(symbolizer);
}

typedef int (*table_maker)(const struct image *image, struct symtab **ret_table);

static const struct symtab *table_of(struct pointer_map *tables, const struct image *image, table_maker make)
{
    struct pointer_slot *slot = pointer_map_slot(tables, image);
    if (!slot)
        return NULL;
    if (!slot->key) {
        struct symtab *table;
        if (make(image, &table))
            return NULL;
        pointer_map_fill(tables, slot, image, table);
    }
    return slot->value;
}

static const char *readable_name(struct symbolizer *symbolizer, const char *name)
{
    struct pointer_slot *slot = pointer_map_slot(&symbolizer->names, name);
    if (!slot)
        return name;
    if (!slot->key)
        pointer_map_fill(&symbolizer->names, slot, name, demangle_name(name));
    return slot->value ? slot->value : name;
}

const char *symbolizer_find(struct symbolizer *symbolizer, const struct image *image, uint64_t off)
{
    uint64_t svma;
    struct symbol symbol;
    if (!image_off_to_svma(image, off, &svma))
        return NULL;
    const struct symtab *table = table_of(&symbolizer->tables, image, symtab_new);
    if (!table)
        return NULL;
    if (symtab_find(table, svma, &symbol))
        return readable_name(symbolizer, symbol.name);
    if (symtab_has_locals(table))
        return NULL;
    /* What else names code of a stripped image. Go's names are readable as they are. */
    table = table_of(&symbolizer->go_tables, image, gopclntab_symbols);
    return table && symtab_find(table, svma, &symbol) ? symbol.name : NULL;
}
