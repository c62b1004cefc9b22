#include "sampler/space.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A process may map at most vm.max_map_count areas (65530 unless raised); a line is rarely above 200 bytes. */
enum { MAPS_LIMIT_BYTES = 256 << 20 };

#define PERFMAP_RETRY_NS (100 * NS_PER_MS)

/* Opens a file of one thread for reading. Returns the descriptor, or -1 with errno. */
static int open_task_file(int proc_fd, pid_t tid, const char *file)
{
    char path[64];
    snprintf(path, sizeof(path), "task/%d/%s", (int)tid, file);
    return openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
}

int space_new_saved(pid_t pid, uint32_t number, struct space **ret_space)
{
    struct space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    space->number = number;
    space->pid = pid;
    space->proc_fd = -1;
    space->mem_fd = -1;
    space->statm_fd = -1;
    space->perfmap_fd = -1;
    *ret_space = space;
    return 0;
}

int space_new(pid_t pid, int proc_fd, pid_t tid, uint32_t number, struct space **ret_space)
{
    struct space *space;
    int no_memory = space_new_saved(pid, number, &space);
    if (no_memory)
        return no_memory;
    space->proc_fd = fcntl(proc_fd, F_DUPFD_CLOEXEC, 3);
    space->mem_fd = open_task_file(proc_fd, tid, "mem");
    if (space->proc_fd < 0 || space->mem_fd < 0) {
        int error = -errno;
        space_free(space);
        return error;
    }
    space->statm_fd = open_task_file(proc_fd, tid, "statm");
    *ret_space = space;
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void space_close(struct space *space)
{
    if (space->perfmap)
        space_read_perfmap(space);
    unwind_space_free(space->unwind);
    space->unwind = NULL;
    close_fd(&space->proc_fd);
    close_fd(&space->mem_fd);
    close_fd(&space->statm_fd);
}

void space_free(struct space *space)
{
    if (!space)
        return;
    space_close(space);
    close_fd(&space->perfmap_fd);
    perfmap_free(space->perfmap);
    remaps_deinit(&space->remaps);
    free(space);
}

bool space_is_gone(const struct space *space)
{
    /*
     * The descriptor holds the memory's description, not its pages: once the last user is gone (exec, exit) a read
     * gives 0. While it is in use, page 0 gives EIO, or a byte where it is mapped.
     */
    char byte;
    return pread(space->mem_fd, &byte, 1, 0) == 0;
}

uint64_t space_counter(const struct space *space)
{
    char text[128];
    ssize_t size = pread(space->statm_fd, text, sizeof(text), 0);
    uint64_t size_pages;
    uint64_t data_pages;
    if (size <= 0 || !procfs_parse_statm(text, (size_t)size, &size_pages, &data_pages))
        return 0;
    /* Private writable memory (malloc, stacks) moves all the time and holds no code: left out. */
    return size_pages - data_pages;
}

static int add_extent(struct address_map *map, const struct mapping *mapping)
{
    int error = array_room(&map->extents, &map->extent_capacity, map->extent_count + 1);
    if (error)
        return error;
    map->extents[map->extent_count++] =
        (struct extent){.start_avma = mapping->start_avma, .end_avma = mapping->end_avma};
    return 0;
}

/* One reading of the maps. */
struct reading {
    struct space *space;
    struct images *images;
    struct mapping *list;
    size_t count;
    struct mapped_file file; /* where the process is */
    struct remaps remaps;
};

static int find_image(struct reading *reading, size_t index, uint32_t *ret)
{
    static const char vdso[] = "[vdso]";
    const struct mapping *mapping = &reading->list[index];
    *ret = 0;
    if (mapping->path_size == sizeof(vdso) - 1 && memcmp(mapping->path, vdso, sizeof(vdso) - 1) == 0)
        return images_add_vdso(reading->images, reading->space->mem_fd, mapping, ret);
    if (mapping_is_anonymous(mapping))
        return 0;
    reading->file.mapping = mapping;
    reading->file.base = mappings_base(reading->list, index);
    return images_add_file(reading->images, &reading->file, ret);
}

/* The bias: where this mapping alone could be of several segments, the mapping of the file's beginning tells. */
static bool find_bias(const struct reading *reading, size_t index, const struct image *image, uint64_t *ret_bias)
{
    const struct mapping *mapping = &reading->list[index];
    const struct mapping *base = mapping->inode ? mappings_base(reading->list, index) : NULL;
    uint64_t bias;
    if (base && base != mapping && image_bias(image, base->start_avma, 0, base->executable, &bias) &&
        image_bias_fits(image, mapping->start_avma, mapping->off, bias)) {
        *ret_bias = bias;
        return true;
    }
    return image_bias(image, mapping->start_avma, mapping->off, true, ret_bias);
}

static int fill_region(struct reading *reading, size_t index, struct code_region *region, uint32_t *ret_image)
{
    const struct mapping *mapping = &reading->list[index];
    *region =
        (struct code_region){.start_avma = mapping->start_avma, .end_avma = mapping->end_avma, .map_off = mapping->off};
    if (remap_is_candidate(mapping)) {
        struct remap remap;
        int error = remap_find(&reading->space->remaps, &reading->remaps, reading->list, reading->count, index,
                               reading->images, &reading->file, &remap);
        *ret_image = error ? 0 : remap.image;
        if (error || !remap.image)
            return error;
        region->image = images_get(reading->images, remap.image);
        region->map_off = remap.map_off;
        region->bias = remap.bias;
        region->has_bias = true;
        return 0;
    }
    int error = find_image(reading, index, ret_image);
    const struct image *image = error ? NULL : images_get(reading->images, *ret_image);
    if (image && image_kind(image) == IMAGE_ELF) {
        region->image = image;
        region->has_bias = find_bias(reading, index, image, &region->bias);
    }
    return error;
}

static int add_region(struct reading *reading, size_t index, struct address_map *map)
{
    size_t number = map->code.count;
    int error = array_room(&map->regions, &map->region_capacity, number + 1);
    if (!error)
        error = array_room(&map->region_images, &map->image_capacity, number + 1);
    if (!error)
        error = fill_region(reading, index, &map->regions[number], &map->region_images[number]);
    if (!error)
        map->code.count++;
    return error;
}

struct address_map *address_map_new(size_t regions, size_t extents)
{
    struct address_map *map = calloc(1, sizeof(*map));
    if (!map)
        return NULL;
    map->references = 1;
    map->regions = calloc(regions + 1, sizeof(*map->regions));
    map->region_images = calloc(regions + 1, sizeof(*map->region_images));
    map->extents = calloc(extents + 1, sizeof(*map->extents));
    if (!map->regions || !map->region_images || !map->extents) {
        address_map_unref(map);
        return NULL;
    }
    map->code.regions = map->regions;
    map->code.count = regions;
    map->extent_count = extents;
    return map;
}

struct address_map *address_map_ref(struct address_map *map)
{
    atomic_fetch_add(&map->references, 1);
    return map;
}

void address_map_unref(struct address_map *map)
{
    if (!map || atomic_fetch_sub(&map->references, 1) != 1)
        return;
    free(map->regions);
    free(map->region_images);
    free(map->extents);
    free(map);
}

static int fill_map(struct reading *reading, struct address_map *map)
{
    int error = 0;
    for (size_t i = 0; i < reading->count && !error; i++) {
        if (reading->list[i].readable)
            error = add_extent(map, &reading->list[i]);
        if (reading->list[i].executable && !error)
            error = add_region(reading, i, map);
    }
    map->code.regions = map->regions;
    return error;
}

static int read_list(const struct space *space, pid_t tid, char **ret_text, struct mapping **ret_list,
                     size_t *ret_count)
{
    autoclose int fd = open_task_file(space->proc_fd, tid, "maps");
    if (fd < 0)
        return -errno;
    size_t size;
    int error = fileio_read_all(fd, MAPS_LIMIT_BYTES, ret_text, &size);
    return error ? error : mappings_parse(*ret_text, size, ret_list, ret_count);
}

int space_read_maps(struct space *space, pid_t tid, struct images *images, struct address_map **ret_map)
{
    static atomic_uint_fast64_t generation;
    struct reading reading = {
        .space = space, .images = images, .file = {.proc_fd = space->proc_fd, .mem_fd = space->mem_fd, .tid = tid}};
    char *text = NULL;
    struct address_map *map = NULL;
    int error = read_list(space, tid, &text, &reading.list, &reading.count);
    if (!error) {
        map = address_map_new(0, 0);
        error = map ? 0 : -ENOMEM;
    }
    if (!error) {
        map->code.generation = atomic_fetch_add(&generation, 1) + 1;
        error = fill_map(&reading, map);
    }
    if (!error && (map->extent_count == 0 || space_is_gone(space)))
        error = -ESRCH; /* exec or exit: what was read may be another image's */
    free(reading.list);
    free(text);
    if (error) {
        remaps_deinit(&reading.remaps);
        address_map_unref(map);
        return error;
    }
    remaps_deinit(&space->remaps);
    space->remaps = reading.remaps;
    *ret_map = map;
    return 0;
}

const struct extent *address_map_extent(const struct address_map *map, uint64_t avma)
{
    size_t low = 0;
    size_t high = map->extent_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (map->extents[middle].end_avma <= avma)
            low = middle + 1;
        else
            high = middle;
    }
    return low < map->extent_count && map->extents[low].start_avma <= avma ? &map->extents[low] : NULL;
}

void space_find_perfmap(struct space *space, pid_t tid)
{
    uint64_t now_ns = clock_now_ns();
    if (space->perfmap_fd >= 0 || space->proc_fd < 0 || now_ns - space->perfmap_tried_ns < PERFMAP_RETRY_NS)
        return;
    space->perfmap_tried_ns = now_ns;
    struct procfs_status status;
    if (procfs_read_status(space->proc_fd, &status) < 0)
        return;
    char path[96];
    snprintf(path, sizeof(path), "task/%d/root/tmp/perf-%d.map", (int)tid, (int)status.innermost_tgid);
    int fd = perfmap_open_file(space->proc_fd, path, status.fs_uid);
    if (fd < 0)
        return;
    if (!space->perfmap)
        space->perfmap = perfmap_new();
    if (space->perfmap)
        space->perfmap_fd = fd;
    else
        close(fd);
}

void space_read_perfmap(struct space *space)
{
    if (space->perfmap && space->perfmap_fd >= 0)
        perfmap_read(space->perfmap, space->perfmap_fd);
}
