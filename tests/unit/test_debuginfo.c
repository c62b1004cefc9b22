#include "cmocka_all.h"

#include "common/rng.h"
#include "common/strbuf.h"
#include "symbolize/elfinflate.h"
#include "symbolize/rangemap.h"
#include "symbolize/symbolize.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "shell.h"

/* Only clang gives it a linkage name. */
#ifdef CXX_IS_CLANG
#define LAMBDA "first::with_lambda()::$_0::operator()"
#else
#define LAMBDA "first::with_lambda::{lambda}::operator()"
#endif

/* ---- files ---- */

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    struct bytes bytes = {.data = malloc(1 << 20)};
    assert_non_null(file);
    assert_non_null(bytes.data);
    bytes.size = fread(bytes.data, 1, 1 << 20, file);
    assert_true(bytes.size > 0 && bytes.size < 1 << 20);
    fclose(file);
    return bytes;
}

static struct image *open_image(const char *path)
{
    struct image *image = NULL;
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

/* A copy in memory, of just the size. */
static struct image *open_copy(const struct bytes *bytes)
{
    struct image *image = NULL;
    uint8_t *copy = malloc(bytes->size);
    assert_non_null(copy);
    memcpy(copy, bytes->data, bytes->size);
    assert_int_equal(image_open_memory(copy, bytes->size, "/copy", &image), 0);
    return image;
}

static Elf64_Shdr *section_headers(const struct bytes *file, size_t *ret_count)
{
    Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)file->data;
    *ret_count = head->e_shnum;
    return (Elf64_Shdr *)(void *)(file->data + head->e_shoff);
}

static bool is_debug(const struct bytes *file, const Elf64_Shdr *section)
{
    size_t count;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(void *)file->data;
    const Elf64_Shdr *names = &section_headers(file, &count)[head->e_shstrndx];
    return strncmp((const char *)file->data + names->sh_offset + section->sh_name, ".debug_", 7) == 0;
}

/* The file with its debug sections compressed by zstd; the streams come behind all else. */
static struct bytes compress(const struct bytes *file)
{
    struct bytes made = {.data = calloc(1, 4 << 20), .size = (file->size + 15) & ~(size_t)15};
    size_t count;
    assert_non_null(made.data);
    memcpy(made.data, file->data, file->size);
    Elf64_Shdr *sections = section_headers(&made, &count);
    for (size_t i = 0; i < count; i++) {
        if (!is_debug(&made, &sections[i]))
            continue;
        Elf64_Chdr header = {.ch_type = 2, .ch_size = sections[i].sh_size, .ch_addralign = sections[i].sh_addralign};
        memcpy(made.data + made.size, &header, sizeof(header));
        size_t bytes = ZSTD_compress(made.data + made.size + sizeof(header), 1 << 20,
                                     file->data + sections[i].sh_offset, sections[i].sh_size, 3);
        assert_false(ZSTD_isError(bytes));
        sections[i].sh_offset = made.size;
        sections[i].sh_size = sizeof(header) + bytes;
        sections[i].sh_flags |= SHF_COMPRESSED;
        made.size += (sizeof(header) + bytes + 15) & ~(size_t)15;
    }
    return made;
}

/* The address of a symbol without a type. */
static uint64_t find_mark(const struct image *image, unsigned number)
{
    struct image_section table;
    struct image_section strings;
    char name[32];
    uint8_t *symbols;
    uint8_t *names;
    size_t bytes;
    size_t name_bytes;
    uint64_t svma = 0;
    snprintf(name, sizeof(name), "mark_%u", number);
    assert_true(image_find_section(image, ".symtab", &table) && image_find_section(image, ".strtab", &strings));
    assert_int_equal(image_load_section(image, &table, 1 << 20, &symbols, &bytes), 0);
    assert_int_equal(image_load_section(image, &strings, 1 << 20, &names, &name_bytes), 0);
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= bytes; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, symbols + at, sizeof(symbol));
        if (symbol.st_name < name_bytes && strcmp((const char *)names + symbol.st_name, name) == 0)
            svma = symbol.st_value;
    }
    free(symbols);
    free(names);
    assert_int_not_equal(svma, 0);
    return svma;
}

