#include "sampler/snapread.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "common/wire.h"
#include "sampler/codebytes.h"
#include "sampler/snapformat.h"
#include "sampler/snapimage.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Times and counts beyond these (36 years of nanoseconds) are none of a run; sums of them stay far from 2^64. */
#define TIME_LIMIT_NS (UINT64_C(1) << 60)
#define COUNT_LIMIT   (UINT64_C(1) << 32)

enum { MAX_DEPTH_LIMIT = 1000000, RATE_LIMIT_HZ = 10000, REGION_BYTES = 40, EXTENT_BYTES = 16 };

struct snapread {
    int fd; /* borrowed */
    uint64_t size;
    uint64_t at;
    uint8_t *payload;
    size_t payload_capacity;
    void (*warn)(void *context, const char *text);
    void *context;

    struct snapread_run run;
    struct images *images;
    uint32_t image_count;
    struct space **spaces;   /* number - 1, here and below */
    struct codebytes **code; /* per space; NULL: none */
    size_t space_count, space_capacity, code_capacity;
    struct address_map **maps;
    size_t map_count, map_capacity;
    uint32_t *readings; /* number of the map */
    size_t reading_count, reading_capacity;
    struct thread_shared **threads;
    size_t thread_count, thread_capacity;
    struct capture_result capture;
    struct tracer_counters tracer;
};

/* What a chunk was: its number is the answer of the functions below. Negative: an errno, and -EBADMSG for a chunk that
 * cannot be. */
enum { CHUNK_TAKEN = 0, CHUNK_ITEM = 1 };

/* ---- what items refer to ---- */

static int take_image(struct snapread *read, struct wire *wire)
{
    struct image *image;
    int error = snapimage_open(wire, read->warn, read->context, &image);
    if (!error)
        error = images_add(read->images, image, &read->image_count);
    return error;
}

static int take_space(struct snapread *read, struct wire *wire)
{
    uint32_t pid = wire_get_u32(wire);
    if (wire->failed || pid == 0 || pid > INT_MAX || read->space_count >= UINT32_MAX)
        return -EBADMSG;
    int error = array_room(&read->spaces, &read->space_capacity, read->space_count + 1);
    if (!error)
        error = array_room(&read->code, &read->code_capacity, read->space_count + 1);
    if (!error)
        error = space_new_saved((pid_t)pid, (uint32_t)read->space_count + 1, &read->spaces[read->space_count]);
    if (error)
        return error;
    read->code[read->space_count++] = NULL;
    return CHUNK_TAKEN;
}

static bool get_region(const struct snapread *read, struct wire *wire, struct code_region *region, uint32_t *ret_image)
{
    region->start_avma = wire_get_u64(wire);
    region->end_avma = wire_get_u64(wire);
    region->map_off = wire_get_u64(wire);
    region->bias = wire_get_u64(wire);
    uint32_t number = wire_get_u32(wire);
    uint32_t flags = wire_get_u32(wire);
    if (region->start_avma >= region->end_avma || number > read->image_count || flags & ~(uint32_t)SNAP_REGION_FLAGS)
        return false;
    /* An image that could not be opened again gives its name only. */
    const struct image *image = images_get(read->images, number);
    if (flags & SNAP_REGION_IS_ELF && image && image_kind(image) == IMAGE_ELF) {
        region->image = image;
        region->has_bias = flags & SNAP_REGION_HAS_BIAS;
    }
    *ret_image = number;
    return true;
}

/* Sorted and without overlaps, as the searches in it need them. */
static bool get_map(const struct snapread *read, struct wire *wire, struct address_map *map)
{
    uint64_t end_avma = 0;
    for (size_t i = 0; i < map->code.count; i++) {
        struct code_region *region = &map->regions[i];
        if (!get_region(read, wire, region, &map->region_images[i]) || region->start_avma < end_avma)
            return false;
        end_avma = region->end_avma;
    }
    end_avma = 0;
    for (size_t i = 0; i < map->extent_count; i++) {
        struct extent *extent = &map->extents[i];
        extent->start_avma = wire_get_u64(wire);
        extent->end_avma = wire_get_u64(wire);
        if (extent->start_avma >= extent->end_avma || extent->start_avma < end_avma)
            return false;
        end_avma = extent->end_avma;
    }
    return true;
}

