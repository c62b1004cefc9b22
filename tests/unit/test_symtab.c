#include "cmocka_all.h"

#include "common/clock.h"
#include "common/rng.h"
#include "symbolize/symtab.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t SECTION_END = 0x10000;

static struct symtab_entry entry(const char *name, uint64_t svma, uint64_t bytes, unsigned char type,
                                 unsigned char binding)
{
    return (struct symtab_entry){
        .name = name, .svma = svma, .bytes = bytes, .limit_svma = SECTION_END, .type = type, .binding = binding};
}

static struct symtab_entry function(const char *name, uint64_t svma, uint64_t bytes)
{
    return entry(name, svma, bytes, STT_FUNC, STB_GLOBAL);
}

static struct symtab *build(const struct symtab_entry *entries, size_t count)
{
    struct symtab *table = NULL;
    assert_int_equal(symtab_new_from(entries, count, &table), 0);
    return table;
}

static void expect(const struct symtab *table, uint64_t svma, const char *name)
{
    struct symbol symbol;
    bool found = symtab_find(table, svma, &symbol);
    if (!name) {
        if (found)
            fail_msg("0x%lx is %s, expected no name", (unsigned long)svma, symbol.name);
        return;
    }
    if (!found)
        fail_msg("0x%lx has no name, expected %s", (unsigned long)svma, name);
    assert_string_equal(symbol.name, name);
    assert_true(svma >= symbol.start_svma && svma < symbol.end_svma);
}

static void test_empty(void **state)
{
    (void)state;
    struct symtab *table = build(NULL, 0);
    assert_int_equal(symtab_count(table), 0);
    expect(table, 0, NULL);
    expect(table, UINT64_MAX, NULL);
    symtab_free(table);
    symtab_free(NULL);
}

static void test_bounds(void **state)
{
    (void)state;
    const struct symtab_entry entries[] = {function("b", 0x200, 0x10), function("a", 0x100, 0x10),
                                           function("wraps", 0x8000, UINT64_MAX),
                                           function("outside", SECTION_END, 0x10)};
    struct symtab *table = build(entries, 4);
    expect(table, 0xff, NULL);
    expect(table, 0x100, "a");
    expect(table, 0x10f, "a");
    expect(table, 0x110, NULL);
    expect(table, 0x200, "b");
    expect(table, 0x210, NULL);
    expect(table, SECTION_END - 1, "wraps");
    expect(table, SECTION_END, NULL);
    symtab_free(table);
}

/* Every rule with the one before it against it, in both orders of the file. */
static void test_preference(void **state)
{
    (void)state;
    const struct symtab_entry pairs[][2] = {
        {entry("_z", 0x100, 0x10, STT_FUNC, STB_LOCAL), entry("a", 0x100, 0x10, STT_NOTYPE, STB_GLOBAL)},
        {entry("_z", 0x100, 0x10, STT_GNU_IFUNC, STB_LOCAL), entry("a", 0x100, 0x10, STT_OBJECT, STB_GLOBAL)},
        {entry("__z", 0x100, 0x10, STT_FUNC, STB_GLOBAL), entry("a", 0x100, 0x10, STT_FUNC, STB_WEAK)},
        {entry("__z", 0x100, 0x10, STT_FUNC, STB_GNU_UNIQUE), entry("a", 0x100, 0x10, STT_FUNC, STB_WEAK)},
        {entry("__z", 0x100, 0x10, STT_FUNC, STB_WEAK), entry("a", 0x100, 0x10, STT_FUNC, STB_LOCAL)},
        {entry("z", 0x90, 0x80, STT_FUNC, STB_GLOBAL), entry("_a", 0x100, 0x10, STT_FUNC, STB_GLOBAL)},
        {entry("z", 0x100, 0x10, STT_FUNC, STB_GLOBAL), entry("a", 0x90, 0x80, STT_FUNC, STB_GLOBAL)},
        {entry("a", 0x100, 0x10, STT_FUNC, STB_GLOBAL), entry("b", 0x100, 0x10, STT_FUNC, STB_GLOBAL)},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        for (size_t k = 0; k < 2; k++) {
            const struct symtab_entry entries[] = {pairs[i][k], pairs[i][1 - k]};
            struct symtab *table = build(entries, 2);
            expect(table, 0x100, pairs[i][0].name);
            symtab_free(table);
        }
    }
}