/* ---- what is found ---- */

static size_t warned;

static void count_warning(void *context, const char *text)
{
    (void)context;
    (void)text;
    warned++;
}

static const struct symbolizer_options everything = {.inlines = true, .lines = true, .warn = count_warning};

/* "main file.c:3 > spin[i] file.c:7" */
static int add_chain(void *context, size_t index, const struct called *called, size_t count)
{
    struct strbuf *text = context;
    (void)index;
    for (size_t i = 0; i < count; i++) {
        const char *file = called[i].file ? called[i].file : "?";
        strbuf_addf(text, "%s%s%s %s:%u", i ? " > " : "", called[i].function, called[i].is_inlined ? "[i]" : "",
                    strrchr(file, '/') ? strrchr(file, '/') + 1 : file, called[i].line);
    }
    return 0;
}

/* To be freed. */
static char *chain_at(const struct image *image, uint64_t svma, const struct symbolizer_options *options)
{
    struct strbuf text = {0};
    uint64_t off;
    struct symbolizer *symbolizer = symbolizer_new(options);
    assert_true(image_svma_to_off(image, svma, &off));
    assert_int_equal(symbolizer_resolve(symbolizer, image, &off, 1, add_chain, &text), 0);
    symbolizer_free(symbolizer);
    return text.data ? text.data : strdup("");
}

/* The line of the fixture's source that says "line: NAME". */
static unsigned line_of(const char *source, const char *name)
{
    char path[512];
    char line[256];
    unsigned number = 0;
    unsigned found = 0;
    size_t bytes = strlen(name);
    snprintf(path, sizeof(path), "%s/%s", FIXTURE_SOURCES, source);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        const char *at = strstr(line, "line: ");
        number++;
        if (at && strncmp(at + 6, name, bytes) == 0 && (at[6 + bytes] == ' ' || at[6 + bytes] == '\n'))
            found = number;
    }
    fclose(file);
    assert_int_not_equal(found, 0);
    return found;
}

/* A function of the chain, and the name of the line. */
struct step {
    const char *function;
    const char *line;
};

static void expect_chain(const struct image *image, const char *source, unsigned mark, const struct step *steps)
{
    struct strbuf expected = {0};
    for (size_t i = 0; steps[i].function; i++)
        strbuf_addf(&expected, "%s%s%s %s:%u", i ? " > " : "", steps[i].function, i ? "[i]" : "", source,
                    line_of(source, steps[i].line));
    char *chain = chain_at(image, find_mark(image, mark), &everything);
    assert_string_equal(chain, expected.data);
    free(chain);
    strbuf_deinit(&expected);
}

#define EXPECT(image, source, mark, ...) expect_chain(image, source, mark, (const struct step[]){__VA_ARGS__, {0}})

static void expect_c(const struct image *image)
{
    static const char source[] = "inlines.c";
    EXPECT(image, source, 10, {"outer", "outer_first"}, {"inner", "inner"}, {"innermost", "innermost"});
    EXPECT(image, source, 11, {"outer", "outer_first"}, {"inner", "inner_mark"});
    EXPECT(image, source, 20, {"outer", "outer_second"}, {"inner", "inner"}, {"innermost", "innermost"});
    EXPECT(image, source, 21, {"outer", "outer_second"}, {"inner", "inner_mark"});
    EXPECT(image, source, 30, {"outer", "outer"});
    EXPECT(image, source, 40, {"other", "other"}, {"innermost", "innermost"});
    EXPECT(image, source, 50, {"with_cold", "cold"}); /* which is elsewhere, under the name with_cold.cold */
}

static void test_c(void **state)
{
    (void)state;
    static const char *const files[] = {"inlines_4", "inlines_5", "inlines_zlib"};
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", FIXTURES, files[i]);
        struct image *image = open_image(path);
        expect_c(image);
        image_free(image);
    }
}

