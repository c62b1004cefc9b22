#include "name_at.h"

#include "symbolize/symtab.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct image *open_image(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct image *image = NULL;
    assert_int_equal(image_open(fd, path, &image), 0);
    return image;
}

struct counting {
    const char *name;
    const char *found; /* equal names are one text */
    size_t count;
    size_t next;
};

static int count_name(void *context, size_t index, const struct called *called, size_t count)
{
    struct counting *counting = context;
    assert_int_equal(index, counting->next++);
    if (count == 0 || strcmp(called[0].function, counting->name) != 0)
        return 0;
    assert_true(!counting->found || counting->found == called[0].function);
    counting->found = called[0].function;
    counting->count++;
    return 0;
}

/* How many bytes of .text have this name. */
static size_t bytes_named(struct symbolizer *symbolizer, const struct image *image, const char *name)
{
    struct image_section text = {0};
    struct counting counting = {.name = name};
    assert_true(image_find_section(image, ".text", &text));
    uint64_t *offs = calloc(text.bytes, sizeof(*offs));
    assert_non_null(offs);
    for (size_t i = 0; i < text.bytes; i++)
        offs[i] = text.off + i;
    assert_int_equal(symbolizer_resolve(symbolizer, image, offs, text.bytes, count_name, &counting), 0);
    free(offs);
    return counting.count;
}

static void test_files(void **state)
{
    (void)state;
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    struct image *plain = open_image(FIXTURES "/plain");
    struct image *no_pie = open_image(FIXTURES "/plain_no_pie");
    struct image *stripped = open_image(FIXTURES "/plain_stripped");
    const struct image *images[] = {plain, no_pie};
    for (size_t i = 0; i < 2; i++) {
        assert_true(bytes_named(symbolizer, images[i], "main") > 0);
        assert_true(bytes_named(symbolizer, images[i], "static_hot") > 0);
        assert_true(bytes_named(symbolizer, images[i], "global_hot") > 0);
    }
    assert_int_equal(bytes_named(symbolizer, stripped, "static_hot"), 0);
    assert_true(bytes_named(symbolizer, stripped, "global_hot") > 0);
    assert_null(name_at(symbolizer, plain, UINT64_MAX));
    assert_null(name_at(symbolizer, plain, 0));
    symbolizer_free(symbolizer);
    symbolizer_free(NULL);
    image_free(plain);
    image_free(no_pie);
    image_free(stripped);
}

/* Names that the compiler mangled. */
static void test_mangled(void **state)
{
    (void)state;
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    struct image *image = open_image(FIXTURES "/mangled");
    assert_int_equal(bytes_named(symbolizer, image, "ns::Class<int>::method"), 32); /* and its .cold */
    assert_int_equal(bytes_named(symbolizer, image, "mycrate::module::hot"), 32);
    assert_int_equal(bytes_named(symbolizer, image, "_Z99broken"), 16);
    symbolizer_free(symbolizer);
    image_free(image);
}

/* What an indirect function has chosen runs under its own name. */
static void test_ifunc(void **state)
{
    (void)state;
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    struct image *image = open_image(FIXTURES "/ifunc");
    assert_true(bytes_named(symbolizer, image, "impl_fast") > 0);
    assert_true(bytes_named(symbolizer, image, "impl_slow") > 0);
    symbolizer_free(symbolizer);
    image_free(image);
}

/* Where the vDSO is mapped here; an empty range when there is none. */
static void find_vdso(unsigned long *ret_start, unsigned long *ret_end)
{
    *ret_start = *ret_end = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    char line[4352];
    while (fgets(line, sizeof(line), maps))
        if (strstr(line, "[vdso]"))
            assert_int_equal(sscanf(line, "%lx-%lx", ret_start, ret_end), 2);
    fclose(maps);
}

/* The kernel's own image: in memory, .dynsym only, a global and a weak name for each function. */
static void test_vdso(void **state)
{
    (void)state;
    unsigned long start;
    unsigned long end;
    find_vdso(&start, &end);
    if (start == end)
        skip();
    size_t size = end - start;
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, (const void *)start, size); // NOLINT(performance-no-int-to-ptr)
    struct image *image = NULL;
    assert_int_equal(image_open_memory(copy, size, "[vdso]", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    assert_int_equal(image_fd(image), -1);
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    assert_true(bytes_named(symbolizer, image, "__vdso_clock_gettime") > 0);
    assert_int_equal(bytes_named(symbolizer, image, "clock_gettime"), 0);
    symbolizer_free(symbolizer);
    image_free(image);
}

static void test_unusable_images(void **state)
{
    (void)state;
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    struct image *unreadable = NULL;
    assert_int_equal(image_open(-1, "/gone", &unreadable), 0);
    struct image *directory = open_image("/");
    assert_null(name_at(symbolizer, unreadable, 0x1000));
    assert_null(name_at(symbolizer, directory, 0x1000));
    symbolizer_free(symbolizer);
    image_free(unreadable);
    image_free(directory);
}

/* Descriptors, memory and the like are let go. */
static void test_many_images(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    struct image *images[COUNT];
    uint64_t off = 0;
    for (size_t i = 0; i < COUNT; i++) {
        images[i] = open_image(FIXTURES "/tiny");
        assert_true(image_svma_to_off(images[i], image_entry_svma(images[i]), &off));
        assert_string_equal(name_at(symbolizer, images[i], off), "_start");
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_string_equal(name_at(symbolizer, images[i], off), "_start");
    symbolizer_free(symbolizer);
    for (size_t i = 0; i < COUNT; i++)
        image_free(images[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files), cmocka_unit_test(test_mangled),         cmocka_unit_test(test_ifunc),
        cmocka_unit_test(test_vdso),  cmocka_unit_test(test_unusable_images), cmocka_unit_test(test_many_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
