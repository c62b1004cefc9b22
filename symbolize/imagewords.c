#include "symbolize/imagewords.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RELOCATIONS = 4 << 20,
    MAX_DYNAMIC_ENTRIES = 4096,
    RELOCATIONS_AT_ONCE = 512,
    SCAN_BYTES_MAX = 512 << 20,
    CHUNK_BYTES = 64 << 10
};

/* The relocations, read some at a time. */
struct relocations {
    const struct image *image;
    uint64_t svma;
    uint64_t left;
    size_t held_count;
    size_t next;
    Elf64_Rela held[RELOCATIONS_AT_ONCE];
};

/* DT_RELA and DT_RELASZ; nothing where one is missing. */
static void relocations_init(struct relocations *relocations, const struct image *image)
{
    relocations->image = image;
    relocations->left = relocations->held_count = relocations->next = 0;
    struct image_section dynamic;
    if (!image_find_dynamic(image, &dynamic))
        return;
    uint64_t table_svma = 0;
    uint64_t bytes = 0;
    uint64_t entries = dynamic.bytes / sizeof(Elf64_Dyn);
    for (uint64_t i = 0; i < entries && i < MAX_DYNAMIC_ENTRIES; i++) {
        Elf64_Dyn entry;
        if (image_read_off(image, dynamic.off + i * sizeof(entry), &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_RELA)
            table_svma = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_RELASZ)
            bytes = entry.d_un.d_val;
    }
    uint64_t count = bytes / sizeof(Elf64_Rela);
    if (table_svma == 0 || table_svma > UINT64_MAX - bytes)
        return;
    relocations->svma = table_svma;
    relocations->left = count < MAX_RELOCATIONS ? count : MAX_RELOCATIONS;
}

static bool relocations_fill(struct relocations *relocations)
{
    size_t count = relocations->left < RELOCATIONS_AT_ONCE ? (size_t)relocations->left : RELOCATIONS_AT_ONCE;
    size_t bytes = count * sizeof(relocations->held[0]);
    if (count == 0 || image_read_svma(relocations->image, relocations->svma, relocations->held, bytes))
        return false;
    relocations->svma += bytes;
    relocations->left -= count;
    relocations->held_count = count;
    relocations->next = 0;
    return true;
}

/* The next relative relocation, borrowed until the next call; NULL: no more. */
static const Elf64_Rela *relocations_next(struct relocations *relocations)
{
    for (;;) {
        if (relocations->next == relocations->held_count && !relocations_fill(relocations))
            return NULL;
        const Elf64_Rela *relocation = &relocations->held[relocations->next++];
        if (ELF64_R_TYPE(relocation->r_info) == R_X86_64_RELATIVE)
            return relocation;
    }
}

void imagewords_relocate(const struct image *image, uint64_t svma, uint8_t *bytes, size_t size)
{
    struct relocations relocations;
    relocations_init(&relocations, image);
    const Elf64_Rela *relocation;
    while ((relocation = relocations_next(&relocations))) {
        uint64_t into = relocation->r_offset - svma;
        uint64_t value = (uint64_t)relocation->r_addend;
        if (relocation->r_offset >= svma && into < size && size - into >= sizeof(value))
            memcpy(bytes + into, &value, sizeof(value));
    }
}

struct search {
    const uint64_t *values;
    size_t count;
    imagewords_found found;
    void *state;
};

static bool is_sought(const struct search *search, uint64_t word)
{
    for (size_t i = 0; i < search->count; i++)
        if (search->values[i] == word)
            return true;
    return false;
}

/* `*budget` is what may still be read. true: the search is over. */
static bool search_segment(const struct image *image, const struct image_segment *segment, const struct search *search,
                           uint8_t *chunk, uint64_t *budget)
{
    uint64_t into = -segment->svma & (sizeof(uint64_t) - 1);
    while (into < segment->file_bytes && *budget != 0) {
        uint64_t left = segment->file_bytes - into;
        size_t size = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        size = size < *budget ? size : (size_t)*budget;
        if (image_read_off(image, segment->off + into, chunk, size))
            return false;
        for (size_t at = 0; size - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, chunk + at, sizeof(word));
            if (is_sought(search, word) && search->found(search->state, segment->svma + into + at))
                return true;
        }
        into += size;
        *budget -= size;
    }
    return false;
}

int imagewords_find(const struct image *image, const uint64_t *values, size_t count, imagewords_found found,
                    void *state)
{
    const struct search search = {.values = values, .count = count, .found = found, .state = state};
    uint8_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk)
        return -ENOMEM;
    uint64_t budget = SCAN_BYTES_MAX;
    size_t segment_count;
    const struct image_segment *segments = image_segments(image, &segment_count);
    bool over = false;
    for (size_t i = 0; i < segment_count && !over; i++)
        over = search_segment(image, &segments[i], &search, chunk, &budget);
    free(chunk);
    struct relocations relocations;
    relocations_init(&relocations, image);
    const Elf64_Rela *relocation;
    while (!over && (relocation = relocations_next(&relocations)))
        over = relocation->r_offset % sizeof(uint64_t) == 0 && is_sought(&search, (uint64_t)relocation->r_addend) &&
               found(state, relocation->r_offset);
    return 0;
}