static void test_cxx(void **state)
{
    (void)state;
    static const char source[] = "inlines_cxx.cc";
    static const char *const files[] = {FIXTURES "/inlines_cxx_4", FIXTURES "/inlines_cxx_5"};
    for (size_t i = 0; i < 2; i++) {
        struct image *image = open_image(files[i]);
        EXPECT(image, source, 10, {"first::Thing::Thing", "constructor"},
               {"first::(anonymous namespace)::twice<10>", "twice"});
        EXPECT(image, source, 20, {"first::Thing::caller", "caller"}, {"first::Thing::method", "method"});
        EXPECT(image, source, 30, {"first::with_lambda", "with_lambda"}, {LAMBDA, "lambda"});
        image_free(image);
    }
}

static void expect_text(const struct image *image, const struct symbolizer_options *options, const char *expected)
{
    char *chain = chain_at(image, find_mark(image, 10), options);
    assert_string_equal(chain, expected);
    free(chain);
}

static void test_options(void **state)
{
    (void)state;
    char expected[64];
    struct image *image = open_image(FIXTURES "/inlines_5");
    const struct symbolizer_options names = {0};
    const struct symbolizer_options inlines = {.inlines = true};
    const struct symbolizer_options lines = {.lines = true};
    snprintf(expected, sizeof(expected), "outer inlines.c:%u", line_of("inlines.c", "innermost"));
    expect_text(image, &names, "outer ?:0");
    expect_text(image, &inlines, "outer ?:0 > inner[i] ?:0 > innermost[i] ?:0");
    expect_text(image, &lines, expected);
    image_free(image);
}

/* ---- compressed sections ---- */

static void test_zstd(void **state)
{
    (void)state;
    struct bytes file = read_file(FIXTURES "/inlines_5");
    struct bytes compressed = compress(&file);
    struct image *plain = open_copy(&file);
    struct image *image = open_copy(&compressed);
    uint8_t *elf = NULL;
    size_t size = 0;
    assert_int_equal(elfinflate(plain, &elf, &size), 0);
    assert_null(elf);
    expect_c(image);
    assert_int_equal(elfinflate(image, &elf, &size), 0);
    struct bytes made = {.data = elf, .size = size};
    size_t count;
    size_t made_count;
    Elf64_Shdr *sections = section_headers(&file, &count);
    Elf64_Shdr *made_sections = section_headers(&made, &made_count);
    assert_int_equal(made_count, count);
    for (size_t i = 0; i < count; i++) {
        if (!is_debug(&file, &sections[i]))
            continue;
        assert_int_equal(made_sections[i].sh_size, sections[i].sh_size);
        assert_true(made_sections[i].sh_offset + made_sections[i].sh_size <= size);
        assert_memory_equal(elf + made_sections[i].sh_offset, file.data + sections[i].sh_offset, sections[i].sh_size);
    }
    free(elf);
    free(file.data);
    free(compressed.data);
    image_free(plain);
    image_free(image);
}

/* A section that claims to become a terabyte, or more or less than it does, is none. */
static void test_zstd_size(void **state)
{
    (void)state;
    static const int64_t changes[] = {(int64_t)1 << 40, 1, -1, 1 << 30};
    struct bytes file = read_file(FIXTURES "/inlines_5");
    struct bytes compressed = compress(&file);
    size_t count;
    Elf64_Shdr *sections = section_headers(&compressed, &count);
    size_t at = 0;
    while (at < count && !is_debug(&compressed, &sections[at]))
        at++;
    assert_true(at < count);
    Elf64_Chdr *header = (Elf64_Chdr *)(void *)(compressed.data + sections[at].sh_offset);
    uint64_t size = header->ch_size;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint8_t *elf = NULL;
        size_t bytes;
        header->ch_size = size + (uint64_t)changes[i];
        struct image *image = open_copy(&compressed);
        assert_int_equal(elfinflate(image, &elf, &bytes), -ENODATA);
        assert_null(elf);
        expect_text(image, &everything, "outer ?:0");
        image_free(image);
    }
    free(file.data);
    free(compressed.data);
}