static void test_nesting(void **state)
{
    (void)state;
    const struct symtab_entry entries[] = {function("outer", 0x100, 0x100), function("inner", 0x120, 0x20),
                                           entry("local", 0x180, 0x20, STT_FUNC, STB_LOCAL),
                                           entry("tail", 0x1f0, 0x20, STT_FUNC, STB_WEAK)};
    struct symtab *table = build(entries, 4);
    expect(table, 0x11f, "outer");
    expect(table, 0x120, "inner");
    expect(table, 0x13f, "inner");
    expect(table, 0x140, "outer");
    expect(table, 0x180, "outer");
    expect(table, 0x1ff, "outer");
    expect(table, 0x200, "tail");
    expect(table, 0x210, NULL);
    assert_int_equal(symtab_count(table), 4);
    symtab_free(table);
}

static void test_sizeless(void **state)
{
    (void)state;
    const struct symtab_entry entries[] = {
        function("sized", 0x100, 0x10),
        function("touching", 0x110, 0),
        entry("label", 0x120, 0, STT_NOTYPE, STB_LOCAL),
        function("_twin", 0x120, 0),
        function("twin", 0x120, 0),
        function("next", 0x130, 0x10),
        entry("in_next", 0x138, 0, STT_FUNC, STB_GLOBAL), /* covered at its start: must not reach into the gap */
        function("after_gap", 0x180, 0x10),
        function("last", 0x200, 0),
    };
    struct symtab *table = build(entries, sizeof(entries) / sizeof(entries[0]));
    expect(table, 0x10f, "sized");
    expect(table, 0x110, "touching");
    expect(table, 0x11f, "touching");
    expect(table, 0x120, "twin");
    expect(table, 0x12f, "twin");
    expect(table, 0x130, "next");
    expect(table, 0x13f, "next");
    expect(table, 0x140, NULL);
    expect(table, 0x17f, NULL);
    expect(table, 0x190, NULL);
    expect(table, 0x1ff, NULL);
    expect(table, 0x200, "last");
    expect(table, SECTION_END - 1, "last");
    expect(table, SECTION_END, NULL);
    symtab_free(table);
}

static void test_not_names(void **state)
{
    (void)state;
    const struct symtab_entry entries[] = {
        entry("file.c", 0x100, 0x10, STT_FILE, STB_LOCAL), entry(".text", 0x100, 0x10, STT_SECTION, STB_LOCAL),
        entry("tls", 0x100, 0x10, STT_TLS, STB_GLOBAL),    entry("$x.1", 0x100, 0x10, STT_NOTYPE, STB_LOCAL),
        entry("", 0x100, 0x10, STT_FUNC, STB_GLOBAL),
    };
    struct symtab *table = build(entries, sizeof(entries) / sizeof(entries[0]));
    assert_int_equal(symtab_count(table), 0);
    symtab_free(table);
}

/* Plainly: among those that cover an address, the one that the rule puts first. */
static const char *expected_name(const struct symtab_entry *entries, size_t count, uint64_t svma)
{
    const struct symtab_entry *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct symtab_entry *e = &entries[i];
        if (e->bytes == 0 || svma < e->svma || svma - e->svma >= e->bytes)
            continue;
        if (!best || e->svma > best->svma || (e->svma == best->svma && strcmp(e->name, best->name) < 0))
            best = e;
    }
    if (best)
        return best->name;
    for (size_t i = 0; i < count; i++)
        if (entries[i].svma <= svma && (!best || entries[i].svma >= best->svma))
            best = &entries[i];
    /* The nearest start must be a sizeless one that nothing sized covers. */
    const char *name = NULL;
    for (size_t i = 0; best && i < count; i++) {
        const struct symtab_entry *e = &entries[i];
        if (e->bytes > 0 && e->svma <= best->svma && best->svma - e->svma < e->bytes)
            return NULL;
        if (e->svma == best->svma && e->bytes == 0 && (!name || strcmp(e->name, name) < 0))
            name = e->name;
    }
    return name;
}

