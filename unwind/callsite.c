#include "unwind/callsite.h"

#include "common/hash.h"
#include "unwind/patterns.h"

/*
 * The bytes before `avma`, as many as there are. Those of an image wherever they are mapped: what was found out holds
 * for the image's address, and a mapping may begin between them.
 */
static size_t read_before(const struct view *view, const struct code_region *region, uint64_t avma, bool by_image,
                          uint8_t bytes[PATTERNS_CALL_BYTES])
{
    size_t size = PATTERNS_CALL_BYTES;
    while (by_image && size > 0 && image_read_svma(region->image, avma - region->bias - size, bytes, size) != 0)
        size--;
    if (by_image && size > 0)
        return size;
    uint64_t room = avma - region->start_avma;
    size = room < PATTERNS_CALL_BYTES ? (size_t)room : PATTERNS_CALL_BYTES;
    return size > 0 && view_read_code(view, region, avma - size, bytes, size) ? size : 0;
}

enum callsite_verdict callsite_find(struct callsite_cache *cache, const struct view *view,
                                    const struct code_region *region, uint64_t avma)
{
    bool by_image = region->image && region->has_bias;
    const struct image *image = by_image ? region->image : NULL;
    uint64_t address = by_image ? avma - region->bias : avma;
    struct callsite_slot *slot = &cache->slots[hash_pair((uintptr_t)image, address) % CALLSITE_SLOTS];
    if (slot->address == address && slot->image == image && address != 0)
        return slot->verdict;

    uint8_t bytes[PATTERNS_CALL_BYTES];
    size_t size = read_before(view, region, avma, by_image, bytes);
    if (size == 0)
        return CALLSITE_UNREADABLE;
    enum callsite_verdict verdict = patterns_end_with_call(bytes, size) ? CALLSITE_CALL : CALLSITE_OTHER;
    *slot = (struct callsite_slot){.image = image, .address = address, .verdict = verdict};
    return verdict;
}

enum callsite_verdict callsites_find(struct callsites callsites, const struct view *view,
                                     const struct code_region *region, uint64_t avma)
{
    bool by_image = region->image && region->has_bias;
    return callsite_find(by_image ? callsites.images : callsites.anonymous, view, region, avma);
}
