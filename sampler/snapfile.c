#include "sampler/snapfile.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "common/pairmap.h"
#include "common/wire.h"
#include "sampler/codebytes.h"
#include "sampler/snapformat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FLUSH_BYTES = 1 << 20, JIT_CHUNK_BYTES = 64 << 10 };
#define FLUSH_NS NS_PER_SEC

struct saved_space {
    struct codebytes *code; /* NULL: nothing was read */
};

struct snapfile {
    int fd;                      /* borrowed */
    const struct images *images; /* borrowed */
    struct strbuf out;
    size_t chunk_at; /* of the chunk in work */
    uint64_t flushed_ns;
    int error;

    /* From the run's numbers to the file's. */
    struct pairmap image_numbers;
    struct pairmap space_numbers;
    struct pairmap map_numbers;     /* two hashes of the content */
    struct pairmap reading_numbers; /* generation */
    struct saved_space *spaces;     /* number in the file - 1 */
    size_t space_capacity;
    uint32_t image_count, space_count, map_count, reading_count, thread_count;

    /* Of the reader. */
    const struct space *read_space;
    const struct memory_reader *inner;
};

/* ---- chunks ---- */

static void fail(struct snapfile *file, int error)
{
    if (!file->error)
        file->error = error;
    strbuf_deinit(&file->out);
}

static void flush(struct snapfile *file)
{
    int error = strbuf_error(&file->out);
    if (!error)
        error = fileio_write(file->fd, file->out.data, file->out.size);
    if (error)
        fail(file, error);
    strbuf_clear(&file->out);
    file->flushed_ns = clock_now_ns();
}

static struct strbuf *begin(struct snapfile *file, enum snap_chunk kind)
{
    file->chunk_at = file->out.size;
    wire_put_u32(&file->out, kind);
    wire_put_u32(&file->out, 0);
    return &file->out;
}

static void end(struct snapfile *file)
{
    size_t size = file->out.size - file->chunk_at - SNAP_CHUNK_HEAD_BYTES;
    if (file->error) {
        strbuf_deinit(&file->out);
        return;
    }
    if (strbuf_error(&file->out) || size > SNAP_CHUNK_LIMIT_BYTES) {
        fail(file, strbuf_error(&file->out) ? -ENOMEM : -EFBIG);
        return;
    }
    for (size_t i = 0; i < 4; i++)
        file->out.data[file->chunk_at + 4 + i] = (char)(size >> 8 * i & 0xff);
    if (file->out.size >= FLUSH_BYTES || clock_now_ns() - file->flushed_ns >= FLUSH_NS)
        flush(file);
}

/* The next number of its kind for a key; 0: no memory. */
static uint32_t number_new(struct snapfile *file, struct pairmap *map, uint64_t a, uint64_t b, uint32_t *count)
{
    if (*count == UINT32_MAX || pairmap_add(map, a, b, *count + 1)) {
        fail(file, -ENOMEM);
        return 0;
    }
    return ++*count;
}

static void put_run(struct snapfile *file, const struct options *options)
{
    strbuf_add(&file->out, SNAP_MAGIC, SNAP_MAGIC_BYTES);
    wire_put_u32(&file->out, SNAP_VERSION);
    wire_put_u32(&file->out, 0);
    struct strbuf *out = begin(file, SNAP_RUN);
    wire_put_u32(out, options->mode == MODE_WALL);
    wire_put_u32(out, options->unwind == UNWIND_AUTO ? 0 : options->unwind == UNWIND_FP ? 1 : 2);
    wire_put_u64(out, options->max_depth);
    wire_put_u64(out, options->rate_hz);
    wire_put_u64(out, clock_now_ns());
    wire_put_u64(out, clock_read_ns(CLOCK_REALTIME));
    end(file);
}

int snapfile_new(int fd, const struct options *options, const struct images *images, struct snapfile **ret_file)
{
    struct snapfile *file = calloc(1, sizeof(*file));
    if (!file)
        return -ENOMEM;
    file->fd = fd;
    file->images = images;
    file->flushed_ns = clock_now_ns();
    put_run(file, options);
    *ret_file = file;
    return 0;
}

void snapfile_free(struct snapfile *file)
{
    if (!file)
        return;
    for (uint32_t i = 0; i < file->space_count; i++)
        codebytes_free(file->spaces[i].code);
    free(file->spaces);
    pairmap_deinit(&file->image_numbers);
    pairmap_deinit(&file->space_numbers);
    pairmap_deinit(&file->map_numbers);
    pairmap_deinit(&file->reading_numbers);
    strbuf_deinit(&file->out);
    free(file);
}

/* ---- what items refer to ---- */