static void test_random_against_plain_rule(void **state)
{
    (void)state;
    enum { COUNT = 24, SPACE = 160 };
    char names[COUNT][8];
    struct symtab_entry entries[COUNT];
    struct rng rng = {.state = 7};
    for (size_t turn = 0; turn < 300; turn++) {
        for (size_t i = 0; i < COUNT; i++) {
            snprintf(names[i], sizeof(names[i]), "f%02zu", i);
            entries[i] = function(names[i], rng_below(&rng, SPACE), rng_below(&rng, 3) ? rng_below(&rng, 40) : 0);
            entries[i].limit_svma = SPACE + 64;
        }
        struct symtab *table = build(entries, COUNT);
        for (uint64_t svma = 0; svma < SPACE + 64; svma++)
            expect(table, svma, expected_name(entries, COUNT, svma));
        symtab_free(table);
    }
}

/* 400,000 symbols, side by side and nested in each other as deep as they are many. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    struct symtab_entry *entries = calloc(COUNT, sizeof(*entries));
    char(*names)[16] = calloc(COUNT, sizeof(*names));
    assert_true(entries && names);
    for (size_t nested = 0; nested < 2; nested++) {
        for (size_t i = 0; i < COUNT; i++) {
            size_t k = (i * 7919) % COUNT; /* not sorted */
            snprintf(names[i], sizeof(names[i]), "f%zu", k);
            entries[i] = function(names[i], k * 16, nested ? (COUNT - k) * 32 : 16);
            entries[i].limit_svma = UINT64_MAX;
        }
        uint64_t start = clock_now_ns();
        struct symtab *table = build(entries, COUNT);
        uint64_t took = clock_now_ns() - start;
        print_message("%d symbols, %s: %lu ms\n", COUNT, nested ? "nested" : "side by side",
                      (unsigned long)(took / NS_PER_MS));
        expect(table, 16 * 1234 + 5, "f1234");
        symtab_free(table);
    }
    free(names);
    free(entries);
}

static struct symtab *open_table(const char *path, struct image **ret_image)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(image_open(fd, path, ret_image), 0);
    struct symtab *table = NULL;
    assert_int_equal(symtab_new(*ret_image, &table), 0);
    return table;
}

/* The first range of a name; there must be one. */
static struct symbol range_of(const struct image *image, const struct symtab *table, const char *name)
{
    struct image_section text = {0};
    assert_true(image_find_section(image, ".text", &text));
    struct symbol symbol;
    for (uint64_t svma = text.svma; svma < text.svma + text.bytes; svma++) {
        if (!symtab_find(table, svma, &symbol))
            continue;
        if (strcmp(symbol.name, name) == 0)
            return symbol;
        svma = symbol.end_svma - 1;
    }
    fail_msg("%s names nothing in %s", name, image_path(image));
    return symbol;
}

static bool has_name(const struct image *image, const struct symtab *table, const char *name)
{
    struct image_section text = {0};
    assert_true(image_find_section(image, ".text", &text));
    struct symbol symbol;
    for (uint64_t svma = text.svma; svma < text.svma + text.bytes; svma++)
        if (symtab_find(table, svma, &symbol) && strcmp(symbol.name, name) == 0)
            return true;
    return false;
}

static void test_file_plain(void **state)
{
    (void)state;
    static const char *const paths[] = {FIXTURES "/plain", FIXTURES "/plain_no_pie"};
    for (size_t i = 0; i < 2; i++) {
        struct image *image;
        struct symtab *table = open_table(paths[i], &image);
        range_of(image, table, "main");
        range_of(image, table, "static_hot");
        range_of(image, table, "global_hot");
        expect(table, image_entry_svma(image), "_start");
        symtab_free(table);
        image_free(image);
    }
    struct image *image;
    struct symtab *table = open_table(FIXTURES "/plain_stripped", &image);
    range_of(image, table, "global_hot");
    assert_false(has_name(image, table, "static_hot"));
    symtab_free(table);
    image_free(image);
}

