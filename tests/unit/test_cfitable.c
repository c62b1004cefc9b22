/* The index and the entries of unwind tables: of real files, and of files that were made to harm. */
#include "cmocka_all.h"

#include "cfi_made.h"
#include "guarded.h"
#include "unwind/cfientry.h"
#include "unwind/cfitable.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* ---- real files ---- */

static void assert_both_indexes_agree(const char *path)
{
    struct image *image = open_file(path);
    struct cfitable *from_header, *linear;
    assert_int_equal(cfitable_new(image, &from_header), 0);
    assert_int_equal(cfitable_new_linear(image, &linear), 0);
    size_t count = cfitable_count(from_header);
    assert_true(count > 10);
    assert_int_equal(cfitable_count(linear), count);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = cfitable_start(from_header, i);
        assert_int_equal(cfitable_start(linear, i), start);
        struct cfi_function a, b;
        assert_int_equal(cfitable_find(from_header, start, &a), 0);
        assert_int_equal(cfitable_find(linear, start, &b), 0);
        assert_int_equal(a.start_svma, start);
        assert_int_equal(b.start_svma, start);
        assert_int_equal(a.end_svma, b.end_svma);
        assert_int_equal(a.signal, b.signal);
        /* The last byte is covered, and what follows belongs to the next function or to none. */
        assert_int_equal(cfitable_find(from_header, a.end_svma - 1, &b), 0);
        assert_true(b.start_svma >= start);
        int behind = cfitable_find(from_header, a.end_svma, &b);
        assert_true(behind == -ENOENT || (behind == 0 && b.start_svma <= a.end_svma && b.end_svma > a.end_svma));
    }
    assert_int_equal(cfitable_find(from_header, 0, &(struct cfi_function){0}), -ENOENT);
    assert_int_equal(cfitable_find(from_header, UINT64_MAX, &(struct cfi_function){0}), -ENOENT);
    cfitable_free(from_header);
    cfitable_free(linear);
    image_free(image);
}

static void header_and_section_of_real_files_agree(void **state)
{
    (void)state;
    assert_both_indexes_agree("/proc/self/exe");
    const char *libc = libc_path();
    assert_non_null(libc);
    assert_both_indexes_agree(libc);
}

static void finds_its_own_functions(void **state)
{
    (void)state;
    struct image *image = open_file("/proc/self/exe");
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    uint64_t bias = _r_debug.r_map->l_addr;
    uint64_t start = (uintptr_t)finds_its_own_functions - bias;
    struct cfi_function function;
    assert_int_equal(cfitable_find(table, start + 5, &function), 0);
    assert_int_equal(function.start_svma, start);
    assert_true(function.end_svma > start + 50);
    size_t bytes;
    assert_non_null(cfitable_bytes(table, &bytes));
    assert_int_equal(bytes % 8, 0);
    assert_true(function.fde_off < bytes);
    cfitable_free(table);
    image_free(image);
}

/* ---- made-up files ---- */

static void reads_all_encodings_of_addresses(void **state)
{
    (void)state;
    static const uint8_t encodings[] = {PE_ABSPTR, PE_UDATA4, PE_UDATA8, PE_SDATA4, 0x0c, 0x1b, 0x1c, 0x14, 0x02};
    for (size_t i = 0; i < sizeof(encodings); i++) {
        struct writer frame = {0};
        size_t cie = write_cie(&frame, encodings[i], i % 2);
        write_fde(&frame, cie, TEXT_SVMA + 0x200, 0x10, encodings[i]);
        write_fde(&frame, cie, TEXT_SVMA + 0x100, 0x20, encodings[i]);
        struct image *image;
        struct cfitable *table = make_table(&frame, NULL, false, &image);
        assert_int_equal(cfitable_count(table), 2);
        assert_int_equal(cfitable_start(table, 0), TEXT_SVMA + 0x100);
        assert_int_equal(cfitable_start(table, 1), TEXT_SVMA + 0x200);
        struct cfi_function function;
        assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x11f, &function), 0);
        assert_int_equal(function.start_svma, TEXT_SVMA + 0x100);
        assert_int_equal(function.end_svma, TEXT_SVMA + 0x120);
        assert_int_equal(function.signal, i % 2);
        assert_int_equal(cfitable_find(table, TEXT_SVMA + 0xff, &function), -ENOENT);
        assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x120, &function), -ENOENT);
        assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x1ff, &function), -ENOENT);
        assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x210, &function), -ENOENT);
        cfitable_free(table);
        image_free(image);
    }
}