static void put_image(struct snapfile *file, const struct image *image)
{
    struct stat st = {0};
    size_t memory_bytes;
    const void *memory = image_memory(image, &memory_bytes);
    bool is_elf = image_kind(image) == IMAGE_ELF;
    if (image_fd(image) >= 0 && fstat(image_fd(image), &st) < 0)
        st = (struct stat){0};
    /* Read back from a process, and larger: as a file that may be found again by its build-id. */
    if (!is_elf || memory_bytes > SNAP_IMAGE_LIMIT_BYTES) {
        memory = NULL;
        memory_bytes = 0;
    }
    size_t build_id_bytes;
    const uint8_t *build_id = image_build_id(image, &build_id_bytes);
    struct strbuf *out = begin(file, SNAP_IMAGE);
    wire_put_u32(out, !is_elf ? SNAP_IMAGE_OTHER : memory ? SNAP_IMAGE_MEMORY : SNAP_IMAGE_ELF);
    wire_put_u64(out, st.st_dev);
    wire_put_u64(out, st.st_ino);
    wire_put_u64(out, image_size(image));
    wire_put_u64(out, (uint64_t)st.st_mtim.tv_sec * NS_PER_SEC + (uint64_t)st.st_mtim.tv_nsec);
    wire_put_sized(out, build_id, build_id_bytes);
    wire_put_sized(out, image_path(image), strnlen(image_path(image), SNAP_PATH_LIMIT_BYTES));
    wire_put_sized(out, memory, memory_bytes);
    end(file);
}

static uint32_t image_number(struct snapfile *file, uint32_t run_number)
{
    const struct image *image = images_get(file->images, run_number);
    uint32_t number = image ? pairmap_find(&file->image_numbers, run_number, 0) : 0;
    if (number || !image || file->error)
        return number;
    number = number_new(file, &file->image_numbers, run_number, 0, &file->image_count);
    if (number)
        put_image(file, image);
    return number;
}

static uint32_t space_number(struct snapfile *file, const struct space *space)
{
    uint32_t number = space ? pairmap_find(&file->space_numbers, space->number, 0) : 0;
    if (number || !space || file->error)
        return number;
    if (array_room(&file->spaces, &file->space_capacity, file->space_count + 1)) {
        fail(file, -ENOMEM);
        return 0;
    }
    file->spaces[file->space_count] = (struct saved_space){0};
    number = number_new(file, &file->space_numbers, space->number, 0, &file->space_count);
    if (number) {
        wire_put_u32(begin(file, SNAP_SPACE), (uint32_t)space->pid);
        end(file);
    }
    return number;
}

static void put_map(struct snapfile *file, const struct address_map *map, struct strbuf *to)
{
    wire_put_u32(to, (uint32_t)map->code.count);
    wire_put_u32(to, (uint32_t)map->extent_count);
    for (size_t i = 0; i < map->code.count; i++) {
        const struct code_region *region = &map->regions[i];
        wire_put_u64(to, region->start_avma);
        wire_put_u64(to, region->end_avma);
        wire_put_u64(to, region->map_off);
        wire_put_u64(to, region->bias);
        wire_put_u32(to, image_number(file, map->region_images[i]));
        wire_put_u32(to, (region->image ? SNAP_REGION_IS_ELF : 0U) | (region->has_bias ? SNAP_REGION_HAS_BIAS : 0U));
    }
    for (size_t i = 0; i < map->extent_count; i++) {
        wire_put_u64(to, map->extents[i].start_avma);
        wire_put_u64(to, map->extents[i].end_avma);
    }
}

