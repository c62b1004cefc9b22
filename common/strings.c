#include "common/strings.h"

#include "common/array.h"
#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int strings_init(struct strings *strings)
{
    *strings = (struct strings){0};
    uint32_t empty;
    return strings_add(strings, "", &empty);
}

void strings_deinit(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    free(strings->slots);
    *strings = (struct strings){0};
}

const char *strings_get(const struct strings *strings, uint32_t number)
{
    return strings->items[number];
}

static size_t slot_of(const struct strings *strings, const char *text)
{
    size_t slot = hash_bytes(text, strlen(text)) & (strings->slot_count - 1);
    while (strings->slots[slot] && strcmp(strings->items[strings->slots[slot] - 1], text) != 0)
        slot = (slot + 1) & (strings->slot_count - 1);
    return slot;
}

static int grow_slots(struct strings *strings)
{
    size_t slot_count = strings->slot_count ? strings->slot_count * 2 : 64;
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    free(strings->slots);
    strings->slots = slots;
    strings->slot_count = slot_count;
    for (size_t i = 0; i < strings->count; i++)
        slots[slot_of(strings, strings->items[i])] = (uint32_t)(i + 1);
    return 0;
}

int strings_add(struct strings *strings, const char *text, uint32_t *ret_number)
{
    if (strings->count * 2 >= strings->slot_count) {
        int error = grow_slots(strings);
        if (error)
            return error;
    }
    size_t slot = slot_of(strings, text);
    if (strings->slots[slot]) {
        *ret_number = strings->slots[slot] - 1;
        return 0;
    }
    if (strings->count >= UINT32_MAX - 1)
        return -ENOMEM;
    int error = array_room(&strings->items, &strings->capacity, strings->count + 1);
    if (error)
        return error;
    char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    strings->items[strings->count] = copy;
    *ret_number = (uint32_t)strings->count++;
    strings->slots[slot] = *ret_number + 1;
    return 0;
}