static void damaged_search_tables_are_not_used(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t sorted[] = {0, 1, 2};
    static const size_t shuffled[] = {2, 0, 1};
    struct writer searches[] = {
        make_search(fdes, sorted, 3),          make_search(fdes, shuffled, 3),
        make_search(fdes, sorted, 4), /* more than there are bytes for */
        make_search(fdes, sorted, UINT32_MAX), make_search(fdes, sorted, 0),
        make_search(fdes, sorted, 3),          make_search(fdes, sorted, 3),
    };
    searches[5].data[0] = 2;                          /* version */
    searches[6].data[2] = searches[6].data[3] = 0xff; /* no count, no table */
    for (size_t i = 0; i < sizeof(searches) / sizeof(searches[0]); i++) {
        for (size_t stripped = 0; stripped < 2; stripped++) {
            struct image *image;
            struct cfitable *table = make_table(&frame, &searches[i], stripped, &image);
            /* A version that is not known says nothing about where .eh_frame is. */
            size_t expected = stripped && i == 5 ? 0 : 3;
            assert_int_equal(cfitable_count(table), expected);
            for (size_t n = 0; n < expected; n++) {
                struct cfi_function function;
                assert_int_equal(cfitable_find(table, TEXT_SVMA + n * 0x100 + 0x3f, &function), 0);
                assert_int_equal(function.start_svma, TEXT_SVMA + n * 0x100);
                assert_int_equal(cfitable_find(table, TEXT_SVMA + n * 0x100 + 0x40, &function), -ENOENT);
            }
            cfitable_free(table);
            image_free(image);
        }
    }
}

/* What the search table says is believed only when the entry says the same; else .eh_frame itself has the answer. */
static void search_tables_that_lie_are_found_out(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t sorted[] = {0, 1, 2};
    const size_t astray[] = {cie, 0x10000, fdes[2] + 3}; /* no FDE, outside the file, in the middle of one */
    const size_t rotated[] = {fdes[1], fdes[2], fdes[0]};
    struct writer searches[] = {
        make_search(astray, sorted, 3), make_search(rotated, sorted, 3),
        make_search(fdes, sorted, 3),   make_search(fdes, sorted, 1), /* incomplete */
        make_search(fdes, sorted, 3),
    };
    searches[2].data[12] += 4;                               /* the first start */
    memcpy(searches[4].data + 20, searches[4].data + 12, 8); /* the first entry twice, the second not at all */
    for (size_t i = 0; i < sizeof(searches) / sizeof(searches[0]); i++) {
        for (size_t stripped = 0; stripped < 2; stripped++) {
            struct image *image;
            struct cfitable *table = make_table(&frame, &searches[i], stripped, &image);
            struct cfi_function function;
            for (size_t n = 0; n < 3; n++) {
                for (uint64_t into = 0; into < 0x100; into++) {
                    int result = cfitable_find(table, TEXT_SVMA + n * 0x100 + into, &function);
                    assert_int_equal(result, into < 0x40 ? 0 : -ENOENT);
                    if (into < 0x40)
                        assert_int_equal(function.start_svma, TEXT_SVMA + n * 0x100);
                }
            }
            assert_int_equal(cfitable_find(table, TEXT_SVMA - 1, &function), -ENOENT);
            cfitable_free(table);
            image_free(image);
        }
    }
}

/* Nothing else is there: the search table is right about the second function, and what it says of the first is no
 * function. */
static void a_search_table_without_a_section_is_checked_all_the_same(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t sorted[] = {0, 1, 2};
    fdes[0] = fdes[2];
    struct writer search = make_search(fdes, sorted, 3);
    memset(search.data + 4, 0x7f, 4); /* where .eh_frame is */
    struct image *image;
    struct cfitable *table = make_table(&frame, &search, true, &image);
    struct cfi_function function;
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 1, &function), -ENOENT);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x101, &function), 0);
    assert_int_equal(function.start_svma, TEXT_SVMA + 0x100);
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x140, &function), -ENOENT);
    cfitable_free(table);
    image_free(image);
}