static int take_map(struct snapread *read, struct wire *wire)
{
    size_t regions = wire_get_u32(wire);
    size_t extents = wire_get_u32(wire);
    if (wire->failed || regions * REGION_BYTES + extents * EXTENT_BYTES != wire_left(wire))
        return -EBADMSG;
    int error = array_room(&read->maps, &read->map_capacity, read->map_count + 1);
    if (error)
        return error;
    struct address_map *map = address_map_new(regions, extents);
    if (!map)
        return -ENOMEM;
    if (!get_map(read, wire, map)) {
        address_map_unref(map);
        return -EBADMSG;
    }
    read->maps[read->map_count++] = map;
    return CHUNK_TAKEN;
}

static int take_reading(struct snapread *read, struct wire *wire)
{
    uint32_t map = wire_get_u32(wire);
    if (map == 0 || map > read->map_count || read->reading_count >= UINT32_MAX)
        return -EBADMSG;
    int error = array_room(&read->readings, &read->reading_capacity, read->reading_count + 1);
    if (!error)
        read->readings[read->reading_count++] = map;
    return error;
}

static int take_thread(struct snapread *read, struct wire *wire)
{
    uint32_t pid = wire_get_u32(wire);
    uint32_t tid = wire_get_u32(wire);
    if (wire->failed || pid == 0 || pid > INT_MAX || tid == 0 || tid > INT_MAX || read->thread_count >= UINT32_MAX)
        return -EBADMSG;
    int error = array_room(&read->threads, &read->thread_capacity, read->thread_count + 1);
    struct thread_shared *thread = error ? NULL : calloc(1, sizeof(*thread));
    if (!thread)
        return -ENOMEM;
    thread->references = 1;
    thread->pid = (pid_t)pid;
    thread->tid = (pid_t)tid;
    read->threads[read->thread_count++] = thread;
    return CHUNK_TAKEN;
}

static int take_code(struct snapread *read, struct wire *wire)
{
    uint32_t space = wire_get_u32(wire);
    uint32_t flags = wire_get_u32(wire);
    uint64_t avma = wire_get_u64(wire);
    size_t size = wire_get_u32(wire);
    bool is_readable = !(flags & SNAP_CODE_UNREADABLE);
    const uint8_t *bytes = is_readable ? wire_get_bytes(wire, size) : NULL;
    if (wire->failed || space == 0 || space > read->space_count || flags & ~(uint32_t)SNAP_CODE_UNREADABLE ||
        size == 0 || size > SNAP_CODE_LIMIT_BYTES || avma > UINT64_MAX - size)
        return -EBADMSG;
    struct codebytes **store = &read->code[space - 1];
    if (!*store)
        *store = codebytes_new();
    if (!*store)
        return -ENOMEM;
    if (bytes)
        return codebytes_set(*store, avma, bytes, size);
    codebytes_forget(*store, avma, size);
    return CHUNK_TAKEN;
}

/* ---- items ---- */

/* A thread's name: no NUL in it, and short. */
static bool get_comm(struct wire *wire, char comm[PROCFS_COMM_BYTES])
{
    size_t size;
    const uint8_t *bytes = wire_get_sized(wire, PROCFS_COMM_BYTES - 1, &size);
    if (!bytes || memchr(bytes, '\0', size))
        return false;
    memcpy(comm, bytes, size);
    comm[size] = '\0';
    return true;
}

static bool get_snapshot(struct wire *wire, struct item *item)
{
    item->registers.known = wire_get_u32(wire);
    if (item->registers.known >> REGISTER_COUNT)
        return false;
    for (unsigned i = 0; i < REGISTER_COUNT; i++)
        if (registers_known(&item->registers, i))
            item->registers.value[i] = wire_get_u64(wire);
    item->stack.start_avma = wire_get_u64(wire);
    item->stack.end_avma = wire_get_u64(wire);
    item->range_count = wire_get_u32(wire);
    if (item->stack.start_avma > item->stack.end_avma || item->range_count > SNAPSHOT_RANGES)
        return false;
    for (size_t i = 0; i < item->range_count; i++) {
        struct memory_range *range = &item->ranges[i];
        range->avma = wire_get_u64(wire);
        range->mapping_end_avma = wire_get_u64(wire);
        range->bytes = wire_get_sized(wire, SNAP_RANGE_LIMIT_BYTES, &range->size);
        if (!range->bytes || range->avma > UINT64_MAX - range->size)
            return false;
    }
    return !wire->failed;
}

/* Older files have none. */
static bool get_state(struct wire *wire, struct item *item)
{
    item->state = THREAD_STATE_UNKNOWN;
    item->call = -1;
    if (wire_left(wire) == 0)
        return true;
    uint32_t state = wire_get_u32(wire);
    uint32_t call = wire_get_u32(wire);
    if (wire->failed || state >= THREAD_STATE_COUNT || (call > INT16_MAX && call != SNAP_NO_CALL))
        return false;
    item->state = (enum thread_state)state;
    item->call = call == SNAP_NO_CALL ? -1 : (int16_t)call;
    return true;
}

