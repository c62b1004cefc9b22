#include "common/rng.h"

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * limit) >> 64);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1.0p-53;
}