static void a_section_header_that_lies_is_not_believed(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t shuffled[] = {1, 0, 2};
    struct writer search = make_search(fdes, shuffled, 3);
    struct made made = {.frame = frame.data,
                        .frame_bytes = frame.size,
                        .search = search.data,
                        .search_bytes = search.size,
                        .frame_svma_error = (uint64_t)-0x100};
    struct image *image = make_image(&made);
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    assert_int_equal(cfitable_count(table), 3);
    assert_int_equal(cfitable_start(table, 0), TEXT_SVMA);
    cfitable_free(table);
    image_free(image);
}

/* Of the same start the longest; entries for what is no code, the ELF header or beyond the segment, are none. */
static void entries_that_cannot_be_are_left_out(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, PE_UDATA8, false);
    write_fde(&frame, cie, 0, 0x5000, PE_UDATA8);
    write_fde(&frame, cie, 0, 0x2000, PE_UDATA8);
    write_fde(&frame, cie, TEXT_SVMA, 0x10, PE_UDATA8);
    write_fde(&frame, cie, TEXT_SVMA, 0x40, PE_UDATA8);
    write_fde(&frame, cie, TEXT_SVMA, 0x40, PE_UDATA8);
    write_fde(&frame, cie, TEXT_SVMA + 0x100, UINT32_MAX, PE_UDATA8);
    write_fde(&frame, cie, TEXT_SVMA + 0x200, UINT64_MAX - TEXT_SVMA - 0x200, PE_UDATA8);
    write_fde(&frame, cie, UINT64_C(1) << 40, 0x10, PE_UDATA8);
    struct image *image;
    struct cfitable *table = make_table(&frame, NULL, false, &image);
    assert_int_equal(cfitable_count(table), 1);
    struct cfi_function function;
    assert_int_equal(cfitable_find(table, TEXT_SVMA + 0x3f, &function), 0);
    assert_int_equal(function.end_svma, TEXT_SVMA + 0x40);
    static const uint64_t nothing[] = {0, 0x40, TEXT_SVMA - 1, TEXT_SVMA + 0x40, TEXT_SVMA + 0x100, TEXT_SVMA + 0x200};
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
        assert_int_equal(cfitable_find(table, nothing[i], &function), -ENOENT);
    cfitable_free(table);
    image_free(image);
}

/* ---- gaps ---- */

/* From gap to gap and from function to function through the whole image: each address is in one or the other. */
static void gaps_and_functions_of_a_real_file_meet(void **state)
{
    (void)state;
    const char *libc = libc_path();
    assert_non_null(libc);
    struct image *image = open_file(libc);
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    size_t functions = 0;
    size_t gaps = 0;
    for (uint64_t svma = 0; svma < UINT64_MAX;) {
        struct cfi_function function;
        uint64_t start, end;
        if (cfitable_find(table, svma, &function) == 0) {
            assert_false(cfitable_gap(table, svma, &start, &end));
            functions++;
            assert_true(function.end_svma > svma);
            svma = function.end_svma;
            continue;
        }
        assert_true(cfitable_gap(table, svma, &start, &end));
        assert_int_equal(start, svma);
        assert_true(end > svma);
        uint64_t same_start, same_end;
        assert_int_equal(cfitable_find(table, end - 1, &function), -ENOENT);
        assert_true(cfitable_gap(table, end - 1, &same_start, &same_end));
        assert_int_equal(same_start, start);
        assert_int_equal(same_end, end);
        gaps++;
        svma = end;
    }
    assert_true(functions > cfitable_count(table) * 9 / 10);
    assert_true(gaps > 10);
    cfitable_free(table);
    image_free(image);
}

/* The functions that the table leaves out bound the gap too. */
static void gaps_are_not_those_of_a_table_that_lies(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t sorted[] = {0, 1, 2};
    struct writer search = make_search(fdes, sorted, 1);
    struct image *image;
    struct cfitable *table = make_table(&frame, &search, false, &image);
    uint64_t start, end;
    assert_true(cfitable_gap(table, TEXT_SVMA + 0x80, &start, &end));
    assert_int_equal(start, TEXT_SVMA + 0x40);
    assert_int_equal(end, TEXT_SVMA + 0x100);
    assert_true(cfitable_gap(table, TEXT_SVMA + 0x240, &start, &end));
    assert_int_equal(start, TEXT_SVMA + 0x240);
    assert_int_equal(end, UINT64_MAX);
    assert_true(cfitable_gap(table, 0, &start, &end));
    assert_int_equal(start, 0);
    assert_int_equal(end, TEXT_SVMA);
    assert_false(cfitable_gap(table, TEXT_SVMA + 0x3f, &start, &end));
    assert_int_equal(end, TEXT_SVMA); /* untouched */
    cfitable_free(table);
    image_free(image);
}

