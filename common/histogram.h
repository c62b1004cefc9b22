/* Distribution of durations in fixed memory: exact below 32 ns, relative error below 1/16 above. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB = 16, HISTOGRAM_BUCKETS = 64 * HISTOGRAM_SUB };

/* All zero is an empty histogram. */
struct histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);

/* Adds all values of `more`. */
void histogram_merge(struct histogram *histogram, const struct histogram *more);

/* The smallest bucket limit that at least `percent` of the values do not exceed (never above max); 0 when empty. */
uint64_t histogram_percentile(const struct histogram *histogram, unsigned percent);

#endif
