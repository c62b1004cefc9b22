#include "sampler/remap.h"

#include "common/array.h"
#include "common/fileio.h"
#include "sampler/samefile.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOKS_MAX = 8,
    NEAR_LINES = 16, /* of the maps, that are looked at in each direction */
    REMAPS_MAX = 256 /* JIT compilers make thousands of regions; of what comes behind so many nothing is remembered */
};

void remaps_deinit(struct remaps *remaps)
{
    free(remaps->items);
    *remaps = (struct remaps){0};
}

static bool has_prefix(const struct mapping *mapping, const char *prefix)
{
    size_t length = strlen(prefix);
    return mapping->path_size >= length && memcmp(mapping->path, prefix, length) == 0;
}

bool remap_is_candidate(const struct mapping *mapping)
{
    return mapping->executable && mapping->readable &&
           (mapping->path_size == 0 || has_prefix(mapping, "[anon:") || has_prefix(mapping, "/anon_hugepage"));
}

/* One region, and where it is looked for. */
struct search {
    const struct mapping *list;
    size_t count;
    size_t index;
    struct images *images;
    struct mapped_file file;
    struct remap *found;
};

/* The executable segment that would be there with that bias: by whole pages, as they are mapped. */
static bool find_segment(const struct image *image, const struct mapping *region, uint64_t bias, uint64_t *ret_off)
{
    const uint64_t in_page = 4095;
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    uint64_t start = region->start_avma - bias;
    uint64_t size = region->end_avma - region->start_avma;
    for (size_t i = 0; i < count; i++) {
        uint64_t first = segments[i].svma & ~in_page;
        uint64_t bytes = (segments[i].svma - first + segments[i].file_bytes + in_page) & ~in_page;
        if (!segments[i].executable || start < first || start - first > bytes || size > bytes - (start - first))
            continue;
        *ret_off = segments[i].off - (segments[i].svma - start);
        return true;
    }
    return false;
}

/* Whether the region is code of this image, if the image lies as that mapping says. */
static bool is_code_of(struct search *search, uint32_t number, const struct image *image, const struct mapping *mapping)
{
    const struct mapping *region = &search->list[search->index];
    uint64_t bias;
    uint64_t off;
    if (!image_bias(image, mapping->start_avma, mapping->off, mapping->executable, &bias) ||
        !find_segment(image, region, bias, &off) ||
        !samefile_has_code(image, search->file.mem_fd, region->start_avma, region->end_avma - region->start_avma, bias))
        return false;
    search->found->image = number;
    search->found->bias = bias;
    search->found->map_off = off;
    return true;
}

/* Data files lie between code, too: only what begins as an ELF file does is opened. */
static bool is_elf(const struct search *search, const struct mapping *base)
{
    uint8_t magic[SELFMAG];
    uint64_t avma = base ? base->start_avma : search->list[search->index].start_avma;
    return fileio_pread(search->file.mem_fd, magic, sizeof(magic), avma) == (ssize_t)sizeof(magic) &&
           memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* All mappings nearby of the file that list[at] is of. Which segment a mapping is of is not always clear, so each may
 * say. Returns 0 or -ENOMEM. */
static int look_at_file(struct search *search, size_t at)
{
    search->file.mapping = &search->list[at];
    search->file.base = mappings_base(search->list, at);
    uint32_t number;
    if (!is_elf(search, search->file.base))
        return 0;
    int error = images_add_file(search->images, &search->file, &number);
    const struct image *image = error ? NULL : images_get(search->images, number);
    if (!image || image_kind(image) != IMAGE_ELF)
        return error;
    size_t first = search->index > NEAR_LINES ? search->index - NEAR_LINES : 0;
    for (size_t i = first; i < search->count && i <= search->index + NEAR_LINES; i++) {
        const struct mapping *mapping = &search->list[i];
        if (i != search->index && mapping_is_same_file(mapping, &search->list[at]) &&
            is_code_of(search, number, image, mapping))
            return 0;
    }
    return 0;
}

static bool is_file(const struct mapping *mapping)
{
    return mapping->inode != 0 && !mapping_is_anonymous(mapping);
}

/* The nearest file above and the nearest below. */
static int look(struct search *search)
{
    size_t below = search->index;
    for (size_t i = 1; i <= NEAR_LINES && i <= search->index && below == search->index; i++)
        if (is_file(&search->list[search->index - i]))
            below = search->index - i;
    int error = below != search->index ? look_at_file(search, below) : 0;
    if (error || search->found->image)
        return error;
    for (size_t i = search->index + 1; i < search->count && i <= search->index + NEAR_LINES; i++)
        if (is_file(&search->list[i])) {
            bool is_new = below == search->index || !mapping_is_same_file(&search->list[i], &search->list[below]);
            return is_new ? look_at_file(search, i) : 0;
        }
    return 0;
}

int remap_find(const struct remaps *before, struct remaps *now, const struct mapping *list, size_t count, size_t index,
               struct images *images, const struct mapped_file *file, struct remap *ret)
{
    struct remap found = {.start_avma = list[index].start_avma, .end_avma = list[index].end_avma};
    for (size_t i = 0; i < before->count; i++)
        if (before->items[i].start_avma == found.start_avma && before->items[i].end_avma == found.end_avma)
            found = before->items[i];
    *ret = found;
    if (now->count >= REMAPS_MAX)
        return 0;
    if (!found.image && found.looks < LOOKS_MAX) {
        struct search search = {
            .list = list, .count = count, .index = index, .images = images, .file = *file, .found = &found};
        found.looks++;
        int error = look(&search);
        if (error)
            return error;
    }
    int error = array_room(&now->items, &now->capacity, now->count + 1);
    if (error)
        return error;
    now->items[now->count++] = found;
    *ret = found;
    return 0;
}
