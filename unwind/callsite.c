#include "unwind/callsite.h"

#include "common/hash.h"

/* Length of the FF /2 that starts with these ModRM and SIB bytes. */
static size_t indirect_call_bytes(uint8_t modrm, uint8_t sib)
{
    unsigned mod = modrm >> 6;
    unsigned rm = modrm & 7U;
    if (mod == 3)
        return 2;
    bool has_sib = rm == 4;
    size_t displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    /* mod 0: rm 5 is rip-relative, a SIB with base 5 has no base; both with 32 bits of displacement. */
    if (mod == 0 && (rm == 5 || (has_sib && (sib & 7U) == 5)))
        displacement = 4;
    return 2 + (size_t)has_sib + displacement;
}

bool callsite_ends_with_call(const uint8_t *bytes, size_t size)
{
    if (size >= 5 && bytes[size - 5] == 0xe8)
        return true;
    size_t longest = size < CALLSITE_BYTES ? size : CALLSITE_BYTES;
    for (size_t length = 2; length <= longest; length++) {
        const uint8_t *call = bytes + size - length;
        if (call[0] != 0xff || (call[1] >> 3 & 7) != 2)
            continue;
        uint8_t sib = length > 2 ? call[2] : 0;
        if (indirect_call_bytes(call[1], sib) == length)
            return true;
    }
    return false;
}

/*
 * The bytes before `avma`, as many as there are. Those of an image wherever they are mapped: what was found out holds
 * for the image's address, and a mapping may begin between them.
 */
static size_t read_before(const struct view *view, const struct code_region *region, uint64_t avma, bool by_image,
                          uint8_t bytes[CALLSITE_BYTES])
{
    size_t size = CALLSITE_BYTES;
    while (by_image && size > 0 && image_read_svma(region->image, avma - region->bias - size, bytes, size) != 0)
        size--;
    if (by_image && size > 0)
        return size;
    uint64_t room = avma - region->start_avma;
    size = room < CALLSITE_BYTES ? (size_t)room : CALLSITE_BYTES;
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

    uint8_t bytes[CALLSITE_BYTES];
    size_t size = read_before(view, region, avma, by_image, bytes);
    if (size == 0)
        return CALLSITE_UNREADABLE;
    enum callsite_verdict verdict = callsite_ends_with_call(bytes, size) ? CALLSITE_CALL : CALLSITE_OTHER;
    *slot = (struct callsite_slot){.image = image, .address = address, .verdict = verdict};
    return verdict;
}

enum callsite_verdict callsites_find(struct callsites callsites, const struct view *view,
                                     const struct code_region *region, uint64_t avma)
{
    bool by_image = region->image && region->has_bias;
    return callsite_find(by_image ? callsites.images : callsites.anonymous, view, region, avma);
}