/* ---- damaged files ---- */

static int ignore(void *context, size_t index, const struct called *called, size_t count)
{
    (void)context;
    (void)index;
    for (size_t i = 0; i < count; i++)
        assert_true(called[i].function && strlen(called[i].function) < 1 << 20);
    return 0;
}

/* Asks for each byte of the code. */
static void ask_all(const struct bytes *file)
{
    struct image *image = open_copy(file);
    struct image_section text;
    struct symbolizer *symbolizer = symbolizer_new(&everything);
    assert_true(image_find_section(image, ".text", &text) && text.bytes < 4096);
    uint64_t offs[4096];
    for (size_t i = 0; i < text.bytes; i++)
        offs[i] = text.off + i;
    assert_int_equal(symbolizer_resolve(symbolizer, image, offs, text.bytes, ignore, NULL), 0);
    symbolizer_free(symbolizer);
    image_free(image);
}

enum { DAMAGES = 150, FLIPS = 4 };

static void flip_some(struct bytes *file, struct rng *rng)
{
    size_t count;
    Elf64_Shdr *sections = section_headers(file, &count);
    for (int flips = 0; flips < FLIPS;) {
        const Elf64_Shdr *section = &sections[rng_next(rng) % count];
        if (!is_debug(file, section) || section->sh_size == 0)
            continue;
        file->data[section->sh_offset + rng_next(rng) % section->sh_size] ^= (uint8_t)(1 << rng_next(rng) % 8);
        flips++;
    }
}

static void cut_one(struct bytes *file, struct rng *rng)
{
    size_t count;
    Elf64_Shdr *sections = section_headers(file, &count);
    for (;;) {
        Elf64_Shdr *section = &sections[rng_next(rng) % count];
        if (is_debug(file, section) && section->sh_size > 0) {
            section->sh_size = rng_next(rng) % section->sh_size;
            return;
        }
    }
}

static void damage(const struct bytes *file, void (*change)(struct bytes *file, struct rng *rng))
{
    struct rng rng = {42};
    for (int i = 0; i < DAMAGES; i++) {
        struct bytes copy = {.data = malloc(file->size), .size = file->size};
        assert_non_null(copy.data);
        memcpy(copy.data, file->data, file->size);
        change(&copy, &rng);
        ask_all(&copy);
        free(copy.data);
    }
}

/* Nothing faults, hangs, or takes all memory. */
static void test_damaged(void **state)
{
    (void)state;
    static const char *const files[] = {"inlines_4", "inlines_5", "inlines_cxx_4", "inlines_cxx_5", "inlines_zlib"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", FIXTURES, files[i]);
        struct bytes file = read_file(path);
        damage(&file, flip_some);
        damage(&file, cut_one);
        free(file.data);
    }
    struct bytes file = read_file(FIXTURES "/inlines_5");
    struct bytes compressed = compress(&file);
    damage(&compressed, flip_some);
    damage(&compressed, cut_one);
    free(file.data);
    free(compressed.data);
}

/* ---- other files that it refers to ---- */

static int make_split(void **state)
{
    (void)state;
    alarm(60);
    shell("rm -rf *; mkdir compiled moved; cd compiled; "
          "gcc -O2 -g -gsplit-dwarf -c %s/inlines.c -o inlines.o; gcc inlines.o -o prog",
          FIXTURE_SOURCES);
    return 0;
}

/* Where the split units are, with lines: the skeleton has these. */
static void expect_split(const char *path, bool is_there)
{
    char symbols_only[64];
    char absolute[128];
    snprintf(absolute, sizeof(absolute), "%s/%s", directory, path);
    struct image *image = open_image(absolute);
    snprintf(symbols_only, sizeof(symbols_only), "outer inlines.c:%u", line_of("inlines.c", "innermost"));
    if (is_there)
        expect_c(image);
    else
        expect_text(image, &everything, symbols_only);
    image_free(image);
}

