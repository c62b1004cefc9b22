#include "cmocka_all.h"

#include "common/fileio.h"
#include "common/rng.h"
#include "sampler/maps.h"
#include "sampler/memimage.h"
#include "sampler/samefile.h"
#include "symbolize/symtab.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Our own memory, and what is mapped in it. */
struct world {
    int mem_fd;
    char *text;
    struct mapping *list;
    size_t count;
    const struct mapping *code; /* of the C library */
    const struct mapping *base;
    struct image *file; /* the C library */
    uint64_t bias;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    size_t size;
    world->mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    autoclose int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fileio_read_all(maps, 16 << 20, &world->text, &size), 0);
    assert_int_equal(mappings_parse(world->text, size, &world->list, &world->count), 0);
    for (size_t i = 0; i < world->count; i++) {
        uint64_t here = (uintptr_t)getenv;
        if (here < world->list[i].start_avma || here >= world->list[i].end_avma)
            continue;
        world->code = &world->list[i];
        world->base = mappings_base(world->list, i);
    }
    assert_non_null(world->base);
    char path[4096];
    mapping_path(world->code, path, sizeof(path));
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &world->file), 0);
    assert_int_equal(image_kind(world->file), IMAGE_ELF);
    assert_true(image_bias(world->file, world->code->start_avma, world->code->off, true, &world->bias));
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    image_free(world->file);
    free(world->list);
    free(world->text);
    close(world->mem_fd);
    free(world);
    return 0;
}

static void test_names_are_those_of_the_file(void **state)
{
    const struct world *world = *state;
    struct image *image;
    struct symtab *table;
    struct symbol symbol;
    assert_int_equal(memimage_open(world->mem_fd, world->base, "libc", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    assert_int_equal(image_section_count(image), 0);
    size_t bytes;
    size_t file_bytes;
    const uint8_t *id = image_build_id(image, &bytes);
    const uint8_t *file_id = image_build_id(world->file, &file_bytes);
    assert_int_equal(bytes, file_bytes);
    assert_memory_equal(id, file_id, bytes);
    struct image_section section;
    struct image_section in_file;
    assert_true(image_find_eh_frame_hdr(image, &section));
    assert_true(image_find_eh_frame_hdr(world->file, &in_file));
    assert_int_equal(section.svma, in_file.svma);
    assert_int_equal(symtab_new(image, &table), 0);
    assert_true(symtab_find(table, (uintptr_t)getenv - world->bias, &symbol));
    assert_string_equal(symbol.name, "getenv");
    assert_true(symtab_find(table, (uintptr_t)lrand48 - world->bias, &symbol));
    assert_string_equal(symbol.name, "lrand48");
    symtab_free(table);
    image_free(image);
}

static void test_identity(void **state)
{
    const struct world *world = *state;
    assert_int_equal(samefile_check(world->file, world->mem_fd, world->code, world->base) != SAMEFILE_NO, true);
    assert_false(samefile_has_other_id(world->file, world->mem_fd, world->base));
    struct image *other;
    assert_int_equal(image_open(open(FIXTURES "/plain", O_RDONLY | O_CLOEXEC), "plain", &other), 0);
    assert_int_equal(samefile_check(other, world->mem_fd, world->code, world->base), SAMEFILE_NO);
    assert_true(samefile_has_other_id(other, world->mem_fd, world->base));
    /* Without the beginning of the file in memory device and inode decide. */
    assert_int_equal(samefile_check(other, world->mem_fd, world->code, NULL), SAMEFILE_NO);
    image_free(other);
}

static void test_code(void **state)
{
    const struct world *world = *state;
    uint64_t bytes = world->code->end_avma - world->code->start_avma;
    assert_true(samefile_has_code(world->file, world->mem_fd, world->code->start_avma, bytes, world->bias));
    assert_false(samefile_has_code(world->file, world->mem_fd, world->code->start_avma, bytes, world->bias + 4096));
    assert_false(samefile_has_code(world->file, world->mem_fd, world->code->start_avma, bytes, 0)); /* in no segment */
    assert_false(samefile_has_code(world->file, world->mem_fd, world->code->start_avma, 0, world->bias));
    assert_false(samefile_has_code(world->file, -1, world->code->start_avma, bytes, world->bias));
}

/* A file that lies in memory as it is, and in which any byte may be another one. */
static void test_changed_bytes(void **state)
{
    const struct world *world = *state;
    char *good;
    size_t size;
    autoclose int fd = open(FIXTURES "/plain", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fileio_read_all(fd, 64 << 20, &good, &size), 0);
    size_t mapped = (size + 4095) & ~(size_t)4095;
    uint8_t *bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bytes != MAP_FAILED);
    struct mapping base = {.start_avma = (uintptr_t)bytes, .end_avma = (uintptr_t)bytes + mapped, .readable = true};
    struct rng rng = {.state = 7};
    unsigned opened = 0;
    for (unsigned round = 0; round < 3000; round++) {
        memcpy(bytes, good, size);
        for (unsigned i = 0; i < 1 + round % 4; i++)
            bytes[rng_next(&rng) % (round % 2 ? 1024 : mapped)] = (uint8_t)rng_next(&rng);
        struct image *image;
        int error = memimage_open(world->mem_fd, &base, "plain", &image);
        assert_true(error == 0 || error == -ENODATA);
        if (error)
            continue;
        struct symtab *table;
        assert_int_equal(symtab_new(image, &table), 0);
        symtab_free(table);
        image_free(image);
        opened++;
    }
    assert_true(opened > 1000);
    munmap(bytes, mapped);
    free(good);
}

static void test_no_image(void **state)
{
    const struct world *world = *state;
    uint8_t *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bytes != MAP_FAILED);
    struct mapping base = {.start_avma = (uintptr_t)bytes, .end_avma = (uintptr_t)bytes + 4096, .readable = true};
    struct image *image;
    assert_int_equal(memimage_open(world->mem_fd, &base, "none", &image), -ENODATA);
    munmap(bytes, 4096);
    assert_int_equal(memimage_open(world->mem_fd, &base, "none", &image), -ENODATA);
    assert_int_equal(memimage_open_head(world->mem_fd, &base, &image), -ENODATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_are_those_of_the_file),
                                       cmocka_unit_test(test_identity), cmocka_unit_test(test_code),
                                       cmocka_unit_test(test_changed_bytes), cmocka_unit_test(test_no_image)};
    return cmocka_run_group_tests(tests, set_up, tear_down) ? 1 : 0;
}
