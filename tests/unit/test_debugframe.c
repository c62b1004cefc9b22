/* .debug_frame: its format, its compression, and how it and .eh_frame share an image. */
#include "cmocka_all.h"

#include "cfi_made.h"
#include "guarded.h"
#include "unwind/cfientry.h"
#include "unwind/cfiindex.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

/* ---- entries in the making ---- */

/* How a section is written. */
struct dialect {
    uint8_t version;
    bool wide; /* 64-bit DWARF */
    uint8_t address_size;
    uint8_t segment_size;
    const char *augmentation; /* "": none, as gcc writes it; with 'z', `encoding` is its data */
    uint8_t encoding;
};

static const struct dialect ordinary = {.version = 1, .address_size = 8, .augmentation = ""};

static size_t start_entry(struct writer *writer, const struct dialect *dialect, uint64_t id)
{
    size_t start = writer->size;
    if (dialect->wide)
        write_number(writer, UINT32_MAX, 4);
    write_number(writer, 0, dialect->wide ? 8 : 4);
    write_number(writer, id, dialect->wide ? 8 : 4);
    return start;
}

static void end_debug_entry(struct writer *writer, const struct dialect *dialect, size_t start)
{
    if (!dialect->wide) {
        end_entry(writer, start);
        return;
    }
    while (writer->size % 8 != 0)
        write_number(writer, 0, 1);
    uint64_t length = writer->size - start - 12;
    memcpy(writer->data + start + 4, &length, sizeof(length));
}

static size_t write_debug_cie(struct writer *writer, const struct dialect *dialect)
{
    static const uint8_t program[] = {0x0c, 0x07, 0x08, 0x90, 0x01};
    size_t start = start_entry(writer, dialect, UINT64_MAX);
    write_number(writer, dialect->version, 1);
    write_bytes(writer, dialect->augmentation, strlen(dialect->augmentation) + 1);
    if (dialect->version >= 4) {
        write_number(writer, dialect->address_size, 1);
        write_number(writer, dialect->segment_size, 1);
    }
    write_number(writer, 1, 1);
    write_number(writer, 0x78, 1);
    write_number(writer, 16, 1);
    if (*dialect->augmentation == 'z') {
        write_number(writer, 1, 1);
        write_number(writer, dialect->encoding, 1);
    }
    write_bytes(writer, program, sizeof(program));
    end_debug_entry(writer, dialect, start);
    return start;
}

static void write_debug_fde(struct writer *writer, const struct dialect *dialect, size_t cie, uint64_t start_svma,
                            uint64_t length)
{
    size_t start = start_entry(writer, dialect, cie);
    size_t size = (dialect->encoding & 0x07) == PE_UDATA4 ? 4 : 8;
    write_number(writer, start_svma, size);
    write_number(writer, length, size);
    if (*dialect->augmentation == 'z')
        write_number(writer, 0, 1);
    end_debug_entry(writer, dialect, start);
}

/* Three functions of 0x40 bytes, 0x100 bytes apart, not in their order. */
static struct writer three_functions(const struct dialect *dialect)
{
    struct writer debug = {0};
    size_t cie = write_debug_cie(&debug, dialect);
    write_debug_fde(&debug, dialect, cie, TEXT_SVMA + 0x200, 0x40);
    write_debug_fde(&debug, dialect, cie, TEXT_SVMA, 0x40);
    write_debug_fde(&debug, dialect, cie, TEXT_SVMA + 0x100, 0x40);
    return debug;
}

static void assert_three_functions(struct image *image, bool expected)
{
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    struct cfi_function function;
    for (uint64_t svma = TEXT_SVMA; svma < TEXT_SVMA + 0x300; svma++) {
        bool covered = expected && svma % 0x100 < 0x40;
        assert_int_equal(cfitable_find(table, svma, &function), covered ? 0 : -ENOENT);
        if (!covered)
            continue;
        assert_int_equal(function.start_svma, svma & ~UINT64_C(0xff));
        assert_int_equal(function.end_svma, function.start_svma + 0x40);
        assert_false(function.signal);
    }
    assert_int_equal(cfitable_find(table, 0, &function), -ENOENT);
    cfitable_free(table);
    image_free(image);
}