static int take_item(struct snapread *read, struct wire *wire, struct item *item)
{
    uint32_t space = wire_get_u32(wire);
    uint32_t reading = wire_get_u32(wire);
    uint32_t thread = wire_get_u32(wire);
    uint32_t failure = wire_get_u32(wire);
    item->time_ns = wire_get_u64(wire);
    item->count = wire_get_u64(wire);
    item->ns = wire_get_u64(wire);
    if (!get_comm(wire, item->comm) || space > read->space_count || reading > read->reading_count || thread == 0 ||
        thread > read->thread_count || failure > FAILURE_UNWIND || item->count == 0 || item->count >= COUNT_LIMIT ||
        item->ns >= TIME_LIMIT_NS)
        return -EBADMSG;
    if (failure == FAILURE_NONE && (!space || !reading || !get_snapshot(wire, item)))
        return -EBADMSG;
    if (!get_state(wire, item))
        return -EBADMSG;
    item->kind = ITEM_SAMPLE;
    item->failure = (enum failure)failure;
    item->thread = read->threads[thread - 1];
    item->space = space ? read->spaces[space - 1] : NULL;
    if (reading) {
        item->map = read->maps[read->readings[reading - 1] - 1];
        item->map->code.generation = reading;
    }
    return CHUNK_ITEM;
}

static int take_repeat(struct snapread *read, struct wire *wire, struct item *item)
{
    uint32_t thread = wire_get_u32(wire);
    item->time_ns = wire_get_u64(wire);
    item->count = wire_get_u64(wire);
    item->ns = wire_get_u64(wire);
    if (wire->failed || thread == 0 || thread > read->thread_count || item->count == 0 || item->count >= COUNT_LIMIT ||
        item->ns >= TIME_LIMIT_NS)
        return -EBADMSG;
    item->kind = ITEM_REPEAT;
    item->thread = read->threads[thread - 1];
    return CHUNK_ITEM;
}

static int take_space_end(struct snapread *read, struct wire *wire, struct item *item)
{
    uint32_t space = wire_get_u32(wire);
    if (space == 0 || space > read->space_count)
        return -EBADMSG;
    codebytes_free(read->code[space - 1]);
    read->code[space - 1] = NULL;
    item->kind = ITEM_SPACE_END;
    item->space = read->spaces[space - 1];
    return CHUNK_ITEM;
}

/* ---- the end of the file ---- */

static int take_jit(struct snapread *read, struct wire *wire)
{
    uint32_t number = wire_get_u32(wire);
    size_t size;
    const uint8_t *text = wire_get_sized(wire, SNAP_JIT_LIMIT_BYTES, &size);
    /* Whole lines. */
    if (!text || size == 0 || text[size - 1] != '\n' || number == 0 || number > read->space_count)
        return -EBADMSG;
    struct space *space = read->spaces[number - 1];
    if (!space->perfmap)
        space->perfmap = perfmap_new();
    return space->perfmap ? perfmap_add(space->perfmap, (const char *)text, size) : -ENOMEM;
}

static int take_total(struct snapread *read, struct wire *wire)
{
    struct thread_total total = {0};
    uint32_t thread = wire_get_u32(wire);
    total.cpu_ns = wire_get_u64(wire);
    if (!get_comm(wire, total.comm) || thread == 0 || thread > read->thread_count || total.cpu_ns >= TIME_LIMIT_NS)
        return -EBADMSG;
    if (wire_left(wire) > 0)
        total.wait_ns = wire_get_u64(wire);
    if (wire->failed || total.wait_ns >= TIME_LIMIT_NS)
        return -EBADMSG;
    struct account *account = &read->capture.account;
    int error = array_room(&account->totals, &account->total_capacity, account->total_count + 1);
    if (error)
        return error;
    total.shared = thread_shared_ref(read->threads[thread - 1]);
    account->totals[account->total_count++] = total;
    return CHUNK_TAKEN;
}

static bool get_histogram(struct wire *wire, struct histogram *histogram)
{
    histogram->count = wire_get_u64(wire);
    histogram->sum = wire_get_u64(wire);
    histogram->max = wire_get_u64(wire);
    uint32_t used = wire_get_u32(wire);
    for (uint32_t i = 0; i < used && !wire->failed; i++) {
        uint32_t bucket = wire_get_u32(wire);
        if (bucket >= HISTOGRAM_BUCKETS)
            return false;
        histogram->buckets[bucket] = wire_get_u64(wire);
    }
    return !wire->failed;
}