static void images_without_unwind_information_give_an_empty_table(void **state)
{
    (void)state;
    struct image *image = NULL;
    assert_int_equal(image_open(-1, "nothing", &image), 0);
    struct cfitable *table;
    assert_int_equal(cfitable_new(image, &table), 0);
    assert_int_equal(cfitable_count(table), 0);
    struct cfi_function function;
    assert_int_equal(cfitable_find(table, 0x1000, &function), -ENOENT);
    cfitable_free(table);
    cfitable_free(NULL);
    image_free(image);
    struct writer frame = {0};
    write_number(&frame, 0, 4);
    table = make_table(&frame, NULL, false, &image);
    assert_int_equal(cfitable_count(table), 0);
    cfitable_free(table);
    image_free(image);
}

/* Entries in a version, with a return address column, an augmentation or a length that nobody has. */
static void unusable_entries_are_left_out(void **state)
{
    (void)state;
    struct change {
        size_t off;
        uint8_t value;
    };
    static const struct change changes[] = {
        {8, 2},     /* CIE version */
        {10, 'X'},  /* augmentation letter in the place of R: then addresses have the default encoding */
        {14, 17},   /* return address column */
        {15, 200},  /* length of the augmentation data */
        {3, 0x7f},  /* length of the CIE */
        {28, 0xff}, /* CIE pointer of the FDE */
        {27, 0x80}, /* length of the FDE */
    };
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    write_fde(&frame, cie, TEXT_SVMA, 0x40, 0x1b);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct writer changed = frame;
        changed.data[changes[i].off] = changes[i].value;
        struct image *image;
        struct cfitable *table = make_table(&changed, NULL, false, &image);
        struct cfi_function function;
        if (cfitable_find(table, TEXT_SVMA + 4, &function) == 0)
            fail_msg("change %zu", i);
        cfitable_free(table);
        image_free(image);
    }
}

static void knows_programs_that_can_be_evaluated(void **state)
{
    (void)state;
    struct program {
        uint8_t bytes[12];
        size_t size;
        bool safe;
    };
    static const struct program programs[] = {
        {{0}, 0, true},
        {{0x41, 0x0e, 0x10, 0x86, 0x02, 0x43, 0x0d, 0x06}, 8, true}, /* push %rbp; mov %rsp,%rbp */
        {{0x0a, 0x0b, 0xc6, 0x2e, 0x10}, 5, true},                   /* remember, restore, restore rbp, args_size */
        {{0x02, 0x10, 0x03, 0x10, 0x00, 0x04, 0, 0, 1, 0}, 10, true},
        {{0x0f, 0x03, 0x76, 0x78, 0x06}, 5, true}, /* CFA = [rbp - 8] */
        {{0x10, 0x06, 0x02, 0x76, 0x00}, 5, true},
        {{0x07, 0x10}, 2, true},                          /* no return address */
        {{0x0f, 0x04, 0x76, 0x78, 0x1b, 0x06}, 6, false}, /* divides */
        {{0x0f, 0x05, 0x76, 0x78, 0x06}, 5, false},       /* longer than the bytes */
        {{0x0f, 0x00}, 2, false},
        {{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11, false},
        {{0x01, 0, 0, 0, 0}, 5, false}, /* set_loc */
        {{0x0c, 0x11, 0x08}, 3, false}, /* column 17 */
        {{0x09, 0x06, 0x90, 0x01}, 4, false},
        {{0x0d, 0x11}, 2, false},
        {{0x3f}, 1, false},
        {{0x0e}, 1, false},
        {{0x0e, 0x80}, 2, false},
        {{0x04, 0, 0, 0}, 4, false},
    };
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        struct guarded bytes = guarded_new(programs[i].bytes, programs[i].size);
        assert_non_null(bytes.bytes);
        if (cfi_program_normalise(bytes.bytes, programs[i].size) != programs[i].safe)
            fail_msg("program %zu", i);
        guarded_free(&bytes);
    }
}