static struct image *debug_image(const struct writer *debug)
{
    return make_image(&(struct made){.debug = debug->data, .debug_bytes = debug->size});
}

/* ---- format ---- */

static void reads_all_versions_and_lengths(void **state)
{
    (void)state;
    static const uint8_t versions[] = {1, 3, 4};
    for (size_t i = 0; i < sizeof(versions); i++) {
        for (int wide = 0; wide < 2; wide++) {
            struct dialect dialect = ordinary;
            dialect.version = versions[i];
            dialect.wide = wide;
            struct writer debug = three_functions(&dialect);
            assert_three_functions(debug_image(&debug), true);
        }
    }
}

static void knows_whom_it_cannot_read(void **state)
{
    (void)state;
    struct {
        struct dialect dialect;
        bool readable;
    } cases[] = {
        {{.version = 0, .address_size = 8, .augmentation = ""}, false},
        {{.version = 2, .address_size = 8, .augmentation = ""}, false},
        {{.version = 5, .address_size = 8, .augmentation = ""}, false},
        {{.version = 4, .address_size = 4, .augmentation = ""}, false},
        {{.version = 4, .address_size = 8, .segment_size = 2, .augmentation = ""}, false},
        {{.version = 1, .augmentation = "zR", .encoding = PE_ABSPTR}, true},
        {{.version = 1, .augmentation = "zR", .encoding = PE_UDATA4}, true},
        {{.version = 3, .augmentation = "zR", .encoding = PE_UDATA8}, true},
        {{.version = 1, .augmentation = "zR", .encoding = PE_PCREL | PE_UDATA8}, false},
        {{.version = 1, .augmentation = "zX", .encoding = 0}, true}, /* unknown, but of known length */
        {{.version = 1, .augmentation = "X"}, false},
        {{.version = 1, .augmentation = "zRRRRRRRRRRRRRRRRR"}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct writer debug = three_functions(&cases[i].dialect);
        assert_three_functions(debug_image(&debug), cases[i].readable);
    }
}

static void a_cie_may_stand_behind_its_functions(void **state)
{
    (void)state;
    struct writer forward = {0};
    size_t cie = 3 * 24;
    for (uint64_t n = 0; n < 3; n++)
        write_debug_fde(&forward, &ordinary, cie, TEXT_SVMA + n * 0x100, 0x40);
    assert_int_equal(forward.size, cie);
    write_debug_cie(&forward, &ordinary);
    assert_three_functions(debug_image(&forward), true);
}

/* Between sections of several files there may be zeros; and a CIE pointer may lead astray. */
static void what_is_damaged_hides_nothing_else(void **state)
{
    (void)state;
    struct writer debug = {0};
    size_t cie = write_debug_cie(&debug, &ordinary);
    write_debug_fde(&debug, &ordinary, cie, TEXT_SVMA, 0x40);
    write_number(&debug, 0, 8);
    write_debug_fde(&debug, &ordinary, 0x10000, TEXT_SVMA + 0x80, 0x40);
    write_debug_fde(&debug, &ordinary, cie + 1, TEXT_SVMA + 0x80, 0x40);
    write_debug_fde(&debug, &ordinary, UINT32_MAX - 1, TEXT_SVMA + 0x80, 0x40);
    write_debug_fde(&debug, &ordinary, cie, TEXT_SVMA + 0x100, 0x40);
    cie = write_debug_cie(&debug, &ordinary);
    write_debug_fde(&debug, &ordinary, cie, TEXT_SVMA + 0x200, 0x40);
    assert_three_functions(debug_image(&debug), true);
    write_number(&debug, 0x7fffffff, 4);
    assert_three_functions(debug_image(&debug), true);
}

static void discarded_functions_do_not_win(void **state)
{
    (void)state;
    struct writer debug = {0};
    size_t cie = write_debug_cie(&debug, &ordinary);
    write_debug_fde(&debug, &ordinary, cie, 0, 0x2000);
    for (uint64_t n = 0; n < 3; n++) {
        write_debug_fde(&debug, &ordinary, cie, 0, TEXT_SVMA + n * 0x100 + 0x20);
        write_debug_fde(&debug, &ordinary, cie, UINT64_MAX - n, 0x40);
        write_debug_fde(&debug, &ordinary, cie, TEXT_SVMA + n * 0x100, 0x40);
        write_debug_fde(&debug, &ordinary, cie, TEXT_SVMA + n * 0x100, 0x40); /* another copy */
    }
    assert_three_functions(debug_image(&debug), true);
}

/* ---- beside .eh_frame ---- */

/* A function of either, one of both, and one that .eh_frame has with instructions that nobody knows. */
static void eh_frame_decides_where_both_cover(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, true);
    write_fde(&frame, cie, TEXT_SVMA, 0x40, 0x1b);
    write_fde(&frame, cie, TEXT_SVMA + 0x300, 0x10, 0x1b);
    size_t bad = write_fde(&frame, cie, TEXT_SVMA + 0x400, 0x40, 0x1b);
    frame.data[bad + 17] = 0x3f;
    struct writer debug = three_functions(&ordinary);
    write_debug_fde(&debug, &ordinary, 0, TEXT_SVMA + 0x300, 0x20);
    write_debug_fde(&debug, &ordinary, 0, TEXT_SVMA + 0x400, 0x40);
    struct image *image = make_image(
        &(struct made){.frame = frame.data, .frame_bytes = frame.size, .debug = debug.data, .debug_bytes = debug.size});
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    struct cfi_function function;
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x3f, &function), 0);
    assert_true(function.signal);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x100, &function), 0);
    assert_false(function.signal);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x30f, &function), 0);
    assert_true(function.signal);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x310, &function), 0);
    assert_false(function.signal);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x400, &function), -EINVAL);
    uint64_t start, end;
    assert_true(cfitable_gap(table, TEXT_SVMA + 0x380, &start, &end));
    assert_int_equal(start, TEXT_SVMA + 0x320);
    assert_int_equal(end, TEXT_SVMA + 0x400);
    assert_true(cfitable_gap(table, TEXT_SVMA + 0x80, &start, &end));
    assert_int_equal(start, TEXT_SVMA + 0x40);
    assert_int_equal(end, TEXT_SVMA + 0x100);
    cfitable_free(table);
    image_free(image);
}

