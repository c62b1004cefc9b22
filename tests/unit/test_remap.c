#include "cmocka_all.h"

#include "common/fileio.h"
#include "sampler/space.h"
#include "symbolize/image.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Segments of a fixture, mapped into ourselves as a loader does, without what makes it run. */
struct loaded {
    uint8_t *start;
    size_t bytes;
    uint8_t *code; /* whole pages */
    size_t code_bytes;
    uint64_t bias;
};

static struct loaded load(void)
{
    int fd = open(FIXTURES "/plain", O_RDONLY | O_CLOEXEC);
    struct image *image;
    struct loaded loaded = {.bytes = 1 << 20};
    assert_int_equal(image_open(dup(fd), "plain", &image), 0);
    loaded.start = mmap(NULL, loaded.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(loaded.start != MAP_FAILED);
    loaded.bias = (uintptr_t)loaded.start;
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t into = segments[i].svma & 4095;
        uint8_t *at = loaded.start + (segments[i].svma - into);
        int protection = PROT_READ | (segments[i].executable ? PROT_EXEC : 0);
        void *mapped = mmap(at, segments[i].file_bytes + into, protection, MAP_PRIVATE | MAP_FIXED, fd,
                            (off_t)(segments[i].off - into));
        assert_true(mapped == at);
        if (segments[i].executable) {
            loaded.code = at;
            loaded.code_bytes = (segments[i].file_bytes + into + 4095) & ~UINT64_C(4095);
        }
    }
    image_free(image);
    close(fd);
    return loaded;
}

/* Puts a copy without a file in place of the code. */
static void move(const struct loaded *loaded, int changed_byte)
{
    uint8_t *copy = mmap(NULL, loaded->code_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(copy != MAP_FAILED);
    memcpy(copy, loaded->code, loaded->code_bytes);
    if (changed_byte >= 0)
        copy[changed_byte] ^= 1;
    mprotect(copy, loaded->code_bytes, PROT_READ | PROT_EXEC);
    assert_true(mremap(copy, loaded->code_bytes, loaded->code_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, loaded->code) ==
                loaded->code);
}

struct world {
    struct images *images;
    struct space *space;
    struct loaded loaded;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    autoclose int proc_fd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world->images = images_new();
    assert_int_equal(space_new(getpid(), proc_fd, getpid(), 1, &world->space), 0);
    world->loaded = load();
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    munmap(world->loaded.start, world->loaded.bytes);
    space_free(world->space);
    images_free(world->images);
    free(world);
    return 0;
}

static struct code_region read_region(struct world *world)
{
    struct address_map *map;
    assert_int_equal(space_read_maps(world->space, getpid(), world->images, &map), 0);
    const struct code_region *region = codemap_find(&map->code, (uintptr_t)world->loaded.code);
    assert_non_null(region);
    struct code_region result = *region;
    address_map_unref(map);
    return result;
}

static void test_moved(void **state)
{
    struct world *world = *state;
    struct code_region before = read_region(world);
    assert_true(before.has_bias);
    assert_int_equal(before.bias, world->loaded.bias);
    move(&world->loaded, -1);
    for (int i = 0; i < 2; i++) {
        struct code_region region = read_region(world);
        assert_ptr_equal(region.image, before.image);
        assert_true(region.has_bias);
        assert_int_equal(region.bias, before.bias);
        assert_int_equal(region.map_off, before.map_off);
    }
    assert_true(world->space->remaps.count >= 1);
    munmap(world->loaded.code, world->loaded.code_bytes);
    mmap(world->loaded.code, world->loaded.code_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    struct address_map *map;
    assert_int_equal(space_read_maps(world->space, getpid(), world->images, &map), 0);
    address_map_unref(map);
    for (size_t i = 0; i < world->space->remaps.count; i++)
        assert_int_not_equal(world->space->remaps.items[i].start_avma, (uintptr_t)world->loaded.code);
}

static void test_other_bytes(void **state)
{
    struct world *world = *state;
    move(&world->loaded, 17);
    for (int i = 0; i < 12; i++)
        assert_null(read_region(world).image);
    for (size_t i = 0; i < world->space->remaps.count; i++)
        assert_true(world->space->remaps.items[i].looks <= 8);
}

static void test_filled_late(void **state)
{
    struct world *world = *state;
    move(&world->loaded, 17);
    assert_null(read_region(world).image);
    mprotect(world->loaded.code, world->loaded.code_bytes, PROT_READ | PROT_WRITE);
    world->loaded.code[17] ^= 1;
    mprotect(world->loaded.code, world->loaded.code_bytes, PROT_READ | PROT_EXEC);
    assert_non_null(read_region(world).image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_moved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_filled_late, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
