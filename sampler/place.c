#include "sampler/place.h"

#include "common/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct place place_of_frame(const struct space *space, const struct address_map *map, const struct frame *frame)
{
    uint64_t avma = frame_lookup_avma(frame->avma, frame->exact);
    const struct code_region *region = codemap_find(&map->code, avma);
    if (!region)
        return (struct place){0};
    uint32_t image = map->region_images[region - map->regions];
    if (region->image)
        return (struct place){.image = image, .off = avma - region->start_avma + region->map_off};
    return (struct place){.image = image, .space = space->number, .off = avma};
}

/* "[libc.so.6]"; "[vdso]" has its brackets already. */
static int add_file_name(struct profile *profile, uint32_t frame, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    struct strbuf text = {0};
    strbuf_addf(&text, base[0] == '[' ? "%s" : "[%s]", base);
    int error = strbuf_error(&text);
    if (!error)
        error = profile_add_name(profile, frame, text.data, NAME_NONE);
    strbuf_deinit(&text);
    return error;
}

/* The frames that are in images, in the order of images and addresses: each table is gone through once. */
struct located {
    uint32_t image;
    uint32_t frame;
    uint64_t off;
};

static int compare_located(const void *left, const void *right)
{
    const struct located *a = left;
    const struct located *b = right;
    if (a->image != b->image)
        return a->image < b->image ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    return 0;
}

/* Those of one image, in work. */
struct naming {
    struct profile *profile;
    const struct image *image;
    const struct located *located;
};

static int add_names(void *context, size_t index, const struct called *called, size_t count)
{
    const struct naming *naming = context;
    uint32_t frame = naming->located[index].frame;
    int error = count ? 0 : add_file_name(naming->profile, frame, image_path(naming->image));
    for (size_t i = 0; i < count && !error; i++)
        error =
            profile_add_named_line(naming->profile, frame, called[i].function,
                                   called[i].is_inlined ? NAME_INLINED : NAME_FUNCTION, called[i].file, called[i].line);
    return error;
}

static int name_located(struct profile *profile, const struct images *images, const struct located *located,
                        size_t count, uint64_t *offs, struct symbolizer *symbolizer)
{
    int error = 0;
    for (size_t first = 0, end; first < count && !error; first = end) {
        uint32_t number = located[first].image;
        for (end = first; end < count && located[end].image == number; end++)
            offs[end - first] = located[end].off;
        struct naming naming = {.profile = profile, .image = images_get(images, number), .located = located + first};
        error = symbolizer_resolve(symbolizer, naming.image, offs, end - first, add_names, &naming);
    }
    return error;
}

/* All that is not in an image whose tables are known. */
static int name_elsewhere(struct profile *profile, uint32_t number, const struct image *image,
                          const struct space *space)
{
    struct perfmap_entry entry;
    const struct place *place = &profile->frames[number].place;
    if (space && space->perfmap && perfmap_find(space->perfmap, place->off, &entry))
        return profile_add_name(profile, number, entry.name, NAME_JIT);
    if (image)
        return add_file_name(profile, number, image_path(image));
    return profile_add_name(profile, number, space ? "[anon]" : "[unknown]", NAME_NONE);
}

static int name_all(struct profile *profile, const struct images *images, struct space *const *spaces,
                    size_t space_count, struct located *located, uint64_t *offs, struct symbolizer *symbolizer)
{
    size_t count = 0;
    int error = 0;
    for (uint32_t i = 0; i < profile->frame_count && !error; i++) {
        const struct place *place = &profile->frames[i].place;
        const struct image *image = images_get(images, place->image);
        const struct space *space = place->space && place->space <= space_count ? spaces[place->space - 1] : NULL;
        if (image && !place->space)
            located[count++] = (struct located){.image = place->image, .frame = i, .off = place->off};
        else
            error = name_elsewhere(profile, i, image, space);
    }
    if (error || count == 0)
        return error;
    qsort(located, count, sizeof(*located), compare_located);
    return name_located(profile, images, located, count, offs, symbolizer);
}

int place_name_all(struct profile *profile, const struct images *images, struct space *const *spaces,
                   size_t space_count, const struct symbolizer_options *options)
{
    struct symbolizer *symbolizer = symbolizer_new(options);
    struct located *located = calloc(profile->frame_count + 1, sizeof(*located));
    uint64_t *offs = calloc(profile->frame_count + 1, sizeof(*offs));
    int error = -ENOMEM;
    if (symbolizer && located && offs)
        error = name_all(profile, images, spaces, space_count, located, offs, symbolizer);
    free(offs);
    free(located);
    symbolizer_free(symbolizer);
    return error;
}
