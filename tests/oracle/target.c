#include "target.h"

#include "common/array.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "sampler/capture_arch.h"
#include "sampler/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAPS_LIMIT_BYTES = 64 << 20 };

int target_open(pid_t pid, enum unwind_mode mode, struct target *ret_target)
{
    struct target target = {.pid = pid, .proc_fd = procfs_open_process(pid), .mode = mode};
    if (target.proc_fd < 0)
        return target.proc_fd;
    target.images = images_new();
    target.unwinder = unwinder_new(mode, TRACE_DEPTH);
    target.copy = malloc(2 * (size_t)TARGET_COPY_BYTES);
    if (!target.images || !target.unwinder || !target.copy) {
        target_close(&target);
        return -ENOMEM;
    }
    *ret_target = target;
    return 0;
}

void target_close(struct target *target)
{
    address_map_unref(target->map);
    for (size_t i = 0; i < target->space_count; i++)
        space_free(target->spaces[i]);
    free(target->spaces);
    unwinder_free(target->unwinder);
    images_free(target->images);
    stack_deinit(&target->stack);
    free(target->copy);
    if (target->proc_fd >= 0)
        close(target->proc_fd);
    *target = (struct target){.proc_fd = -1};
}

struct space *target_space(const struct target *target)
{
    return target->space_count ? target->spaces[target->space_count - 1] : NULL;
}

/* ---- maps ---- */

struct maps_hashes {
    uint64_t all;
    uint64_t code;
};

