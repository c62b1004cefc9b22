#include "sampler/place.h"

#include "common/strbuf.h"
#include "symbolize/symbolize.h"

#include <errno.h>
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

/* Between two questions whether to give up; also the first frame of each image may take a while. */
enum { ASK_FRAMES = 16 };

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

static int name_frame(struct profile *profile, uint32_t number, struct symbolizer *symbolizer,
                      const struct images *images, struct space *const *spaces, size_t space_count)
{
    const struct place *place = &profile->frames[number].place;
    const struct image *image = images_get(images, place->image);
    const struct space *space = place->space && place->space <= space_count ? spaces[place->space - 1] : NULL;
    struct perfmap_entry entry;
    if (space && space->perfmap && perfmap_find(space->perfmap, place->off, &entry))
        return profile_add_name(profile, number, entry.name, NAME_JIT);
    const char *name = image && !place->space ? symbolizer_find(symbolizer, image, place->off) : NULL;
    if (name)
        return profile_add_name(profile, number, name, NAME_FUNCTION);
    if (image)
        return add_file_name(profile, number, image_path(image));
    return profile_add_name(profile, number, space ? "[anon]" : "[unknown]", NAME_NONE);
}

int place_name_all(struct profile *profile, const struct images *images, struct space *const *spaces,
                   size_t space_count, bool (*is_cancelled)(void *context), void *context)
{
    struct symbolizer *symbolizer = symbolizer_new();
    if (!symbolizer)
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; i < profile->frame_count && !error; i++) {
        if (i % ASK_FRAMES == 0 && is_cancelled(context))
            error = -ECANCELED;
        else
            error = name_frame(profile, (uint32_t)i, symbolizer, images, spaces, space_count);
    }
    symbolizer_free(symbolizer);
    return error;
}
