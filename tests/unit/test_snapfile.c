#include "cmocka_all.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "common/rng.h"
#include "common/wire.h"
#include "sampler/snapfile.h"
#include "sampler/snapformat.h"
#include "sampler/snapread.h"
#include "snapconsume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a small run: two spaces, two maps, three threads, JIT code, a failure ---- */

#define CODE_AVMA  UINT64_C(0x400000)
#define JIT_AVMA   UINT64_C(0x700000)
#define VDSO_AVMA  UINT64_C(0x900000)
#define STACK_AVMA UINT64_C(0x7fff0000)

enum { STACK_BYTES = 64, SAMPLES = 4 };

struct world {
    int fd; /* the file */
    struct images *images;
    uint32_t program, vdso, other;
    struct space *spaces[2];
    struct address_map *maps[2];
    struct thread_shared threads[3];
    uint64_t stack[STACK_BYTES / 8];
    struct capture_result capture;
    struct thread_total totals[2];
    struct tracer_counters tracer;
};

static uint32_t add_image(struct images *images, struct image *image)
{
    uint32_t number;
    assert_int_equal(images_add(images, image, &number), 0);
    return number;
}

static void open_images(struct world *world)
{
    struct image *image;
    world->images = images_new();
    assert_int_equal(image_open(open(FIXTURES "/tiny", O_RDONLY | O_CLOEXEC), FIXTURES "/tiny", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    world->program = add_image(world->images, image);
    size_t size = 512; /* the headers, which is what makes it an ELF image */
    uint8_t *bytes = malloc(size);
    assert_int_equal(image_read_off(image, 0, bytes, size), 0);
    assert_int_equal(image_open_memory(bytes, size, "[vdso]", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    world->vdso = add_image(world->images, image);
    assert_int_equal(image_open(-1, "/memfd:code", &image), 0);
    world->other = add_image(world->images, image);
}

static void set_region(struct world *world, struct address_map *map, size_t i, uint64_t avma, uint32_t image)
{
    map->regions[i] = (struct code_region){.start_avma = avma, .end_avma = avma + 0x1000, .map_off = i * 0x1000};
    map->region_images[i] = image;
    const struct image *opened = images_get(world->images, image);
    if (opened && image_kind(opened) == IMAGE_ELF) {
        map->regions[i].image = opened;
        map->regions[i].has_bias = true;
        map->regions[i].bias = avma - 0x400000;
    }
}

static struct address_map *make_map(struct world *world, uint64_t generation, bool has_other)
{
    struct address_map *map = address_map_new(has_other ? 4 : 3, 2);
    assert_non_null(map);
    map->code.generation = generation;
    set_region(world, map, 0, CODE_AVMA, world->program);
    set_region(world, map, 1, JIT_AVMA, 0);
    set_region(world, map, 2, VDSO_AVMA, world->vdso);
    if (has_other)
        set_region(world, map, 3, VDSO_AVMA + 0x1000, world->other);
    map->extents[0] = (struct extent){CODE_AVMA, CODE_AVMA + 0x1000};
    map->extents[1] = (struct extent){STACK_AVMA, STACK_AVMA + 0x1000};
    return map;
}

static struct world world_new(void)
{
    struct world world = {.fd = memfd_create("snapshots", MFD_CLOEXEC)};
    assert_true(world.fd >= 0);
    open_images(&world);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(space_new_saved(100 + (pid_t)i, i + 1, &world.spaces[i]), 0);
        world.maps[i] = make_map(&world, 77 + i, i == 1);
    }
    for (size_t i = 0; i < 3; i++)
        world.threads[i] = (struct thread_shared){.references = 1, .pid = 100, .tid = 100 + (pid_t)i};
    for (size_t i = 0; i < STACK_BYTES / 8; i++)
        world.stack[i] = JIT_AVMA + 16 * i;
    return world;
}

static void world_free(struct world *world)
{
    for (size_t i = 0; i < 2; i++) {
        space_free(world->spaces[i]);
        address_map_unref(world->maps[i]);
    }
    images_free(world->images);
    close(world->fd);
}

/* Sample `n`: the last one is a failure without maps. */
static struct item make_item(struct world *world, size_t n)
{
    struct item item = {
        .space = world->spaces[n % 2],
        .map = world->maps[n % 2],
        .thread = &world->threads[n % 3],
        .time_ns = 1000000 + n,
        .count = 1 + n,
        .ns = 10 * n,
        .state = (enum thread_state)(n % THREAD_STATE_COUNT),
        .call = n % 2 ? (int16_t)(230 + n) : -1,
    };
    snprintf(item.comm, sizeof(item.comm), "thread %zu", n);
    if (n == SAMPLES - 1) {
        item.failure = FAILURE_TIMEOUT;
        item.map = NULL;
        item.space = NULL;
        return item;
    }
    for (unsigned i = 0; i < REGISTER_COUNT; i++)
        item.registers.value[i] = 0x1111 * (i + 1) + n;
    item.registers.known = ((1U << REGISTER_COUNT) - 1) & ~(n == 1 ? 1U << REGISTER_R9 : 0U);
    item.registers.value[REGISTER_PC] = JIT_AVMA + 0x10;
    item.registers.value[REGISTER_RSP] = STACK_AVMA + 0x100;
    item.registers.value[REGISTER_RBP] = STACK_AVMA + 0x110;
    item.stack = (struct extent){STACK_AVMA, STACK_AVMA + 0x1000};
    const uint8_t *bytes = (const uint8_t *)world->stack;
    item.ranges[0] = (struct memory_range){.avma = STACK_AVMA + 0x100, .bytes = bytes, .size = STACK_BYTES};
    item.ranges[1] = (struct memory_range){.avma = 0x5000, .bytes = bytes + 8, .size = 8, .mapping_end_avma = 0x9000};
    item.range_count = 1 + n % 2;
    return item;
}

static struct item make_repeat(struct world *world)
{
    return (struct item){.kind = ITEM_REPEAT, .thread = &world->threads[1], .time_ns = 2000000, .count = 77, .ns = 88};
}

/* Code that is there, with another first byte each time, below JIT_AVMA + 0x80; and none above. */
static bool read_jit(void *context, uint64_t avma, void *buffer, size_t size)
{
    const uint8_t *first = context;
    memset(buffer, 0xe8, size);
    *(uint8_t *)buffer = *first;
    return avma < JIT_AVMA + 0x80;
}

static void save_samples(struct world *world, struct snapfile *file)
{
    for (size_t n = 0; n < SAMPLES; n++) {
        uint8_t first = (uint8_t)(n / 2);
        uint8_t code[8];
        struct memory_reader inner = {.read = read_jit, .context = &first};
        struct item item = make_item(world, n);
        struct memory_reader reader = snapfile_reader(file, item.space ? item.space : world->spaces[0], &inner);
        assert_true(reader.read(reader.context, JIT_AVMA + 8, code, sizeof(code)));
        assert_int_equal(code[0], first);
        assert_false(reader.read(reader.context, JIT_AVMA + 0x80, code, sizeof(code)));
        snapfile_add(file, &item, item.failure);
    }
    snapfile_end_space(file, world->spaces[1]);
    struct item repeat = make_repeat(world);
    snapfile_repeat(file, &repeat);
}

static void set_totals(struct world *world)
{
    for (size_t i = 0; i < 2; i++) {
        world->totals[i] =
            (struct thread_total){.shared = &world->threads[i + 1], .cpu_ns = 1000 + i, .wait_ns = 2000 + i};
        strcpy(world->totals[i].comm, i ? "second" : "first");
    }
    world->capture.account.totals = world->totals;
    world->capture.account.total_count = 2;
    world->capture.account.cpu_ns_target = 5000;
    world->capture.account.threads_unsampled = 6;
    world->capture.wall_ns = 123456789;
    world->capture.ticker.ticks = 99;
    world->capture.execs = 3;
    world->tracer.stops = 17;
    world->tracer.timeouts = 18;
    histogram_add(&world->tracer.stop_ns, 20);
    histogram_add(&world->tracer.stop_ns, 123456);
}

static int write_file(struct world *world, int fd)
{
    struct options options = {.mode = MODE_WALL, .unwind = UNWIND_FP, .max_depth = 321, .rate_hz = 250};
    struct snapfile *file;
    assert_int_equal(snapfile_new(fd, &options, world->images, &file), 0);
    save_samples(world, file);
    world->spaces[0]->perfmap = perfmap_new();
    static const char names[] = "700000 40 first piece\n700040 40 second\nnonsense\n";
    assert_int_equal(perfmap_add(world->spaces[0]->perfmap, names, sizeof(names) - 1), 0);
    set_totals(world);
    struct snapfile_totals totals = {
        .spaces = world->spaces, .space_count = 2, .capture = &world->capture, .tracer = &world->tracer};
    int error = snapfile_finish(file, &totals);
    snapfile_free(file);
    return error;
}

/* ---- what was written is read ---- */

static void expect_item(const struct item *item, const struct item *wanted)
{
    assert_int_equal(item->kind, ITEM_SAMPLE);
    assert_int_equal(item->failure, wanted->failure);
    assert_string_equal(item->comm, wanted->comm);
    assert_int_equal(item->time_ns, wanted->time_ns);
    assert_int_equal(item->state, wanted->state);
    assert_int_equal(item->call, wanted->call);
    assert_int_equal(item->count, wanted->count);
    assert_int_equal(item->ns, wanted->ns);
    assert_int_equal(item->thread->tid, wanted->thread->tid);
    assert_int_equal(item->thread->pid, wanted->thread->pid);
    assert_int_equal(item->space ? item->space->pid : 0, wanted->space ? wanted->space->pid : 0);
    assert_int_equal(item->registers.known, wanted->registers.known);
    for (unsigned i = 0; i < REGISTER_COUNT; i++)
        if (registers_known(&wanted->registers, i))
            assert_int_equal(item->registers.value[i], wanted->registers.value[i]);
    assert_int_equal(item->stack.start_avma, wanted->stack.start_avma);
    assert_int_equal(item->stack.end_avma, wanted->stack.end_avma);
    assert_int_equal(item->range_count, wanted->range_count);
    for (size_t i = 0; i < wanted->range_count; i++) {
        assert_int_equal(item->ranges[i].avma, wanted->ranges[i].avma);
        assert_int_equal(item->ranges[i].size, wanted->ranges[i].size);
        assert_int_equal(item->ranges[i].mapping_end_avma, wanted->ranges[i].mapping_end_avma);
        assert_memory_equal(item->ranges[i].bytes, wanted->ranges[i].bytes, wanted->ranges[i].size);
    }
}

static void expect_map(const struct snapread *read, const struct address_map *map, const struct world *world,
                       const struct address_map *wanted)
{
    assert_int_equal(map->code.count, wanted->code.count);
    assert_int_equal(map->extent_count, wanted->extent_count);
    assert_memory_equal(map->extents, wanted->extents, wanted->extent_count * sizeof(*wanted->extents));
    for (size_t i = 0; i < wanted->code.count; i++) {
        const struct code_region *region = &map->code.regions[i];
        assert_int_equal(region->start_avma, wanted->regions[i].start_avma);
        assert_int_equal(region->end_avma, wanted->regions[i].end_avma);
        assert_int_equal(region->map_off, wanted->regions[i].map_off);
        assert_int_equal(region->bias, wanted->regions[i].bias);
        assert_int_equal(region->has_bias, wanted->regions[i].has_bias);
        assert_int_equal(region->image != NULL, wanted->regions[i].image != NULL);
        const struct image *image = images_get(snapread_images(read), map->region_images[i]);
        const struct image *wanted_image = images_get(world->images, wanted->region_images[i]);
        assert_int_equal(image != NULL, wanted_image != NULL);
        if (image)
            assert_string_equal(image_path(image), image_path(wanted_image));
    }
}

static void expect_code(struct snapread *read, const struct item *item, size_t n)
{
    struct memory_reader reader = snapread_reader(read, item->space);
    uint8_t code[8];
    assert_true(reader.read(reader.context, JIT_AVMA + 8, code, sizeof(code)));
    assert_int_equal(code[0], n / 2);
    assert_int_equal(code[7], 0xe8);
    assert_false(reader.read(reader.context, JIT_AVMA + 0x80, code, 1));
}

static void expect_end(const struct snapread *read, const struct world *world)
{
    const struct capture_result *capture = snapread_capture(read);
    assert_int_equal(capture->account.total_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(capture->account.totals[i].comm, world->totals[i].comm);
        assert_int_equal(capture->account.totals[i].cpu_ns, world->totals[i].cpu_ns);
        assert_int_equal(capture->account.totals[i].wait_ns, world->totals[i].wait_ns);
        assert_int_equal(capture->account.totals[i].shared->tid, world->totals[i].shared->tid);
    }
    assert_int_equal(capture->account.cpu_ns_target, 5000);
    assert_int_equal(capture->account.threads_unsampled, 6);
    assert_int_equal(capture->wall_ns, 123456789);
    assert_int_equal(capture->ticker.ticks, 99);
    assert_int_equal(capture->execs, 3);
    assert_memory_equal(snapread_tracer(read), &world->tracer, sizeof(world->tracer));
    size_t count;
    struct space *const *spaces = snapread_spaces(read, &count);
    assert_int_equal(count, 2);
    assert_int_equal(spaces[0]->pid, 100);
    assert_int_equal(perfmap_lines(spaces[0]->perfmap), 2);
    struct perfmap_entry entry;
    assert_true(perfmap_find(spaces[0]->perfmap, 0x70003f, &entry));
    assert_string_equal(entry.name, "first piece");
    assert_null(spaces[1]->perfmap);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct world world = world_new();
    assert_int_equal(write_file(&world, world.fd), 0);
    int warnings = 0;
    struct snapread *read;
    assert_int_equal(snapread_open(world.fd, count_warning, &warnings, &read), 0);
    const struct snapread_run *run = snapread_run(read);
    assert_true(run->is_wall);
    assert_int_equal(run->unwind, UNWIND_FP);
    assert_int_equal(run->max_depth, 321);
    assert_int_equal(run->rate_hz, 250);
    struct item item;
    enum snapread_answer answer;
    for (size_t n = 0; n < SAMPLES; n++) {
        assert_int_equal(snapread_next(read, &item, &answer), 0);
        assert_int_equal(answer, SNAPREAD_ITEM);
        struct item wanted = make_item(&world, n);
        expect_item(&item, &wanted);
        assert_int_equal(item.map != NULL, wanted.map != NULL);
        if (item.map) {
            expect_map(read, item.map, &world, wanted.map);
            expect_code(read, &item, n);
        }
    }
    assert_int_equal(snapread_next(read, &item, &answer), 0);
    assert_int_equal(answer, SNAPREAD_ITEM);
    assert_int_equal(item.kind, ITEM_SPACE_END);
    assert_int_equal(item.space->pid, 101);
    assert_int_equal(snapread_next(read, &item, &answer), 0);
    assert_int_equal(answer, SNAPREAD_ITEM);
    assert_int_equal(item.kind, ITEM_REPEAT);
    assert_int_equal(item.thread->tid, world.threads[1].tid);
    assert_int_equal(item.time_ns, 2000000);
    assert_int_equal(item.count, 77);
    assert_int_equal(item.ns, 88);
    assert_int_equal(snapread_next(read, &item, &answer), 0);
    assert_int_equal(answer, SNAPREAD_WHOLE);
    expect_end(read, &world);
    assert_int_equal(warnings, 0);
    snapread_free(read);
    world_free(&world);
}

/* Equal maps are saved once, and a new reading of them is another generation all the same. */
static void test_equal_maps(void **state)
{
    (void)state;
    struct world world = world_new();
    struct address_map *again = make_map(&world, 99, false);
    struct options options = {.max_depth = 1, .rate_hz = 1};
    struct snapfile *file;
    assert_int_equal(snapfile_new(world.fd, &options, world.images, &file), 0);
    struct address_map *const maps[] = {world.maps[0], again, world.maps[0]};
    for (size_t i = 0; i < 3; i++) {
        struct item item = make_item(&world, 0);
        item.map = maps[i];
        snapfile_add(file, &item, FAILURE_NONE);
    }
    struct snapfile_totals totals = {.capture = &world.capture, .tracer = &world.tracer};
    assert_int_equal(snapfile_finish(file, &totals), 0);
    snapfile_free(file);
    int warnings = 0;
    struct snapread *read;
    assert_int_equal(snapread_open(world.fd, count_warning, &warnings, &read), 0);
    uint64_t generations[3];
    const struct address_map *found[3];
    for (size_t i = 0; i < 3; i++) {
        struct item item;
        enum snapread_answer answer;
        assert_int_equal(snapread_next(read, &item, &answer), 0);
        assert_int_equal(answer, SNAPREAD_ITEM);
        found[i] = item.map;
        generations[i] = item.map->code.generation;
    }
    assert_ptr_equal(found[0], found[1]);
    assert_int_not_equal(generations[0], 0);
    assert_int_not_equal(generations[0], generations[1]);
    assert_int_equal(generations[0], generations[2]);
    snapread_free(read);
    address_map_unref(again);
    world_free(&world);
}

/* The first error ends the saving and is the answer; the file is not written to after it. */
static void test_full_disk(void **state)
{
    (void)state;
    struct world world = world_new();
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write_file(&world, fd), -ENOSPC);
    close(fd);
    world_free(&world);
}

/* ---- files that end early or were changed ---- */

static void test_every_truncation(void **state)
{
    (void)state;
    struct world world = world_new();
    assert_int_equal(write_file(&world, world.fd), 0);
    struct stat st;
    assert_int_equal(fstat(world.fd, &st), 0);
    size_t items = SAMPLES + 2; /* and the end of a space, and a repetition */
    for (off_t size = st.st_size; size >= 0; size--) {
        assert_int_equal(ftruncate(world.fd, size), 0);
        struct consumed outcome;
        int error = consume(world.fd, false, &outcome);
        if (size < SNAP_MAGIC_BYTES) {
            assert_int_equal(error, -ENOMSG);
        } else if (error) {
            assert_int_equal(error, -EBADMSG);
            assert_in_range(size, SNAP_MAGIC_BYTES, SNAP_PREAMBLE_BYTES + SNAP_CHUNK_HEAD_BYTES + 39);
        } else {
            assert_int_equal(outcome.answer, size == st.st_size ? SNAPREAD_WHOLE : SNAPREAD_CUT);
            assert_true(outcome.items <= items && outcome.offset <= (uint64_t)size);
            items = outcome.items;
        }
    }
    assert_int_equal(items, 0);
    world_free(&world);
}

#define FLIP_NS (5 * NS_PER_SEC)
enum { FLIP_ROUNDS = 4000, FLIPS = 3 };

/* Any bytes changed: an answer, in bounded time; and no fault, which the sanitizers would tell. */
static void test_flips(void **state)
{
    (void)state;
    struct world world = world_new();
    assert_int_equal(write_file(&world, world.fd), 0);
    struct stat st;
    assert_int_equal(fstat(world.fd, &st), 0);
    size_t size = (size_t)st.st_size;
    uint8_t *good = malloc(size);
    uint8_t *bad = malloc(size);
    assert_int_equal(fileio_pread(world.fd, good, size, 0), size);
    struct rng rng = {.state = 20240229};
    uint64_t end_ns = clock_now_ns() + FLIP_NS;
    int answers[SNAPREAD_DAMAGED + 1] = {0};
    for (int round = 0; round < FLIP_ROUNDS && clock_now_ns() < end_ns; round++) {
        memcpy(bad, good, size);
        for (int i = 0; i < FLIPS; i++)
            bad[SNAP_PREAMBLE_BYTES + rng_below(&rng, size - SNAP_PREAMBLE_BYTES)] = (uint8_t)rng_next(&rng);
        assert_int_equal(pwrite(world.fd, bad, size, 0), size);
        struct consumed outcome;
        int error = consume(world.fd, true, &outcome);
        assert_true(error == 0 || error == -EBADMSG);
        if (!error)
            answers[outcome.answer]++;
    }
    assert_true(answers[SNAPREAD_WHOLE] > 0 && answers[SNAPREAD_CUT] > 0 && answers[SNAPREAD_DAMAGED] > 0);
    free(good);
    free(bad);
    world_free(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_equal_maps), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