/* ---- compression ---- */

struct packed {
    uint8_t *data; /* owned */
    size_t size;
};

/* The section's header with what it claims, and the stream. */
static struct packed pack(const void *data, size_t size, bool gnu, uint32_t type, uint64_t claimed)
{
    uLongf room = compressBound(size);
    size_t header_bytes = gnu ? 12 : sizeof(Elf64_Chdr);
    uint8_t *packed = calloc(1, header_bytes + room);
    assert_non_null(packed);
    if (gnu) {
        memcpy(packed, "ZLIB", 4);
        for (size_t i = 0; i < 8; i++)
            packed[4 + i] = (uint8_t)(claimed >> (56 - 8 * i));
    } else {
        Elf64_Chdr header = {.ch_type = type, .ch_size = claimed, .ch_addralign = 8};
        memcpy(packed, &header, sizeof(header));
    }
    assert_int_equal(compress(packed + header_bytes, &room, data, size), Z_OK);
    return (struct packed){.data = packed, .size = header_bytes + room};
}

static struct image *packed_image(const struct packed *packed, bool gnu, size_t cut)
{
    return make_image(&(struct made){.debug = packed->data,
                                     .debug_bytes = packed->size - cut,
                                     .debug_is_z = gnu,
                                     .debug_flags = gnu ? 0 : SHF_COMPRESSED});
}

