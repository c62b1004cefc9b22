#include "unwind/view.h"

void view_need(struct view *view, uint64_t avma, size_t size)
{
    const struct snapshot *snapshot = view->snapshot;
    uint64_t end = avma + size;
    if (end < avma)
        return;
    for (size_t i = 0; i < snapshot->range_count; i++) {
        const struct memory_range *range = &snapshot->ranges[i];
        bool is_copied = avma >= range->avma && end - range->avma <= range->size;
        if (!is_copied && snapshot_cut_range(snapshot, end - 1) != i)
            continue;
        if (i == 0 && end > view->top_avma)
            view->top_avma = end;
        if (i > 0 && end - range->avma > view->other_bytes)
            view->other_bytes = end - range->avma;
        return;
    }
}

static bool region_holds(const struct code_region *region, uint64_t avma, size_t size)
{
    return avma >= region->start_avma && avma <= region->end_avma && size <= region->end_avma - avma;
}

static bool read_image(const struct code_region *region, uint64_t avma, void *buffer, size_t size)
{
    return region->image && region->has_bias && image_read_svma(region->image, avma - region->bias, buffer, size) == 0;
}

bool view_read_code(const struct view *view, const struct code_region *region, uint64_t avma, void *buffer, size_t size)
{
    if (!region_holds(region, avma, size))
        return false;
    if (read_image(region, avma, buffer, size))
        return true;
    return view->reader && view->reader->read(view->reader->context, avma, buffer, size);
}

bool view_read(struct view *view, uint64_t avma, void *buffer, size_t size)
{
    view_need(view, avma, size);
    if (snapshot_read(view->snapshot, avma, buffer, size))
        return true;
    /*
     * Code of an image does not change; but what data holds now is not what it held when the thread stood still: never
     * ask for it. Executable memory without an image may be data, even the stack (PT_GNU_STACK with PF_X).
     */
    const struct code_region *region = codemap_find(view->map, avma);
    if (region && region_holds(region, avma, size) && read_image(region, avma, buffer, size))
        return true;
    view->failed = true;
    view->cut = snapshot_is_cut(view->snapshot, avma + size - 1);
    return false;
}
