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

bool snapshot_is_cut(const struct snapshot *snapshot, uint64_t avma)
{
    if (avma < snapshot->stack_start_avma || avma >= snapshot->stack_end_avma)
        return false;
    if (snapshot->range_count == 0)
        return true;
    const struct memory_range *stack = &snapshot->ranges[0];
    return avma >= stack->avma && avma - stack->avma >= stack->size;
}