static void reads_compressed_sections(void **state)
{
    (void)state;
    struct dialect dialect = ordinary;
    dialect.version = 4;
    struct writer debug = three_functions(&dialect);
    for (int gnu = 0; gnu < 2; gnu++) {
        struct packed packed = pack(debug.data, debug.size, gnu, ELFCOMPRESS_ZLIB, debug.size);
        assert_three_functions(packed_image(&packed, gnu, 0), true);
        /* Not whole, at each place where it may end. */
        for (size_t cut = 1; cut < packed.size; cut++)
            assert_three_functions(packed_image(&packed, gnu, cut), false);
        /* A checksum that is wrong. */
        packed.data[packed.size - 1] ^= 1;
        assert_three_functions(packed_image(&packed, gnu, 0), false);
        free(packed.data);
    }
}

static void claims_of_compressed_sections_are_checked(void **state)
{
    (void)state;
    struct writer debug = three_functions(&ordinary);
    uint64_t claims[] = {0, 1, debug.size - 1, debug.size + 1, debug.size * 100, 1 << 26, UINT32_MAX, UINT64_MAX};
    for (int gnu = 0; gnu < 2; gnu++) {
        for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
            struct packed packed = pack(debug.data, debug.size, gnu, ELFCOMPRESS_ZLIB, claims[i]);
            assert_three_functions(packed_image(&packed, gnu, 0), false);
            free(packed.data);
        }
    }
    struct packed packed = pack(debug.data, debug.size, false, 2 /* ELFCOMPRESS_ZSTD */, debug.size);
    assert_three_functions(packed_image(&packed, false, 0), false);
    free(packed.data);
}

/* Good entries, and behind them more zeros than belong there. */
static void bombs_are_not_inflated(void **state)
{
    (void)state;
    struct writer debug = three_functions(&ordinary);
    size_t size = 1 << 22;
    uint8_t *data = calloc(1, size);
    assert_non_null(data);
    memcpy(data, debug.data, debug.size);
    for (int gnu = 0; gnu < 2; gnu++) {
        struct packed packed = pack(data, size, gnu, ELFCOMPRESS_ZLIB, size);
        assert_true(packed.size < size / 256);
        assert_three_functions(packed_image(&packed, gnu, 0), false);
        free(packed.data);
    }
    free(data);
}

/* Stored or compressed, there may be 64 MB and not more. */
static void large_sections_are_not_read(void **state)
{
    (void)state;
    struct writer debug = three_functions(&ordinary);
    uint8_t *data = calloc(1, (1 << 26) + 8);
    assert_non_null(data);
    memcpy(data, debug.data, debug.size);
    assert_three_functions(make_image(&(struct made){.debug = data, .debug_bytes = 1 << 26}), true);
    assert_three_functions(make_image(&(struct made){.debug = data, .debug_bytes = (1 << 26) + 8}), false);
    free(data);
}

/* ---- many functions ---- */