static int take_counters(struct snapread *read, struct wire *wire)
{
    struct capture_result *capture = &read->capture;
    struct tracer_counters *tracer = &read->tracer;
    struct account *account = &capture->account;
    uint64_t *const numbers[] = {
        &capture->wall_ns,      &capture->ticker.ticks,     &capture->ticker.late,       &capture->ticker.missed,
        &capture->threads_seen, &capture->threads_vanished, &account->threads_unsampled, &capture->processes_seen,
        &capture->execs,        &account->cpu_ns_target,    &account->cpu_ns_threads,    &account->cpu_ns_sampled,
        &tracer->stops,         &tracer->signals_forwarded, &tracer->group_stops,        &tracer->timeouts};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        *numbers[i] = wire_get_u64(wire);
        if (*numbers[i] >= TIME_LIMIT_NS)
            return -EBADMSG;
    }
    if (!get_histogram(wire, &tracer->stop_ns))
        return -EBADMSG;
    if (wire->at == wire->end)
        return CHUNK_TAKEN; /* the first version ended here */
    if (!get_histogram(wire, &tracer->held_ns))
        return -EBADMSG;
    tracer->copies_cut = wire_get_u64(wire);
    tracer->eintr_restarted = wire_get_u64(wire);
    return wire->failed ? -EBADMSG : CHUNK_TAKEN;
}

/* ---- chunks ---- */

static int take_chunk(struct snapread *read, uint32_t kind, struct wire *wire, struct item *item)
{
    switch (kind) {
    case SNAP_RUN:
        return -EBADMSG; /* once, and that was at the beginning */
    case SNAP_IMAGE:
        return take_image(read, wire);
    case SNAP_SPACE:
        return take_space(read, wire);
    case SNAP_MAP:
        return take_map(read, wire);
    case SNAP_READING:
        return take_reading(read, wire);
    case SNAP_THREAD:
        return take_thread(read, wire);
    case SNAP_CODE:
        return take_code(read, wire);
    case SNAP_ITEM:
        return take_item(read, wire, item);
    case SNAP_REPEAT:
        return take_repeat(read, wire, item);
    case SNAP_SPACE_END:
        return take_space_end(read, wire, item);
    case SNAP_JIT:
        return take_jit(read, wire);
    case SNAP_TOTAL:
        return take_total(read, wire);
    case SNAP_COUNTERS:
        return take_counters(read, wire);
    default:
        return CHUNK_TAKEN; /* of a later version that adds to this one */
    }
}

/* Reads the next chunk whole. Returns 0, -ENODATA when the file ends first, or another negative errno. */
static int read_chunk(struct snapread *read, uint32_t *ret_kind, struct wire *ret_payload)
{
    uint8_t head[SNAP_CHUNK_HEAD_BYTES];
    if (read->size - read->at < sizeof(head))
        return -ENODATA;
    ssize_t got = fileio_pread(read->fd, head, sizeof(head), read->at);
    if (got != (ssize_t)sizeof(head))
        return got < 0 ? (int)got : -ENODATA;
    struct wire wire = {.at = head, .end = head + sizeof(head)};
    uint32_t kind = wire_get_u32(&wire);
    size_t size = wire_get_u32(&wire);
    if (size > SNAP_CHUNK_LIMIT_BYTES)
        return -EBADMSG;
    if (size > read->size - read->at - sizeof(head))
        return -ENODATA;
    int error = array_room(&read->payload, &read->payload_capacity, size + 1);
    if (error)
        return error;
    got = fileio_pread(read->fd, read->payload, size, read->at + sizeof(head));
    if (got != (ssize_t)size)
        return got < 0 ? (int)got : -ENODATA;
    *ret_kind = kind;
    *ret_payload = (struct wire){.at = read->payload, .end = read->payload + size};
    return 0;
}

int snapread_next(struct snapread *read, struct item *ret_item, enum snapread_answer *ret_answer)
{
    for (;;) {
        struct item item = {0};
        struct wire wire;
        uint32_t kind = 0;
        int result = read_chunk(read, &kind, &wire);
        if (!result && kind == SNAP_END) {
            *ret_answer = SNAPREAD_WHOLE;
            return 0;
        }
        if (!result)
            result = take_chunk(read, kind, &wire, &item);
        if (result == -ENODATA || result == -EBADMSG) {
            *ret_answer = result == -ENODATA ? SNAPREAD_CUT : SNAPREAD_DAMAGED;
            return 0;
        }
        if (result < 0)
            return result;
        read->at += SNAP_CHUNK_HEAD_BYTES + (uint64_t)(wire.end - read->payload);
        if (result == CHUNK_ITEM) {
            *ret_item = item;
            *ret_answer = SNAPREAD_ITEM;
            return 0;
        }
    }
}