/* Another hash than hash_bytes: two that agree by chance are not to be feared. (FNV-1a.) */
static uint64_t second_hash(const char *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint32_t map_number(struct snapfile *file, const struct address_map *map)
{
    struct strbuf content = {0};
    put_map(file, map, &content);
    uint32_t number = 0;
    if (strbuf_error(&content)) {
        fail(file, -ENOMEM);
    } else {
        uint64_t a = hash_bytes(content.data, content.size);
        uint64_t b = second_hash(content.data, content.size);
        number = pairmap_find(&file->map_numbers, a, b);
        if (!number && !file->error) {
            number = number_new(file, &file->map_numbers, a, b, &file->map_count);
            if (number) {
                strbuf_add(begin(file, SNAP_MAP), content.data, content.size);
                end(file);
            }
        }
    }
    strbuf_deinit(&content);
    return number;
}

/* A new reading of equal maps is one all the same: the unwinder looks at JIT code afresh then. */
static uint32_t reading_number(struct snapfile *file, const struct address_map *map)
{
    uint32_t number = map ? pairmap_find(&file->reading_numbers, map->code.generation, 0) : 0;
    if (number || !map || file->error)
        return number;
    uint32_t of_map = map_number(file, map);
    if (!of_map || file->error)
        return 0;
    number = number_new(file, &file->reading_numbers, map->code.generation, 0, &file->reading_count);
    if (number) {
        wire_put_u32(begin(file, SNAP_READING), of_map);
        end(file);
    }
    return number;
}

static uint32_t thread_number(struct snapfile *file, struct thread_shared *thread)
{
    if (thread->saved_number || file->error)
        return thread->saved_number;
    thread->saved_number = ++file->thread_count;
    struct strbuf *out = begin(file, SNAP_THREAD);
    wire_put_u32(out, (uint32_t)thread->pid);
    wire_put_u32(out, (uint32_t)thread->tid);
    end(file);
    return thread->saved_number;
}

/* ---- code ---- */

static void put_code(struct snapfile *file, uint32_t space, uint64_t avma, const uint8_t *bytes, size_t size)
{
    struct strbuf *out = begin(file, SNAP_CODE);
    wire_put_u32(out, space);
    wire_put_u32(out, bytes ? 0 : SNAP_CODE_UNREADABLE);
    wire_put_u64(out, avma);
    wire_put_u32(out, (uint32_t)size);
    if (bytes)
        strbuf_add(out, (const char *)bytes, size);
    end(file);
}

/* What was read, at most SNAP_CODE_LIMIT_BYTES; NULL: it could not be. Saved where the store would say something else.
 */
static void note_code(struct snapfile *file, uint64_t avma, const uint8_t *bytes, size_t size)
{
    uint32_t space = space_number(file, file->read_space);
    if (!space || size == 0 || avma > UINT64_MAX - size)
        return;
    struct codebytes **store = &file->spaces[space - 1].code;
    if (!*store)
        *store = codebytes_new();
    if (!*store) {
        fail(file, -ENOMEM);
        return;
    }
    uint8_t known[SNAP_CODE_LIMIT_BYTES];
    bool is_known = codebytes_read(*store, avma, known, size);
    if (bytes ? is_known && memcmp(known, bytes, size) == 0 : !is_known)
        return;
    put_code(file, space, avma, bytes, size);
    if (!bytes)
        codebytes_forget(*store, avma, size);
    else if (codebytes_set(*store, avma, bytes, size))
        fail(file, -ENOMEM);
}

static bool read_and_note(void *context, uint64_t avma, void *buffer, size_t size)
{
    struct snapfile *file = context;
    bool ok = file->inner->read(file->inner->context, avma, buffer, size);
    for (size_t done = 0; done < size && !file->error; done += SNAP_CODE_LIMIT_BYTES) {
        size_t part = size - done < SNAP_CODE_LIMIT_BYTES ? size - done : SNAP_CODE_LIMIT_BYTES;
        note_code(file, avma + done, ok ? (uint8_t *)buffer + done : NULL, part);
    }
    return ok;
}

struct memory_reader snapfile_reader(struct snapfile *file, const struct space *space,
                                     const struct memory_reader *inner)
{
    file->read_space = space;
    file->inner = inner;
    return (struct memory_reader){.read = read_and_note, .context = file};
}

/* ---- items ---- */

static void put_snapshot(struct strbuf *out, const struct item *item)
{
    wire_put_u32(out, item->registers.known & REGISTERS_ALL);
    for (unsigned i = 0; i < REGISTER_COUNT; i++)
        if (registers_known(&item->registers, i))
            wire_put_u64(out, item->registers.value[i]);
    wire_put_u64(out, item->stack.start_avma);
    wire_put_u64(out, item->stack.end_avma);
    wire_put_u32(out, (uint32_t)item->range_count);
    for (size_t i = 0; i < item->range_count; i++) {
        wire_put_u64(out, item->ranges[i].avma);
        wire_put_u64(out, item->ranges[i].mapping_end_avma);
        wire_put_sized(out, item->ranges[i].bytes, item->ranges[i].size);
    }
}

void snapfile_add(struct snapfile *file, const struct item *item, enum failure failure)
{
    uint32_t space = space_number(file, item->space);
    uint32_t reading = reading_number(file, item->map);
    uint32_t thread = thread_number(file, item->thread);
    if (file->error)
        return;
    struct strbuf *out = begin(file, SNAP_ITEM);
    wire_put_u32(out, space);
    wire_put_u32(out, reading);
    wire_put_u32(out, thread);
    wire_put_u32(out, failure);
    wire_put_u64(out, item->time_ns);
    wire_put_u64(out, item->count);
    wire_put_u64(out, item->ns);
    wire_put_sized(out, item->comm, strlen(item->comm));
    if (failure == FAILURE_NONE)
        put_snapshot(out, item);
    wire_put_u32(out, (uint32_t)item->state);
    wire_put_u32(out, item->call < 0 ? SNAP_NO_CALL : (uint32_t)item->call);
    end(file);
}

void snapfile_repeat(struct snapfile *file, const struct item *item)
{
    uint32_t thread = thread_number(file, item->thread);
    if (file->error)
        return;
    struct strbuf *out = begin(file, SNAP_REPEAT);
    wire_put_u32(out, thread);
    wire_put_u64(out, item->time_ns);
    wire_put_u64(out, item->count);
    wire_put_u64(out, item->ns);
    end(file);
}

void snapfile_end_space(struct snapfile *file, const struct space *space)
{
    uint32_t number = pairmap_find(&file->space_numbers, space->number, 0);
    if (!number || file->error)
        return;
    codebytes_free(file->spaces[number - 1].code);
    file->spaces[number - 1].code = NULL;
    wire_put_u32(begin(file, SNAP_SPACE_END), number);
    end(file);
}

/* ---- the end ---- */

static void put_perfmap(struct snapfile *file, uint32_t space, const struct perfmap *perfmap)
{
    size_t count = perfmap_lines(perfmap);
    struct strbuf text = {0};
    for (size_t i = 0; i < count && !file->error; i++) {
        struct perfmap_entry line;
        perfmap_get_line(perfmap, i, &line);
        strbuf_addf(&text, "%llx %llx %s\n", (unsigned long long)line.start_avma,
                    (unsigned long long)(line.end_avma - line.start_avma), line.name);
        if (strbuf_error(&text)) {
            fail(file, -ENOMEM);
        } else if (text.size >= JIT_CHUNK_BYTES || i + 1 == count) {
            struct strbuf *out = begin(file, SNAP_JIT);
            wire_put_u32(out, space);
            wire_put_sized(out, text.data, text.size);
            end(file);
            strbuf_clear(&text);
        }
    }
    strbuf_deinit(&text);
}

static void put_total(struct snapfile *file, const struct thread_total *total)
{
    uint32_t thread = thread_number(file, total->shared);
    if (file->error)
        return;
    struct strbuf *out = begin(file, SNAP_TOTAL);
    wire_put_u32(out, thread);
    wire_put_u64(out, total->cpu_ns);
    wire_put_sized(out, total->comm, strlen(total->comm));
    wire_put_u64(out, total->wait_ns);
    end(file);
}

static void put_histogram(struct strbuf *out, const struct histogram *histogram)
{
    wire_put_u64(out, histogram->count);
    wire_put_u64(out, histogram->sum);
    wire_put_u64(out, histogram->max);
    uint32_t used = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        used += histogram->buckets[i] != 0;
    wire_put_u32(out, used);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->buckets[i]) {
            wire_put_u32(out, (uint32_t)i);
            wire_put_u64(out, histogram->buckets[i]);
        }
    }
}