/* 200,000 functions in the wrong order, each with another CIE than the one before it. */
static void the_worst_order_takes_no_time(void **state)
{
    (void)state;
    enum { COUNT = 200000, ENTRY = 24 };
    struct writer cies = {0};
    size_t cie[2] = {write_debug_cie(&cies, &ordinary), write_debug_cie(&cies, &ordinary)};
    size_t size = cies.size + (size_t)COUNT * ENTRY;
    struct guarded section = guarded_new(NULL, size);
    assert_non_null(section.bytes);
    memcpy(section.bytes, cies.data, cies.size);
    for (uint64_t n = 0; n < COUNT; n++) {
        struct writer fde = {0};
        write_debug_fde(&fde, &ordinary, cie[n % 2], TEXT_SVMA + (COUNT - 1 - n) * 16, 8);
        assert_int_equal(fde.size, ENTRY);
        memcpy(section.bytes + cies.size + n * ENTRY, fde.data, ENTRY);
    }
    struct image *image = make_image(&(struct made){.debug = section.bytes, .debug_bytes = size});
    struct timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    struct cfiindex index = {0};
    assert_int_equal(cfiindex_read_debug_frame(&index, image, section.bytes, size), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    double ms = (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) / 1e6;
    print_message("%d functions in %.1f ms\n", COUNT, ms);
    assert_true(ms < 3000); /* a tenth of it, but for sanitizers */
    assert_int_equal(index.count, COUNT);
    for (size_t n = 0; n < COUNT; n++)
        assert_int_equal(cfiindex_start(&index, n), TEXT_SVMA + n * 16);
    assert_int_equal(cfiindex_find(&index, TEXT_SVMA + 16 * 1000 + 15), 1000);
    cfiindex_deinit(&index);
    image_free(image);
    guarded_free(&section);
}

/* ---- files of the compiler ---- */

/* A function of the file's own symbol table. */
static bool find_symbol(const struct image *image, const char *name, uint64_t *ret_start, uint64_t *ret_end)
{
    struct image_section symtab, strtab;
    uint8_t *symbols, *strings;
    size_t symbol_bytes, string_bytes;
    if (!image_find_section(image, ".symtab", &symtab) || !image_find_section(image, ".strtab", &strtab))
        return false;
    assert_int_equal(image_load_section(image, &symtab, 1 << 20, &symbols, &symbol_bytes), 0);
    assert_int_equal(image_load_section(image, &strtab, 1 << 20, &strings, &string_bytes), 0);
    bool found = false;
    for (size_t i = 0; i < symbol_bytes / sizeof(Elf64_Sym) && !found; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, symbols + i * sizeof(symbol), sizeof(symbol));
        found = symbol.st_name < string_bytes && strcmp((char *)strings + symbol.st_name, name) == 0;
        *ret_start = symbol.st_value;
        *ret_end = symbol.st_value + symbol.st_size;
    }
    free(symbols);
    free(strings);
    return found;
}

static void assert_function(struct cfitable *table, const struct image *image, const char *name)
{
    uint64_t start, end;
    struct cfi_function function;
    assert_true(find_symbol(image, name, &start, &end));
    for (uint64_t svma = start; svma < end; svma++) {
        assert_int_equal(cfitable_find(table, svma, &function), 0);
        assert_int_equal(function.start_svma, start);
        assert_int_equal(function.end_svma, end);
    }
}

static void reads_what_the_compiler_writes(void **state)
{
    (void)state;
    static const char *const names[] = {"v1",  "v3",        "v4",        "wide",          "packed",
                                        "gnu", "discarded", "no_header", "discarded_wide"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/debugframe_%s", FIXTURES, names[i]);
        struct image *image = open_file(path);
        struct cfitable *table;
        assert_int_equal(cfitable_new(image, &table), 0);
        assert_function(table, image, "static_hot");
        assert_function(table, image, "global_hot");
        assert_function(table, image, "main");
        struct cfi_function function;
        uint64_t start, end;
        assert_false(find_symbol(image, "discarded_first", &start, &end));
        for (uint64_t svma = 0; svma < 0x400; svma++)
            assert_int_equal(cfitable_find(table, svma, &function), -ENOENT);
        /* The start files have .eh_frame, and it is asked first. */
        assert_true(find_symbol(image, "_start", &start, &end));
        assert_int_equal(cfitable_find(table, start, &function), 0);
        assert_int_equal(function.start_svma, start);
        cfitable_free(table);
        image_free(image);
    }
}

static void finds_nothing_where_nothing_is(void **state)
{
    (void)state;
    struct image *image = open_file(FIXTURES "/debugframe_none");
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    uint64_t start, end, gap_start, gap_end;
    struct cfi_function function;
    assert_true(find_symbol(image, "global_hot", &start, &end));
    assert_int_equal(cfitable_find(table, start, &function), -ENOENT);
    assert_true(cfitable_gap(table, start, &gap_start, &gap_end));
    assert_true(gap_start <= start && end <= gap_end);
    cfitable_free(table);
    image_free(image);
}