static void test_split(void **state)
{
    (void)state;
    warned = 0;
    expect_split("compiled/prog", true);
    shell("mv compiled/prog moved"); /* they are still where they were */
    expect_split("moved/prog", true);
    shell("mv compiled/inlines.dwo moved"); /* beside the program, too */
    expect_split("moved/prog", true);
    assert_int_equal(warned, 0);
    shell("rm moved/inlines.dwo");
    expect_split("moved/prog", false);
    assert_int_equal(warned, 1);
}

/* A split unit of another build is not its own. */
static void test_split_of_another_build(void **state)
{
    (void)state;
    shell("cd compiled; gcc -O2 -g -gsplit-dwarf -Dinner=wrong_name -c %s/inlines.c -o inlines.o", FIXTURE_SOURCES);
    warned = 0;
    expect_split("compiled/prog", false);
    assert_int_equal(warned, 1);
}

/* Neither of the places where libdw would look makes it wait. */
static void test_split_fifo(void **state)
{
    (void)state;
    shell("rm compiled/inlines.dwo; mkfifo compiled/inlines.dwo");
    expect_split("compiled/prog", false);
    shell("rm compiled/inlines.dwo; mv compiled/prog moved; mkfifo moved/inlines.dwo");
    expect_split("moved/prog", false);
}

static void test_package_warning(void **state)
{
    (void)state;
    shell("rm compiled/inlines.dwo; echo >compiled/prog.dwp");
    warned = 0;
    expect_split("compiled/prog", false);
    assert_int_equal(warned, 1);
}

/* `prog` shares what it has with `other`, in `common`, if dwz is here. */
static int make_shared(void **state)
{
    (void)state;
    alarm(60);
    if (access("/usr/bin/dwz", X_OK) < 0)
        return 0;
    shell("rm -rf *; cp %s/inlines_cxx_4 prog; cp prog other; dwz -m common prog other", FIXTURES);
    shell("readelf -SW prog | grep -q gnu_debugaltlink");
    return 0;
}

/* Names are right, or there are none. */
static void expect_shared(bool is_there)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/prog", directory);
    struct image *image = open_image(path);
    if (is_there) {
        EXPECT(image, "inlines_cxx.cc", 10, {"first::Thing::Thing", "constructor"},
               {"first::(anonymous namespace)::twice<10>", "twice"});
    } else {
        char *chain = chain_at(image, find_mark(image, 10), &everything);
        const char *expected = "first::Thing::Thing inlines_cxx.cc:";
        assert_int_equal(strncmp(chain, expected, strlen(expected)), 0);
        if (strstr(chain, "[i]") && !strstr(chain, "twice<10>[i]"))
            fail_msg("%s", chain);
        free(chain);
    }
    image_free(image);
}

static void test_shared(void **state)
{
    (void)state;
    if (access("/usr/bin/dwz", X_OK) < 0)
        skip();
    expect_shared(true);
    shell("mv common elsewhere");
    expect_shared(false);
    shell("mkfifo common");
    expect_shared(false);
    /* Of another build: the same words, with other ones in their place. */
    shell("rm common; sed 's/twice/wrong/g' elsewhere >common; objcopy --remove-section=.note.gnu.build-id common");
    expect_shared(false);
    shell("mv elsewhere common");
    expect_shared(true);
}

/* ---- ranges ---- */

static void expect_range(const struct rangemap *map, uint64_t address, int64_t expected)
{
    uint32_t value;
    bool found = rangemap_find(map, address, &value);
    assert_int_equal(found ? (int64_t)value : -1, expected);
}

