/* A table from pairs of 64-bit numbers to a number that is not 0. Entries stay until the end. */
#ifndef COMMON_PAIRMAP_H
#define COMMON_PAIRMAP_H

#include <stddef.h>
#include <stdint.h>

/* All zero is empty. */
struct pairmap {
    struct pairmap_slot *slots; /* owned; open addressing */
    size_t count;
    size_t capacity; /* a power of two, or 0 */
};

void pairmap_deinit(struct pairmap *map);

/* 0: not there. */
uint32_t pairmap_find(const struct pairmap *map, uint64_t a, uint64_t b);

/* The pair is not there yet, the value is not 0. Returns 0 or -ENOMEM. */
int pairmap_add(struct pairmap *map, uint64_t a, uint64_t b, uint32_t value);

#endif
