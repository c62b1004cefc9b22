#include "unwind/snapshot.h"

#include <string.h>

static bool range_read(const struct memory_range *range, uint64_t avma, void *buffer, size_t size)
{
    /* Differences only: a range or an address near 2^64 must not wrap. */
    if (avma < range->avma)
        return false;
    uint64_t start = avma - range->avma;
    if (start > range->size || size > range->size - start)
        return false;
    memcpy(buffer, range->bytes + start, size);
    return true;
}

bool snapshot_read(const struct snapshot *snapshot, uint64_t avma, void *buffer, size_t size)
{
    for (size_t i = 0; i < snapshot->range_count; i++) {
        if (range_read(&snapshot->ranges[i], avma, buffer, size))
            return true;
    }
    return false;
}

size_t snapshot_cut_range(const struct snapshot *snapshot, uint64_t avma)
{
    const struct memory_range *stack = &snapshot->ranges[0];
    bool in_mapping = avma >= snapshot->stack_start_avma && avma < snapshot->stack_end_avma;
    if (in_mapping && (snapshot->range_count == 0 || (avma >= stack->avma && avma - stack->avma >= stack->size)))
        return 0;
    for (size_t i = 1; i < snapshot->range_count; i++) {
        const struct memory_range *range = &snapshot->ranges[i];
        if (avma >= range->avma && avma - range->avma >= range->size && avma < range->mapping_end_avma)
            return i;
    }
    return SNAPSHOT_RANGES;
}
