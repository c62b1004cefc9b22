#include "common/histogram.h"

/* Values below 2 * SUB have a bucket each; above, every power of two is cut into SUB equal parts. */
static unsigned bucket_of(uint64_t value)
{
    if (value < 2 * HISTOGRAM_SUB)
        return (unsigned)value;
    unsigned log2 = 63U - (unsigned)__builtin_clzll(value);
    unsigned part = (unsigned)(value >> (log2 - 4)) & (HISTOGRAM_SUB - 1);
    return (log2 - 3) * HISTOGRAM_SUB + part;
}

static uint64_t bucket_limit(unsigned bucket)
{
    if (bucket < 2 * HISTOGRAM_SUB)
        return bucket;
    unsigned log2 = bucket / HISTOGRAM_SUB + 3;
    uint64_t part = bucket % HISTOGRAM_SUB;
    uint64_t width = UINT64_C(1) << (log2 - 4);
    return (UINT64_C(1) << log2) + part * width + (width - 1);
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += value;
    if (value > histogram->max)
        histogram->max = value;
    histogram->buckets[bucket_of(value)]++;
}

uint64_t histogram_percentile(const struct histogram *histogram, unsigned percent)
{
    uint64_t wanted = (histogram->count * percent + 99) / 100;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram->count; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted && seen)
            return bucket_limit(i) < histogram->max ? bucket_limit(i) : histogram->max;
    }
    return histogram->max;
}

void histogram_merge(struct histogram *histogram, const struct histogram *more)
{
    histogram->count += more->count;
    histogram->sum += more->sum;
    if (more->max > histogram->max)
        histogram->max = more->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        histogram->buckets[i] += more->buckets[i];
}