static void test_file_sizeless(void **state)
{
    (void)state;
    struct image *image;
    struct symtab *table = open_table(FIXTURES "/nosize", &image);
    struct symbol symbol = range_of(image, table, "asm_nosize");
    assert_int_equal(symbol.end_svma - symbol.start_svma, 65);
    expect(table, symbol.start_svma - 1, "sized_before");
    expect(table, symbol.end_svma, "asm_label");
    symbol = range_of(image, table, "sized_after");
    assert_int_equal(symbol.end_svma - symbol.start_svma, 3);
    expect(table, symbol.end_svma, NULL);
    expect(table, symbol.end_svma + 31, NULL);
    expect(table, symbol.end_svma + 32, "after_gap");
    symtab_free(table);
    image_free(image);
}

/* What works has no name in the stripped program, and gets none from its neighbours. */
static void test_file_gap(void **state)
{
    (void)state;
    struct image *image;
    struct symtab *table = open_table(FIXTURES "/gap", &image);
    struct symbol hot = range_of(image, table, "hidden_hot");
    struct symbol far = range_of(image, table, "exported_far");
    uint64_t distance = hot.start_svma - far.start_svma;
    symtab_free(table);
    image_free(image);

    table = open_table(FIXTURES "/gap_stripped", &image);
    far = range_of(image, table, "exported_far");
    assert_int_equal(far.end_svma - far.start_svma, 1);
    for (uint64_t i = 1; i < distance + 65; i++)
        expect(table, far.start_svma + i, NULL);
    symtab_free(table);
    image_free(image);
}

static void test_file_aliases(void **state)
{
    (void)state;
    for (int order = 0; order < 6; order++) {
        static const char *const kinds[] = {"aliases", "aliases_stripped"};
        for (size_t k = 0; k < 2; k++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s_%d", FIXTURES, kinds[k], order);
            struct image *image;
            struct symtab *table = open_table(path, &image);
            struct symbol symbol = range_of(image, table, "api_name");
            assert_int_equal(symbol.end_svma - symbol.start_svma, 65);
            symtab_free(table);
            image_free(image);
        }
    }
}

static void test_file_ifunc(void **state)
{
    (void)state;
    struct image *image;
    struct symtab *table = open_table(FIXTURES "/ifunc", &image);
    range_of(image, table, "impl_fast");
    range_of(image, table, "impl_slow");
    range_of(image, table, "pick"); /* its resolver's code */
    assert_false(has_name(image, table, "resolve_pick"));
    symtab_free(table);
    image_free(image);
}

/* Without section headers .dynsym is found through PT_DYNAMIC: the names of what is exported stay. */
static void test_file_without_sections(void **state)
{
    (void)state;
    struct image *file = NULL;
    struct symtab *whole = open_table(FIXTURES "/gap_stripped", &file);
    struct symbol wanted = range_of(file, whole, "exported_far");
    size_t size = image_size(file);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(image_read_off(file, 0, bytes, size), 0);
    Elf64_Ehdr *elf = (Elf64_Ehdr *)(void *)bytes;
    elf->e_shoff = 0;
    elf->e_shnum = 0;
    struct image *image;
    struct symtab *table;
    assert_int_equal(image_open_memory(bytes, size, "bare", &image), 0);
    assert_int_equal(symtab_new(image, &table), 0);
    struct symbol found;
    assert_true(symtab_find(table, wanted.start_svma, &found));
    assert_string_equal(found.name, "exported_far");
    assert_int_equal(found.start_svma, wanted.start_svma);
    assert_int_equal(found.end_svma, wanted.end_svma);
    assert_false(symtab_find(table, wanted.end_svma, &found));
    symtab_free(table);
    image_free(image);
    symtab_free(whole);
    image_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_preference),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_sizeless),
        cmocka_unit_test(test_not_names),
        cmocka_unit_test(test_random_against_plain_rule),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_file_plain),
        cmocka_unit_test(test_file_sizeless),
        cmocka_unit_test(test_file_gap),
        cmocka_unit_test(test_file_aliases),
        cmocka_unit_test(test_file_ifunc),
        cmocka_unit_test(test_file_without_sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
