#include "sampler/injectplace.h"

#include "common/array.h"
#include "common/fileio.h"
#include "sampler/capture_arch.h"
#include "sampler/injectlibc.h"
#include "sampler/injectnames.h"
#include "sampler/injectthreads.h"
#include "symbolize/dynsym.h"
#include "symbolize/symtab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COPY_MAX_BYTES = 1 << 20,
    DEPTH_MAX = 1024,
    MAPS_LIMIT_BYTES = 64 << 20,
    /* Frames of the C library between a thread's or program's start and its first function. */
    ROOT_FRAMES_MAX = 3
};

int injectplace_open(pid_t pid, int proc_fd, struct inject_process *ret)
{
    struct inject_process process = {.pid = pid, .proc_fd = proc_fd};
    process.tid = injectthreads_find_living(proc_fd);
    if (!process.tid)
        return -ESRCH;
    process.images = images_new();
    process.unwinder = unwinder_new(UNWIND_AUTO, DEPTH_MAX);
    process.copy = malloc(COPY_MAX_BYTES);
    int error = process.images && process.unwinder && process.copy ? 0 : -ENOMEM;
    if (!error)
        error = space_new(pid, proc_fd, process.tid, 1, &process.space);
    if (!error) {
        process.space->unwind = unwind_space_new(process.unwinder);
        error = process.space->unwind ? 0 : -ENOMEM;
    }
    if (error)
        injectplace_close(&process);
    else
        *ret = process;
    return error;
}

void injectplace_close(struct inject_process *process)
{
    address_map_unref(process->map);
    if (process->space)
        space_free(process->space);
    if (process->unwinder)
        unwinder_free(process->unwinder);
    for (size_t i = 0; i < process->known_capacity; i++)
        symtab_free(process->known[i].symtab);
    free(process->known);
    if (process->images)
        images_free(process->images);
    stack_deinit(&process->stack);
    free(process->copy);
    *process = (struct inject_process){.proc_fd = -1};
}

/* ---- maps ---- */

