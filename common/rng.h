/* A small random number generator for sampling decisions (splitmix64). Not for secrets. */
#ifndef COMMON_RNG_H
#define COMMON_RNG_H

#include "common/hash.h"

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_u64(rng->state);
}

/* Uniform in [0, limit); 0 when limit is 0. */
uint64_t rng_below(struct rng *rng, uint64_t limit);

/* Uniform in [0, 1). */
double rng_unit(struct rng *rng);

#endif
