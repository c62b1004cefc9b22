#include "unwind/cfiindex.h"

#include "common/array.h"
#include "unwind/cfientry.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nothing real comes near: limits for what a sparse file may claim, and for the time that it may take. */
enum { SECTION_BYTES_MAX = 1 << 28, SPANS_MAX = 1 << 22 };
/* Of one CIE. */
enum { CIE_BYTES_MAX = 1 << 16 };

uint64_t cfiindex_start(const struct cfiindex *index, size_t n)
{
    return index->base_svma + (uint64_t)(int64_t)index->spans[n].start;
}

/* Starts that ascend as numbers, but not as addresses, are nobody's: it becomes empty. */
static void drop_if_wrapping(struct cfiindex *index)
{
    if (index->count > 0 && cfiindex_start(index, 0) > cfiindex_start(index, index->count - 1))
        index->count = 0;
}

/* ---- the search table ---- */

/* PT_GNU_EH_FRAME: version, three encodings, pointer to .eh_frame, number of entries, entries. */
struct search_header {
    uint64_t eh_frame_svma;
    bool has_table;
    uint64_t count;
    size_t table_off;
};

enum { SEARCH_ENTRY_BYTES = 8 };

static bool search_header_read(const uint8_t *data, const struct image_section *section, struct search_header *ret)
{
    struct cfi_reader reader = {.bytes = {.data = data, .size = (size_t)section->bytes, .svma = section->svma}};
    uint64_t version = cfi_read_number(&reader, 1);
    uint8_t frame_encoding = (uint8_t)cfi_read_number(&reader, 1);
    uint8_t count_encoding = (uint8_t)cfi_read_number(&reader, 1);
    uint8_t table_encoding = (uint8_t)cfi_read_number(&reader, 1);
    if (reader.bad || version != 1)
        return false;
    struct search_header header = {0};
    header.eh_frame_svma = cfi_read_pointer(&reader, frame_encoding, section->svma);
    if (reader.bad)
        return false;
    if (count_encoding == PE_UDATA4 && table_encoding == (PE_DATAREL | PE_SDATA4)) {
        header.count = cfi_read_number(&reader, 4);
        header.table_off = reader.position;
        size_t room = reader.bytes.size - reader.position;
        header.has_table = !reader.bad && header.count > 0 && header.count <= room / SEARCH_ENTRY_BYTES;
    }
    *ret = header;
    return true;
}

static int take_search_table(struct cfiindex *index, const uint8_t *entries, size_t count)
{
    if (count > SPANS_MAX)
        return 0;
    int err = array_room(&index->spans, &index->capacity, count);
    if (err)
        return err;
    for (size_t i = 0; i < count; i++) {
        struct cfi_span span = {0};
        memcpy(&span.start, entries + i * SEARCH_ENTRY_BYTES, 4);
        memcpy(&span.fde, entries + i * SEARCH_ENTRY_BYTES + 4, 4);
        if (i > 0 && span.start < index->spans[i - 1].start)
            return 0; /* not sorted: it stays empty */
        index->spans[i] = span;
    }
    index->count = count;
    drop_if_wrapping(index);
    return 0;
}

int cfiindex_read_search(struct cfiindex *index, const struct image *image)
{
    struct image_section section;
    if (!image_find_eh_frame_hdr(image, &section))
        return 0;
    uint8_t *data;
    size_t size;
    int err = image_load_section(image, &section, SECTION_BYTES_MAX, &data, &size);
    if (err)
        return err == -ENOMEM ? err : 0;
    struct search_header header;
    if (search_header_read(data, &section, &header) && header.has_table) {
        index->base_svma = section.svma;
        err = take_search_table(index, data + header.table_off, (size_t)header.count);
    }
    free(data);
    return err;
}

/* ---- passes over entries ---- */

/* A discarded function's address may lie in the image all the same, where that begins at address 0. */
static bool is_code(const struct image *image, uint64_t start_svma, uint64_t end_svma)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        const struct image_segment *segment = &segments[i];
        if (!segment->executable || start_svma < segment->svma || start_svma - segment->svma >= segment->file_bytes)
            continue;
        uint64_t into = start_svma - segment->svma;
        return end_svma - segment->svma <= segment->file_bytes && segment->off + into >= sizeof(Elf64_Ehdr);
    }
    return false;
}

/* Returns 0, -ENOMEM, or -ENOSPC when there are as many as may be. */
static int add_span(struct cfiindex *index, const struct cfi_fde *fde, size_t fde_off)
{
    int64_t start = (int64_t)(fde->start_svma - index->base_svma);
    uint64_t bytes = fde->end_svma - fde->start_svma;
    if (start != (int32_t)start || bytes > UINT32_MAX)
        return 0; /* more than 2 GB away: not an address of this image */
    if (index->count == SPANS_MAX)
        return -ENOSPC;
    int err = array_room(&index->spans, &index->capacity, index->count + 1);
    if (err)
        return err;
    index->spans[index->count++] =
        (struct cfi_span){.start = (int32_t)start, .fde = (int32_t)fde_off, .bytes = (uint32_t)bytes};
    return 0;
}

/* By start, then the longest, then the first. */
static int compare_spans(const void *a, const void *b)
{
    const struct cfi_span *left = a;
    const struct cfi_span *right = b;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return left->fde < right->fde ? -1 : left->fde > right->fde;
}