/* Offsets of rbp and of xmm6, restore of xmm6, an expression for xmm6, and one for rbp. */
static void leaves_out_what_is_said_of_vector_registers(void **state)
{
    (void)state;
    uint8_t program[] = {0x86, 0x02, 0x97, 0x1e, 0xd7, 0x05, 0x17, 0x02, 0x10, 0x17,
                         0x02, 0x76, 0x00, 0x10, 0x06, 0x02, 0x76, 0x08, 0x41};
    static const uint8_t expected[] = {0x86, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x06, 0x02, 0x76, 0x08, 0x41};
    assert_true(cfi_program_normalise(program, sizeof(program)));
    assert_memory_equal(program, expected, sizeof(program));
}

static void reads_numbers(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0xe5, 0x8e, 0x26, 0xc0, 0xbb, 0x78, 0x7f, 0x34, 0x12, 0x80};
    struct cfi_reader reader = {.bytes = {.data = bytes, .size = sizeof(bytes), .svma = 0x100}};
    assert_int_equal(cfi_read_uleb(&reader), 624485);
    assert_int_equal(cfi_read_sleb(&reader), -123456);
    assert_int_equal(cfi_read_sleb(&reader), -1);
    assert_int_equal(cfi_read_number(&reader, 2), 0x1234);
    assert_false(reader.bad);
    assert_int_equal(cfi_read_uleb(&reader), 0);
    assert_true(reader.bad);
    assert_int_equal(cfi_read_number(&reader, 1), 0);
}

/* ---- noise ---- */

static void find_all(struct cfitable *table)
{
    struct cfi_function function;
    for (size_t i = 0; i < cfitable_count(table); i++) {
        if (cfitable_find(table, cfitable_start(table, i), &function) == 0)
            assert_true(function.end_svma > function.start_svma);
    }
    cfitable_find(table, TEXT_SVMA, &function);
    uint64_t start, end;
    for (uint64_t svma = 0; svma < FRAME_SVMA; svma += 97) {
        if (cfitable_gap(table, svma, &start, &end)) {
            assert_true(start <= svma && svma < end);
            assert_int_equal(cfitable_find(table, start, &function), -ENOENT);
            assert_int_equal(cfitable_find(table, end - 1, &function), -ENOENT);
        }
    }
}

static void survives_noise(void **state)
{
    (void)state;
    const char *libc = libc_path();
    assert_non_null(libc);
    struct image *image = open_file(libc);
    struct image_section section;
    assert_true(image_find_section(image, ".eh_frame", &section));
    struct writer original = {.size = sizeof(original.data)};
    assert_true(section.bytes > original.size);
    assert_int_equal(image_read_off(image, section.off, original.data, original.size), 0);
    image_free(image);
    static const size_t order[] = {0, 1, 2};
    static const size_t fdes[] = {0x18, 0x40, 0x80};
    uint64_t random = 1;
    for (unsigned round = 0; round < 5000; round++) {
        struct writer noise = original;
        struct writer search = make_search(fdes, order, 3);
        for (unsigned n = 0; n < 1 + round % 20; n++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            noise.data[(random >> 33) % noise.size] = (uint8_t)(random >> 25);
            if (n % 4 == 3)
                search.data[(random >> 45) % search.size] = (uint8_t)(random >> 20);
        }
        noise.size -= (random >> 50) % noise.size;
        struct cfitable *table = make_table(&noise, round % 2 ? &search : NULL, round % 4 == 3, &image);
        find_all(table);
        cfitable_free(table);
        image_free(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_section_of_real_files_agree),
        cmocka_unit_test(finds_its_own_functions),
        cmocka_unit_test(reads_all_encodings_of_addresses),
        cmocka_unit_test(damaged_search_tables_are_not_used),
        cmocka_unit_test(search_tables_that_lie_are_found_out),
        cmocka_unit_test(a_search_table_without_a_section_is_checked_all_the_same),
        cmocka_unit_test(a_section_header_that_lies_is_not_believed),
        cmocka_unit_test(entries_that_cannot_be_are_left_out),
        cmocka_unit_test(gaps_and_functions_of_a_real_file_meet),
        cmocka_unit_test(gaps_are_not_those_of_a_table_that_lies),
        cmocka_unit_test(images_without_unwind_information_give_an_empty_table),
        cmocka_unit_test(unusable_entries_are_left_out),
        cmocka_unit_test(knows_programs_that_can_be_evaluated),
        cmocka_unit_test(leaves_out_what_is_said_of_vector_registers),
        cmocka_unit_test(reads_numbers),
        cmocka_unit_test(survives_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