static void put_counters(struct snapfile *file, const struct capture_result *capture,
                         const struct tracer_counters *tracer)
{
    const struct account *account = &capture->account;
    const uint64_t numbers[] = {
        capture->wall_ns,      capture->ticker.ticks,     capture->ticker.late,       capture->ticker.missed,
        capture->threads_seen, capture->threads_vanished, account->threads_unsampled, capture->processes_seen,
        capture->execs,        account->cpu_ns_target,    account->cpu_ns_threads,    account->cpu_ns_sampled,
        tracer->stops,         tracer->signals_forwarded, tracer->group_stops,        tracer->timeouts};
    struct strbuf *out = begin(file, SNAP_COUNTERS);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        wire_put_u64(out, numbers[i]);
    put_histogram(out, &tracer->stop_ns);
    put_histogram(out, &tracer->held_ns);
    wire_put_u64(out, tracer->copies_cut);
    wire_put_u64(out, tracer->eintr_restarted);
    end(file);
}

int snapfile_finish(struct snapfile *file, const struct snapfile_totals *totals)
{
    for (size_t i = 0; i < totals->space_count && !file->error; i++) {
        const struct space *space = totals->spaces[i];
        uint32_t number = pairmap_find(&file->space_numbers, space->number, 0);
        if (number && space->perfmap)
            put_perfmap(file, number, space->perfmap);
    }
    const struct account *account = &totals->capture->account;
    for (size_t i = 0; i < account->total_count && !file->error; i++)
        put_total(file, &account->totals[i]);
    if (!file->error)
        put_counters(file, totals->capture, totals->tracer);
    if (!file->error) {
        begin(file, SNAP_END);
        end(file);
    }
    if (!file->error)
        flush(file);
    return file->error;
}