static void sort_spans(struct cfiindex *index)
{
    bool sorted = true;
    for (size_t i = 1; i < index->count && sorted; i++)
        sorted = compare_spans(&index->spans[i - 1], &index->spans[i]) < 0;
    if (!sorted)
        qsort(index->spans, index->count, sizeof(*index->spans), compare_spans);
    size_t kept = 0;
    for (size_t i = 0; i < index->count; i++) {
        if (kept == 0 || index->spans[kept - 1].start != index->spans[i].start)
            index->spans[kept++] = index->spans[i];
    }
    index->count = kept;
    drop_if_wrapping(index);
}

/* The CIE that was parsed last: entries that share one mostly stand together. */
struct last_cie {
    uint64_t off;
    bool good;
    struct cfi_cie cie;
};

static void read_cie(struct cfi_bytes bytes, uint64_t off, struct last_cie *cie)
{
    if (off == cie->off)
        return;
    cie->off = off;
    cie->good = false;
    struct cfi_head head;
    if (cfi_head_read(bytes, (size_t)off, &head) != CFI_HEAD_ENTRY || head.cie_distance != 0)
        return;
    cie->good = head.end_off - off <= CIE_BYTES_MAX && cfi_cie_read(bytes, &head, &cie->cie);
}

/* `whole`: the bytes are the section and nothing else, so a terminator (crtend.o's) does not end it. */
static int walk_entries(struct cfiindex *index, const struct image *image, struct cfi_bytes bytes, bool whole)
{
    struct last_cie cie = {.off = UINT64_MAX};
    for (size_t off = 0; off < bytes.size;) {
        struct cfi_head head;
        enum cfi_head_answer answer = cfi_head_read(bytes, off, &head);
        if (answer == CFI_HEAD_TERMINATOR && whole) {
            off += 4;
            continue;
        }
        if (answer != CFI_HEAD_ENTRY)
            break; /* damaged, but what came before is as good as it was */
        if (head.cie_distance != 0) {
            struct cfi_fde fde;
            read_cie(bytes, head.id_off - head.cie_distance, &cie);
            int err = 0;
            if (cie.good && cfi_fde_read(bytes, &head, &cie.cie, &fde) && is_code(image, fde.start_svma, fde.end_svma))
                err = add_span(index, &fde, off);
            if (err == -ENOSPC)
                break;
            if (err)
                return err;
        }
        off = head.end_off;
    }
    sort_spans(index);
    return 0;
}

/* ---- .eh_frame ---- */

/* The segment's bytes from that address on. */
static bool rest_of_segment(const struct image *image, uint64_t svma, struct image_section *ret_section)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t into = svma - segments[i].svma;
        if (svma >= segments[i].svma && into < segments[i].file_bytes) {
            *ret_section = (struct image_section){
                .off = segments[i].off + into, .svma = svma, .bytes = segments[i].file_bytes - into};
            return true;
        }
    }
    return false;
}

/* .eh_frame by its section header, if that agrees with the segments, or by what PT_GNU_EH_FRAME says. */
static bool find_eh_frame(const struct image *image, struct image_section *ret_section, bool *ret_whole)
{
    struct image_section section;
    uint64_t off;
    if (image_find_section(image, ".eh_frame", &section) && section.compression == IMAGE_STORED &&
        image_svma_to_off(image, section.svma, &off) && off == section.off) {
        *ret_section = section;
        *ret_whole = true;
        return true;
    }
    uint8_t start[16] = {0};
    if (!image_find_eh_frame_hdr(image, &section) || section.bytes < sizeof(start) ||
        image_read_off(image, section.off, start, sizeof(start)) < 0)
        return false;
    section.bytes = sizeof(start);
    struct search_header header;
    *ret_whole = false;
    return search_header_read(start, &section, &header) && rest_of_segment(image, header.eh_frame_svma, ret_section);
}

int cfiindex_read_eh_frame(struct cfiindex *index, const struct image *image)
{
    struct image_section section;
    bool whole;
    if (!find_eh_frame(image, &section, &whole))
        return 0;
    if (section.bytes > SECTION_BYTES_MAX && !whole)
        section.bytes = SECTION_BYTES_MAX;
    uint8_t *data;
    size_t size;
    int err = image_load_section(image, &section, SECTION_BYTES_MAX, &data, &size);
    if (err)
        return err == -ENOMEM ? err : 0;
    index->base_svma = section.svma;
    struct cfi_bytes bytes = {.data = data, .size = size, .svma = section.svma};
    err = walk_entries(index, image, bytes, whole);
    free(data);
    return err;
}

/* ---- .debug_frame ---- */

int cfiindex_read_debug_frame(struct cfiindex *index, const struct image *image, const uint8_t *data, size_t size)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    if (count == 0)
        return 0;
    index->base_svma = segments[0].svma;
    struct cfi_bytes bytes = {.data = data, .size = size, .format = CFI_DEBUG_FRAME};
    return walk_entries(index, image, bytes, true);
}

/* ---- questions ---- */

void cfiindex_deinit(struct cfiindex *index)
{
    free(index->spans);
    *index = (struct cfiindex){0};
}

size_t cfiindex_find(const struct cfiindex *index, uint64_t svma)
{
    size_t low = 0;
    size_t high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cfiindex_start(index, middle) <= svma)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? SIZE_MAX : low - 1;
}