/* "[stack]" in the maps: the main thread's. */
static int find_first_stack(struct inject_process *process)
{
    static const char name[] = "[stack]";
    char *text;
    size_t size;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/maps", (int)process->tid);
    autoclose int fd = openat(process->proc_fd, path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? -errno : fileio_read_all(fd, MAPS_LIMIT_BYTES, &text, &size);
    if (error)
        return error;
    const char *cursor = text;
    struct mapping mapping;
    while (cursor < text + size)
        if (mapping_parse(&cursor, text + size, &mapping) && mapping.path_size == sizeof(name) - 1 &&
            memcmp(mapping.path, name, mapping.path_size) == 0)
            process->first_stack =
                (struct inject_stack){.start_avma = mapping.start_avma, .end_avma = mapping.end_avma};
    free(text);
    return 0;
}

int injectplace_refresh(struct inject_process *process)
{
    uint64_t counter = space_counter(process->space);
    process->tid = injectthreads_find_living(process->proc_fd);
    if (!process->tid || space_is_gone(process->space))
        return -ESRCH;
    if (process->map && counter && counter == process->map_counter)
        return 0;
    struct address_map *map;
    int error = space_read_maps(process->space, process->tid, process->images, &map);
    if (!error)
        error = find_first_stack(process);
    if (error)
        return error;
    address_map_unref(process->map);
    process->map = map;
    process->map_counter = counter;
    return 0;
}

bool injectplace_is_current(const struct inject_process *process)
{
    return space_counter(process->space) == process->map_counter;
}

/* ---- the stack ---- */

int injectplace_copy(struct inject_process *process, const struct inject_held *held, size_t limit_bytes)
{
    uint64_t sp = held->registers.value[REGISTER_RSP];
    const struct extent *extent = address_map_extent(process->map, sp);
    if (!extent)
        return -EFAULT;
    uint64_t red_zone = capture_arch.red_zone_bytes;
    uint64_t start = (sp - extent->start_avma < red_zone ? extent->start_avma : sp - red_zone) & ~UINT64_C(7);
    size_t size = limit_bytes < COPY_MAX_BYTES ? limit_bytes : COPY_MAX_BYTES;
    if (size > extent->end_avma - start)
        size = extent->end_avma - start;
    ssize_t got = fileio_pread(process->space->mem_fd, process->copy, size, start);
    if (got <= 0)
        return got < 0 ? (int)got : -EFAULT;
    process->snapshot = (struct snapshot){
        .registers = held->registers,
        .stack_start_avma = extent->start_avma,
        .stack_end_avma = extent->end_avma,
        .ranges = {{.avma = start, .bytes = process->copy, .size = (size_t)got, .mapping_end_avma = extent->end_avma}},
        .range_count = 1};
    return 0;
}

size_t injectplace_used_bytes(const struct inject_process *process)
{
    uint64_t start = process->snapshot.ranges[0].avma;
    return process->stack.top_avma > start ? process->stack.top_avma - start : 0;
}

bool injectplace_find_stack(const struct inject_process *process, const struct inject_held *held,
                            struct inject_stack *ret)
{
    uint64_t sp = held->regs.rsp;
    uint64_t thread_avma = held->regs.fs_base;
    const struct inject_stack *first = &process->first_stack;
    if (held->tid == process->pid && sp >= first->start_avma && sp < first->end_avma) {
        *ret = *first;
        return true;
    }
    /* glibc keeps what it knows of a thread at the top of the thread's stack. */
    const struct extent *extent = address_map_extent(process->map, sp);
    if (!extent || thread_avma <= sp || thread_avma >= extent->end_avma)
        return false;
    *ret = (struct inject_stack){.start_avma = extent->start_avma, .end_avma = thread_avma};
    return true;
}

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    const struct inject_process *process = context;
    return fileio_pread(process->space->mem_fd, buffer, size, avma) == (ssize_t)size;
}

/* ---- names ---- */

static bool exports_malloc(const struct image *image)
{
    static const char *const name[] = {"malloc"};
    uint64_t svma;
    return dynsym_find(image, name, 1, &svma) == 0 && svma != 0;
}

static int load_image(const struct image *image, struct place_image *ret)
{
    const char *path = image_path(image);
    struct place_image known = {.is_loaded = true,
                                .is_loader = injectlibc_is_loader(path),
                                .is_allocator = injectnames_is_allocator(path),
                                .is_libc = injectlibc_is_libc(path)};
    int error = image_kind(image) == IMAGE_ELF ? symtab_new(image, &known.symtab) : 0;
    if (error)
        return error;
    bool has_all_names = known.symtab && symtab_has_locals(known.symtab);
    known.is_strict = !has_all_names && (known.is_libc || (strstr(path, ".so") && exports_malloc(image)));
    *ret = known;
    return 0;
}

/* NULL: not known, and not to be looked up now. */
static const struct place_image *find_known(struct inject_process *process, uint32_t number, bool may_load)
{
    if (number < process->known_capacity && process->known[number].is_loaded)
        return &process->known[number];
    size_t before = process->known_capacity;
    if (!may_load || array_room(&process->known, &process->known_capacity, (size_t)number + 1) != 0)
        return NULL;
    memset(process->known + before, 0, (process->known_capacity - before) * sizeof(*process->known));
    struct place_image *known = &process->known[number];
    return load_image(images_get(process->images, number), known) == 0 ? known : NULL;
}

static bool find_name(const struct place_image *known, const struct code_region *region, uint64_t avma,
                      struct symbol *ret)
{
    return known->symtab && region->has_bias && symtab_find(known->symtab, avma - region->bias, ret);
}

/* ---- the judgement ---- */

struct judging {
    struct inject_process *process;
    bool is_waiting;
    bool may_load;
    bool at_root; /* nothing but the C library's start so far, from the outermost frame on */
    unsigned root_frames;
    bool has_caller; /* the frames of this strict image so far were called through a harmless named function */
};