static int hash_maps(const struct target *target, pid_t tid, struct maps_hashes *ret)
{
    char path[48];
    snprintf(path, sizeof(path), "task/%d/maps", (int)tid);
    autoclose int fd = openat(target->proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char *text;
    size_t size;
    int error = fileio_read_all(fd, MAPS_LIMIT_BYTES, &text, &size);
    if (error)
        return error;
    struct maps_hashes hashes = {.all = hash_bytes(text, size)};
    const char *cursor = text;
    const char *end = text + size;
    while (cursor < end) {
        const char *line = cursor;
        struct mapping mapping;
        if (mapping_parse(&cursor, end, &mapping) && mapping.executable)
            hashes.code = hash_pair(hashes.code, hash_bytes(line, (size_t)(cursor - line)));
    }
    free(text);
    *ret = hashes;
    return 0;
}

bool target_has_moved(const struct target *target, pid_t tid)
{
    struct maps_hashes hashes;
    return hash_maps(target, tid, &hashes) < 0 || hashes.all != target->maps_hash;
}

static int begin_space(struct target *target, pid_t tid)
{
    struct space *space;
    int error = array_room(&target->spaces, &target->space_capacity, target->space_count + 1);
    if (!error)
        error = space_new(target->pid, target->proc_fd, tid, (uint32_t)target->space_count + 1, &space);
    if (!error)
        space->unwind = unwind_space_new(target->unwinder);
    if (error)
        return error;
    if (target->space_count)
        space_close(target_space(target));
    target->spaces[target->space_count++] = space;
    return space->unwind ? 0 : -ENOMEM;
}

int target_refresh(struct target *target, pid_t tid, bool *ret_code_changed)
{
    struct space *space = target_space(target);
    bool is_new = !space || space_is_gone(space);
    int error = is_new ? begin_space(target, tid) : 0;
    struct maps_hashes hashes;
    if (!error)
        error = hash_maps(target, tid, &hashes);
    if (error)
        return error;
    if (is_new || !target->map || hashes.all != target->maps_hash) {
        struct address_map *map;
        error = space_read_maps(target_space(target), tid, target->images, &map);
        if (error)
            return error;
        /* As long as no code moved, what the unwinder has learned by the old generation is true. */
        if (!is_new && target->map && hashes.code == target->code_hash)
            map->code.generation = target->map->code.generation;
        address_map_unref(target->map);
        target->map = map;
    }
    *ret_code_changed = is_new || hashes.code != target->code_hash;
    target->maps_hash = hashes.all;
    target->code_hash = hashes.code;
    return 0;
}

/* ---- our walk ---- */

/* One more stack, from the red zone below `sp` to the end of its mapping, behind the `used` bytes of the copy. */
static int copy_stack(struct target *target, uint64_t sp, size_t used)
{
    const struct extent *extent = address_map_extent(target->map, sp);
    struct snapshot *snapshot = &target->snapshot;
    if (!extent)
        return -EFAULT;
    uint64_t start =
        sp - extent->start_avma < capture_arch.red_zone_bytes ? extent->start_avma : sp - capture_arch.red_zone_bytes;
    start &= ~UINT64_C(7);
    size_t size = extent->end_avma - start < TARGET_COPY_BYTES ? extent->end_avma - start : TARGET_COPY_BYTES;
    ssize_t got = fileio_pread(target_space(target)->mem_fd, target->copy + used, size, start);
    if (got <= 0)
        return got < 0 ? (int)got : -EFAULT;
    if (snapshot->range_count == 0) {
        snapshot->stack_start_avma = extent->start_avma;
        snapshot->stack_end_avma = extent->end_avma;
    }
    snapshot->ranges[snapshot->range_count++] = (struct memory_range){
        .avma = start, .bytes = target->copy + used, .size = (size_t)got, .mapping_end_avma = extent->end_avma};
    return 0;
}

int target_copy(struct target *target, const struct stop *stop)
{
    target->snapshot = (struct snapshot){.registers = stop->registers};
    int error = copy_stack(target, stop->registers.value[REGISTER_RSP], 0);
    if (error)
        return error;
    /* The one that a signal handler interrupted, as the sampler does. */
    const struct memory_range *stack = &target->snapshot.ranges[0];
    uint64_t place;
    uint64_t end;
    uint64_t sp;
    if (capture_arch.find_interrupted(stack->bytes, stack->size, stack->avma, &place, &end) &&
        snapshot_read(&target->snapshot, place, &sp, sizeof(sp)) && !snapshot_read(&target->snapshot, sp, &place, 8))
        copy_stack(target, sp, (stack->size + 7) & ~(size_t)7);
    return 0;
}

static bool read_space(void *context, uint64_t avma, void *buffer, size_t size)
{
    return target_read(context, avma, buffer, size);
}

bool target_read(const struct target *target, uint64_t avma, void *buffer, size_t size)
{
    return fileio_pread(target_space(target)->mem_fd, buffer, size, avma) == (ssize_t)size;
}

static int walk(struct target *target, const struct snapshot *snapshot, struct trace *ret_trace)
{
    struct memory_reader reader = {.read = read_space, .context = target};
    struct stack *stack = &target->stack;
    int error =
        unwind_walk(target->unwinder, target_space(target)->unwind, &target->map->code, snapshot, &reader, stack);
    if (error)
        return error;
    trace_clear(ret_trace);
    for (size_t i = 0; i < stack->count; i++) {
        const struct frame *frame = &stack->frames[i];
        trace_add(ret_trace, (struct trace_frame){.avma = frame->avma, .exact = frame->exact, .by = frame->by});
    }
    ret_trace->at_root = stack->end == STACK_COMPLETE;
    snprintf(ret_trace->end, sizeof(ret_trace->end), "%s", stack_end_name(stack->end));
    return 0;
}

int target_walk(struct target *target, struct trace *ret_trace)
{
    return walk(target, &target->snapshot, ret_trace);
}

int target_walk_reduced(struct target *target, struct trace *ret_trace)
{
    struct snapshot reduced = target->snapshot;
    reduced.registers.known = 1U << REGISTER_RSP | 1U << REGISTER_PC | 1U << REGISTER_RDI | 1U << REGISTER_RSI |
                              1U << REGISTER_RDX | 1U << REGISTER_R10 | 1U << REGISTER_R8 | 1U << REGISTER_R9;
    return walk(target, &reduced, ret_trace);
}

const char *target_place(const struct target *target, uint64_t avma, char *buffer, size_t size)
{
    const struct code_region *region = codemap_find(&target->map->code, avma);
    if (!region) {
        snprintf(buffer, size, "?");
        return buffer;
    }
    if (!region->image) {
        snprintf(buffer, size, "[anon]");
        return buffer;
    }
    const char *path = image_path(region->image);
    const char *slash = strrchr(path, '/');
    uint64_t off = avma - region->start_avma + region->map_off;
    snprintf(buffer, size, "%s+0x%llx", slash ? slash + 1 : path, (unsigned long long)off);
    return buffer;
}