static void test_ranges(void **state)
{
    (void)state;
    struct rangemap map = {0};
    rangemap_sort(&map);
    expect_range(&map, 0, -1);
    assert_int_equal(rangemap_add(&map, 0x100, 0x200, 1), 0);
    assert_int_equal(rangemap_add(&map, 0x120, 0x140, 2), 0);
    assert_int_equal(rangemap_add(&map, 0x120, 0x130, 3), 0);
    assert_int_equal(rangemap_add(&map, 0x120, 0x130, 4), 0);
    assert_int_equal(rangemap_add(&map, 0x300, 0x300, 5), 0);
    assert_int_equal(rangemap_add(&map, 0x400, 0x300, 6), 0);
    assert_int_equal(rangemap_add(&map, UINT64_MAX - 1, UINT64_MAX, 7), 0);
    rangemap_sort(&map);
    expect_range(&map, 0xff, -1);
    expect_range(&map, 0x100, 1);
    expect_range(&map, 0x11f, 1);
    expect_range(&map, 0x120, 3);
    expect_range(&map, 0x130, 2);
    expect_range(&map, 0x140, 1);
    expect_range(&map, 0x1ff, 1);
    expect_range(&map, 0x200, -1);
    expect_range(&map, 0x300, -1);
    expect_range(&map, 0x350, -1);
    expect_range(&map, UINT64_MAX - 1, 7);
    expect_range(&map, UINT64_MAX, -1);
    rangemap_deinit(&map);
}

/* Empty ranges count, too, so that reading them ends. */
static void test_full_ranges(void **state)
{
    (void)state;
    struct rangemap map = {0};
    size_t turns = 0;
    for (; !rangemap_is_full(&map) && turns < 1 << 25; turns++)
        assert_true(rangemap_add(&map, turns, turns + turns % 64 / 63, 1) == 0);
    assert_true(turns < 1 << 25);
    size_t count = map.count;
    assert_int_equal(rangemap_add(&map, 1, 2, 3), 0);
    assert_int_equal(map.count, count);
    rangemap_clear(&map);
    assert_false(rangemap_is_full(&map));
    rangemap_deinit(&map);
}

static struct image *open_made(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return open_image(path);
}

/* Namespaces in namespaces, deeper than any stack, around a function that has no name for the linker. */
static const char deep[] = ".text\n.globl _start\n.type _start,@function\n_start: nop\nnop\nmark_1: ret\n1:\n"
                           ".section .debug_abbrev,\"\",@progbits\n"
                           ".byte 1,0x11,1, 0x13,0xb, 0x11,1, 0x12,1, 0,0\n" /* unit: language, low and high pc */
                           ".byte 2,0x39,1, 3,8, 0,0\n"                      /* namespace: name */
                           ".byte 3,0x2e,0, 3,8, 0x11,1, 0x12,1, 0,0\n"      /* function: name, low and high pc */
                           ".byte 0\n"
                           ".section .debug_info,\"\",@progbits\n"
                           ".long 3f-2f\n2: .value 4\n.long .debug_abbrev\n.byte 8\n"
                           ".byte 1,4\n.quad _start,1b\n"
                           ".rept 300000\n.byte 2,'n',0\n.endr\n"
                           ".byte 3,'f',0\n.quad _start,1b\n"
                           ".zero 300001\n3:\n";

static FILE *open_source(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    return file;
}

static int make_deep(void **state)
{
    (void)state;
    alarm(60);
    FILE *file = open_source("deep.s");
    fputs(deep, file);
    assert_int_equal(fclose(file), 0);
    shell("gcc -c deep.s -o deep.o && ld deep.o -o deep && objcopy -N _start deep");
    return 0;
}

static void test_deep(void **state)
{
    (void)state;
    struct image *image = open_made("deep");
    char *chain = chain_at(image, find_mark(image, 1), &everything); /* as long as it comes back */
    assert_true(*chain == '\0' || strstr(chain, "mark_1") || strstr(chain, "f "));
    free(chain);
    image_free(image);
}