static bool refuse(const struct judging *judging, const char *what, const char *name)
{
    snprintf(judging->process->obstacle, sizeof(judging->process->obstacle), "%s%s%s", what, name ? " " : "",
             name ? name : "");
    return false;
}

static bool is_unnamed_harmless(struct judging *judging, const struct place_image *known, const struct image *image)
{
    if (!known->is_strict)
        return true;
    if (judging->at_root)
        return ++judging->root_frames <= ROOT_FRAMES_MAX || refuse(judging, "in a thread's start or end", NULL);
    return judging->has_caller || refuse(judging, "in an unnamed function of", image_path(image));
}

/* Of the C library, below a thread's or program's first function. */
static bool is_start_name(const char *name)
{
    static const char *const starts[] = {"libc_start_main", "libc_start_call_main", "clone", "start_thread"};
    const char *bare = name + strspn(name, "_");
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (strncmp(bare, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static bool is_frame_harmless(struct judging *judging, const struct frame *frame, bool is_outermost)
{
    struct inject_process *process = judging->process;
    uint64_t avma = frame_lookup_avma(frame->avma, frame->exact);
    const struct code_region *region = codemap_find(&process->map->code, avma);
    if (!region)
        return refuse(judging, "in code that is not in its maps", NULL);
    const struct place_image *known = NULL;
    if (region->image) {
        known = find_known(process, process->map->region_images[region - process->map->regions], judging->may_load);
        if (!known)
            return refuse(judging, "in code that was not seen before", NULL);
    }
    if (!known || !known->is_libc)
        judging->at_root &= is_outermost; /* a program's _start is below the C library's part of it */
    if (!known)
        return true; /* made at run time: no allocator, no loader */
    if (known->is_loader || known->is_allocator)
        return refuse(judging, known->is_loader ? "in the dynamic linker" : "in",
                      known->is_loader ? NULL : image_path(region->image));
    struct symbol symbol;
    if (!find_name(known, region, avma, &symbol))
        return is_unnamed_harmless(judging, known, region->image);
    bool is_start = judging->at_root && known->is_libc && is_start_name(symbol.name);
    if (!is_start && !injectnames_is_harmless(symbol.name, known->is_libc, judging->is_waiting))
        return refuse(judging, "in", symbol.name);
    judging->has_caller = !judging->at_root;
    return true;
}

static bool same_image(const struct inject_process *process, const struct frame *a, const struct frame *b)
{
    const struct code_region *one = codemap_find(&process->map->code, frame_lookup_avma(a->avma, a->exact));
    const struct code_region *other = codemap_find(&process->map->code, frame_lookup_avma(b->avma, b->exact));
    return one && other && one->image == other->image;
}

bool injectplace_is_good(struct inject_process *process, const struct inject_held *held, bool may_load)
{
    struct judging judging = {
        .process = process, .is_waiting = held->is_waiting, .may_load = may_load, .at_root = true};
    struct memory_reader reader = {.read = read_code, .context = process};
    struct stack *stack = &process->stack;
    if (unwind_walk(process->unwinder, process->space->unwind, &process->map->code, &process->snapshot, &reader,
                    stack) != 0)
        return refuse(&judging, "its stack could not be read", NULL);
    if (stack->end != STACK_COMPLETE)
        return refuse(&judging, "its stack could not be followed to the root:", stack_end_name(stack->end));
    for (size_t i = stack->count; i-- > 0;) {
        const struct frame *frame = &stack->frames[i];
        if (frame->exact && i > 0)
            return refuse(&judging, "in a signal handler", NULL);
        if (i + 1 < stack->count && !same_image(process, frame, frame + 1))
            judging.has_caller = false;
        if (!is_frame_harmless(&judging, frame, i + 1 == stack->count))
            return false;
    }
    return !judging.at_root || refuse(&judging, "in a thread's start or end", NULL);
}
