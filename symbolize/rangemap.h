/* Ranges of addresses, each with a number; of those that hold an address the one that begins last. */
#ifndef SYMBOLIZE_RANGEMAP_H
#define SYMBOLIZE_RANGEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t start;
    uint64_t end;
    uint64_t reach; /* the largest end up to here, when sorted */
    uint32_t value;
};

struct rangemap {
    struct range *items;
    size_t count;
    size_t capacity;
    size_t added;    /* empty ones, too */
    uint64_t lowest; /* ranges that begin before this are none; kept by rangemap_clear */
};

/*
 * 0 or -ENOMEM; none if empty, or if the map is full: a file can have many lists share their ranges, so that they come
 * to far more than the file has bytes.
 */
int rangemap_add(struct rangemap *map, uint64_t start, uint64_t end, uint32_t value);
bool rangemap_is_full(const struct rangemap *map); /* after 8 million */
void rangemap_clear(struct rangemap *map);
void rangemap_sort(struct rangemap *map); /* before the first question */
void rangemap_deinit(struct rangemap *map);

/* Of two that begin at one place the shorter one counts, of equal ones the one with the smaller number. */
bool rangemap_find(const struct rangemap *map, uint64_t address, uint32_t *ret_value);

#endif