/* ---- noise ---- */

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

/* The section's bytes end where an unmapped page starts. */
static void index_bytes(const struct image *image, const uint8_t *data, size_t size)
{
    struct guarded bytes = guarded_new(data, size);
    assert_non_null(bytes.bytes);
    struct cfiindex index = {0};
    assert_int_equal(cfiindex_read_debug_frame(&index, image, bytes.bytes, size), 0);
    for (size_t n = 1; n < index.count; n++)
        assert_true(cfiindex_start(&index, n - 1) < cfiindex_start(&index, n));
    assert_true(index.count <= 3);
    cfiindex_deinit(&index);
    guarded_free(&bytes);
}

static void survives_noise(void **state)
{
    (void)state;
    struct dialect dialects[] = {ordinary, ordinary, ordinary};
    dialects[1].version = 4;
    dialects[1].wide = true;
    dialects[2].augmentation = "zR";
    struct image *image = make_image(&(struct made){.debug = NULL});
    uint64_t random = 1;
    for (size_t i = 0; i < 3; i++) {
        struct writer debug = three_functions(&dialects[i]);
        for (size_t size = 0; size <= debug.size; size++)
            index_bytes(image, debug.data, size);
        for (unsigned round = 0; round < 3000; round++) {
            struct writer noise = debug;
            for (unsigned n = 0; n < 1 + round % 16; n++)
                noise.data[random_next(&random) % noise.size] = (uint8_t)random_next(&random);
            index_bytes(image, noise.data, noise.size - random_next(&random) % noise.size);
            struct image *made = debug_image(&noise);
            struct cfitable *table;
            assert_int_equal(cfitable_new(made, &table), 0);
            struct cfi_function function;
            for (uint64_t svma = TEXT_SVMA; svma < TEXT_SVMA + 0x300; svma += 0x10)
                cfitable_find(table, svma, &function);
            cfitable_free(table);
            image_free(made);
        }
    }
    image_free(image);
}

static void survives_noise_in_compressed_sections(void **state)
{
    (void)state;
    struct writer debug = three_functions(&ordinary);
    uint64_t random = 1;
    for (int gnu = 0; gnu < 2; gnu++) {
        for (unsigned round = 0; round < 2000; round++) {
            struct packed packed = pack(debug.data, debug.size, gnu, ELFCOMPRESS_ZLIB, debug.size);
            for (unsigned n = 0; n < 1 + round % 3; n++)
                packed.data[random_next(&random) % packed.size] = (uint8_t)random_next(&random);
            struct image *image = packed_image(&packed, gnu, random_next(&random) % 4);
            struct cfitable *table;
            assert_int_equal(cfitable_new(image, &table), 0);
            struct cfi_function function;
            cfitable_find(table, TEXT_SVMA, &function);
            cfitable_free(table);
            image_free(image);
            free(packed.data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_versions_and_lengths),
        cmocka_unit_test(knows_whom_it_cannot_read),
        cmocka_unit_test(a_cie_may_stand_behind_its_functions),
        cmocka_unit_test(what_is_damaged_hides_nothing_else),
        cmocka_unit_test(discarded_functions_do_not_win),
        cmocka_unit_test(eh_frame_decides_where_both_cover),
        cmocka_unit_test(reads_compressed_sections),
        cmocka_unit_test(claims_of_compressed_sections_are_checked),
        cmocka_unit_test(bombs_are_not_inflated),
        cmocka_unit_test(large_sections_are_not_read),
        cmocka_unit_test(the_worst_order_takes_no_time),
        cmocka_unit_test(reads_what_the_compiler_writes),
        cmocka_unit_test(finds_nothing_where_nothing_is),
        cmocka_unit_test(survives_noise),
        cmocka_unit_test(survives_noise_in_compressed_sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
