/* Hash functions for our own tables. Not for keys that an enemy chooses to collide: tables here stay correct, only
 * slower. */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Mixes all bits of a word (the finaliser of splitmix64). */
static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t hash_pair(uint64_t a, uint64_t b)
{
    return hash_u64(hash_u64(a) + UINT64_C(0x9e3779b97f4a7c15) + b);
}

uint64_t hash_bytes(const void *data, size_t size);

#endif