/* ---- life ---- */

/* The first had no repetitions. */
static bool is_known_version(uint32_t version)
{
    return version == 1 || version == SNAP_VERSION;
}

bool snapread_is_magic(const void *bytes, size_t size)
{
    return size >= SNAP_MAGIC_BYTES && memcmp(bytes, SNAP_MAGIC, SNAP_MAGIC_BYTES) == 0;
}

static int read_preamble(struct snapread *read)
{
    uint8_t bytes[SNAP_PREAMBLE_BYTES];
    ssize_t got = fileio_pread(read->fd, bytes, sizeof(bytes), 0);
    if (got < 0)
        return (int)got;
    if (!snapread_is_magic(bytes, (size_t)got))
        return -ENOMSG;
    if (got != (ssize_t)sizeof(bytes))
        return -EBADMSG;
    struct wire wire = {.at = bytes + SNAP_MAGIC_BYTES, .end = bytes + sizeof(bytes)};
    if (!is_known_version(wire_get_u32(&wire)) || wire_get_u32(&wire) != 0)
        return -ENOTSUP;
    read->at = sizeof(bytes);
    return 0;
}

static int read_run(struct snapread *read)
{
    static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_FP, UNWIND_DWARF};
    uint32_t kind = 0;
    struct wire wire;
    int error = read_chunk(read, &kind, &wire);
    if (error)
        return error == -ENODATA ? -EBADMSG : error;
    uint32_t is_wall = wire_get_u32(&wire);
    uint32_t unwind = wire_get_u32(&wire);
    uint64_t max_depth = wire_get_u64(&wire);
    uint64_t rate_hz = wire_get_u64(&wire);
    if (kind != SNAP_RUN || wire.failed || is_wall > 1 || unwind >= sizeof(modes) / sizeof(modes[0]) ||
        max_depth == 0 || max_depth > MAX_DEPTH_LIMIT || rate_hz == 0 || rate_hz > RATE_LIMIT_HZ)
        return -EBADMSG;
    read->run = (struct snapread_run){
        .is_wall = is_wall != 0, .unwind = modes[unwind], .max_depth = (size_t)max_depth, .rate_hz = (unsigned)rate_hz};
    read->capture.ticker.rate_hz = (unsigned)rate_hz;
    read->at += SNAP_CHUNK_HEAD_BYTES + (uint64_t)(wire.end - read->payload);
    return 0;
}

int snapread_open(int fd, void (*warn)(void *context, const char *text), void *context, struct snapread **ret_read)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOMSG;
    struct snapread *read = calloc(1, sizeof(*read));
    if (!read)
        return -ENOMEM;
    read->fd = fd;
    read->size = (uint64_t)st.st_size;
    read->warn = warn;
    read->context = context;
    read->images = images_new();
    int error = read->images ? read_preamble(read) : -ENOMEM;
    if (!error)
        error = read_run(read);
    if (error) {
        snapread_free(read);
        return error;
    }
    *ret_read = read;
    return 0;
}

void snapread_free(struct snapread *read)
{
    if (!read)
        return;
    for (size_t i = 0; i < read->space_count; i++) {
        space_free(read->spaces[i]);
        codebytes_free(read->code[i]);
    }
    for (size_t i = 0; i < read->map_count; i++)
        address_map_unref(read->maps[i]);
    for (size_t i = 0; i < read->thread_count; i++)
        thread_shared_unref(read->threads[i]);
    account_deinit(&read->capture.account);
    images_free(read->images);
    free(read->spaces);
    free(read->code);
    free(read->maps);
    free(read->readings);
    free(read->threads);
    free(read->payload);
    free(read);
}

const struct snapread_run *snapread_run(const struct snapread *read)
{
    return &read->run;
}

uint64_t snapread_offset(const struct snapread *read)
{
    return read->at;
}

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    const struct codebytes *store = context;
    return store && codebytes_read(store, avma, buffer, size);
}

struct memory_reader snapread_reader(struct snapread *read, const struct space *space)
{
    return (struct memory_reader){.read = read_code, .context = space ? read->code[space->number - 1] : NULL};
}

const struct images *snapread_images(const struct snapread *read)
{
    return read->images;
}

struct space *const *snapread_spaces(const struct snapread *read, size_t *ret_count)
{
    *ret_count = read->space_count;
    return read->spaces;
}

const struct capture_result *snapread_capture(const struct snapread *read)
{
    return &read->capture;
}

const struct tracer_counters *snapread_tracer(const struct snapread *read)
{
    return &read->tracer;
}