/* Code that the linker has left out has its debug information still, for addresses from 0 on. */
static int make_left_out(void **state)
{
    (void)state;
    alarm(60);
    FILE *file = open_source("big.c");
    fprintf(file, "int left_out(int a) { int b = 0;\n");
    for (int i = 0; i < 2000; i++)
        fprintf(file, "b += a * b + %d; b ^= a << 3;\n", i);
    fprintf(file, "return b; }\nint used(void) { return 1; }\n");
    assert_int_equal(fclose(file), 0);
    file = open_source("plain.c");
    fprintf(file,
            "int used(void);\n__asm__(\".globl mark_1\\n.set mark_1, plain\");\nint plain(void) { return used(); }\n");
    assert_int_equal(fclose(file), 0);
    shell("gcc -O0 -g -ffunction-sections -fPIC -c big.c; gcc -O0 -fPIC -c plain.c; "
          "gcc -shared -Wl,--gc-sections -Wl,-u,used plain.o big.o -o left_out.so");
    return 0;
}

static void test_left_out(void **state)
{
    (void)state;
    struct image *image = open_made("left_out.so");
    char *chain = chain_at(image, find_mark(image, 1), &everything);
    assert_string_equal(chain, "mark_1 ?:0");
    free(chain);
    image_free(image);
}

/* Thousands of functions without a name for the linker in a unit: their scopes are looked for once. */
enum { MANY = 2000 };

static int make_many(void **state)
{
    (void)state;
    alarm(100);
    FILE *file = open_source("many.cc");
    fprintf(file, "namespace ns { namespace {\n");
    for (int i = 0; i < MANY; i++)
        fprintf(file, "__attribute__((noinline)) int f%d(int a) { __asm__ volatile(\"\"); return a + %d; }\n", i, i);
    fprintf(file, "} int all(int a) { int b = 0;\n");
    for (int i = 0; i < MANY; i++)
        fprintf(file, "b += f%d(a);\n", i);
    fprintf(file, "return b; } }\n");
    assert_int_equal(fclose(file), 0);
    shell("g++ -O1 -g -fPIC -shared many.cc -o many.so; strip -w -N '*_GLOBAL__N_1*' many.so");
    return 0;
}

static int count_scoped(void *context, size_t index, const struct called *called, size_t count)
{
    (void)index;
    *(size_t *)context += count && strncmp(called[0].function, "ns::(anonymous namespace)::f", 28) == 0;
    return 0;
}

static void test_many(void **state)
{
    (void)state;
    struct image_section text;
    struct image *image = open_made("many.so");
    struct symbolizer *symbolizer = symbolizer_new(&everything);
    size_t scoped = 0;
    assert_true(image_find_section(image, ".text", &text));
    uint64_t *offs = calloc(text.bytes, sizeof(*offs));
    assert_non_null(offs);
    for (size_t i = 0; i < text.bytes; i++)
        offs[i] = text.off + i;
    clock_t before = clock();
    assert_int_equal(symbolizer_resolve(symbolizer, image, offs, text.bytes, count_scoped, &scoped), 0);
    assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 10); /* half a minute, if each were looked for anew */
    assert_true(scoped >= MANY * 3);
    free(offs);
    symbolizer_free(symbolizer);
    image_free(image);
}

static int set_limit(void **state)
{
    (void)state;
    alarm(100);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c),
        cmocka_unit_test(test_cxx),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_zstd),
        cmocka_unit_test(test_zstd_size),
        cmocka_unit_test_setup(test_damaged, set_limit),
        cmocka_unit_test_setup(test_split, make_split),
        cmocka_unit_test_setup(test_split_of_another_build, make_split),
        cmocka_unit_test_setup(test_split_fifo, make_split),
        cmocka_unit_test_setup(test_package_warning, make_split),
        cmocka_unit_test_setup(test_shared, make_shared),
        cmocka_unit_test_setup(test_deep, make_deep),
        cmocka_unit_test_setup(test_left_out, make_left_out),
        cmocka_unit_test_setup(test_many, make_many),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_full_ranges),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory) ? 1 : 0;
}
