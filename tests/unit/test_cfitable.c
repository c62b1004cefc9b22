/* The index and the entries of unwind tables: of real files, and of files that were made to harm. */
#include "cmocka_all.h"

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

static struct image *open_file(const char *path)
{
    struct image *image = NULL;
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

static const char *libc_path(void)
{
    static char path[4096];
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        if (strstr(map->l_name, "libc.so")) {
            strncpy(path, map->l_name, sizeof(path) - 1);
            return path;
        }
    }
    return NULL;
}

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

enum { TEXT_SVMA = 0x1000, FRAME_SVMA = 0x3000, SEARCH_SVMA = 0x2000 };

struct made {
    const uint8_t *frame;
    size_t frame_bytes;
    const uint8_t *search; /* PT_GNU_EH_FRAME; NULL: none */
    size_t search_bytes;
    bool stripped; /* no section headers */
};

static void put(uint8_t *file, size_t off, const void *data, size_t size)
{
    if (size > 0)
        memcpy(file + off, data, size);
}

/* File: headers, .shstrtab at 0x200, section headers at 0x400, search table at 0x2000, .eh_frame at 0x3000: svma =
 * offset. */
static struct image *make_image(const struct made *made)
{
    static const char names[] = "\0.eh_frame\0.shstrtab";
    size_t size = FRAME_SVMA + made->frame_bytes;
    uint8_t *file = calloc(1, size);
    assert_non_null(file);
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof(header),
        .e_ehsize = sizeof(header),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = made->search ? 2 : 1,
        .e_shentsize = sizeof(Elf64_Shdr),
    };
    if (!made->stripped) {
        header.e_shoff = 0x400;
        header.e_shnum = 3;
        header.e_shstrndx = 2;
    }
    Elf64_Phdr segments[2] = {
        {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = size, .p_memsz = size, .p_align = 0x1000},
        {.p_type = PT_GNU_EH_FRAME,
         .p_flags = PF_R,
         .p_offset = SEARCH_SVMA,
         .p_vaddr = SEARCH_SVMA,
         .p_filesz = made->search_bytes,
         .p_memsz = made->search_bytes},
    };
    Elf64_Shdr sections[3] = {
        {0},
        {.sh_name = 1,
         .sh_type = SHT_PROGBITS,
         .sh_flags = SHF_ALLOC,
         .sh_addr = FRAME_SVMA,
         .sh_offset = FRAME_SVMA,
         .sh_size = made->frame_bytes},
        {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_offset = 0x200, .sh_size = sizeof(names)},
    };
    put(file, 0, &header, sizeof(header));
    put(file, sizeof(header), segments, sizeof(segments));
    put(file, 0x200, names, sizeof(names));
    put(file, 0x400, sections, sizeof(sections));
    put(file, SEARCH_SVMA, made->search, made->search_bytes);
    put(file, FRAME_SVMA, made->frame, made->frame_bytes);
    struct image *image = NULL;
    assert_int_equal(image_open_memory(file, size, "made", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

struct writer {
    uint8_t data[1024];
    size_t size;
};

static void write_number(struct writer *writer, uint64_t value, size_t size)
{
    put(writer->data, writer->size, &value, size);
    writer->size += size;
}

static void end_entry(struct writer *writer, size_t start)
{
    while ((writer->size - start) % 8 != 0)
        write_number(writer, 0, 1);
    uint32_t length = (uint32_t)(writer->size - start - 4);
    put(writer->data, start, &length, 4);
}

/* Version 1, augmentation "zR" or "zRS", CFA = rsp + 8, return address at CFA - 8. */
static size_t write_cie(struct writer *writer, uint8_t encoding, bool signal)
{
    static const uint8_t program[] = {0x0c, 0x07, 0x08, 0x90, 0x01};
    size_t start = writer->size;
    write_number(writer, 0, 4);
    write_number(writer, 0, 4);
    write_number(writer, 1, 1);
    const char *letters = signal ? "zRS" : "zR";
    put(writer->data, writer->size, letters, strlen(letters) + 1);
    writer->size += strlen(letters) + 1;
    write_number(writer, 1, 1);
    write_number(writer, 0x78, 1);
    write_number(writer, 16, 1);
    write_number(writer, 1, 1);
    write_number(writer, encoding, 1);
    put(writer->data, writer->size, program, sizeof(program));
    writer->size += sizeof(program);
    end_entry(writer, start);
    return start;
}

static size_t write_fde(struct writer *writer, size_t cie, uint64_t start_svma, uint64_t length, uint8_t encoding)
{
    size_t start = writer->size;
    write_number(writer, 0, 4);
    write_number(writer, writer->size - cie, 4);
    uint64_t base = (encoding & 0x70) == PE_PCREL ? FRAME_SVMA + writer->size : 0;
    size_t size = (encoding & 0x07) == 2 ? 2 : (encoding & 0x07) == 3 ? 4 : 8;
    write_number(writer, start_svma - base, size);
    write_number(writer, length, size);
    write_number(writer, 0, 1);
    end_entry(writer, start);
    return start;
}

static struct cfitable *make_table(const struct writer *frame, const struct writer *search, bool stripped,
                                   struct image **ret_image)
{
    struct made made = {.frame = frame->data, .frame_bytes = frame->size, .stripped = stripped};
    if (search) {
        made.search = search->data;
        made.search_bytes = search->size;
    }
    *ret_image = make_image(&made);
    struct cfitable *table;
    assert_int_equal(cfitable_new(*ret_image, &table), 0);
    return table;
}

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

/* Version, encodings of pointer, count and table; three functions, `order` says in which order the table has them. */
static struct writer make_search(const size_t *fdes, const size_t *order, uint32_t count)
{
    struct writer search = {0};
    write_number(&search, 0x3b031b01, 4);
    write_number(&search, FRAME_SVMA - (SEARCH_SVMA + 4), 4);
    write_number(&search, count, 4);
    for (size_t i = 0; i < 3; i++) {
        write_number(&search, TEXT_SVMA + order[i] * 0x100 - SEARCH_SVMA, 4);
        write_number(&search, FRAME_SVMA + fdes[order[i]] - SEARCH_SVMA, 4);
    }
    return search;
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

static void a_search_table_that_points_astray_gives_no_rules(void **state)
{
    (void)state;
    struct writer frame = {0};
    size_t cie = write_cie(&frame, 0x1b, false);
    size_t fdes[3];
    for (size_t i = 0; i < 3; i++)
        fdes[i] = write_fde(&frame, cie, TEXT_SVMA + i * 0x100, 0x40, 0x1b);
    static const size_t sorted[] = {0, 1, 2};
    fdes[0] = cie;     /* not an FDE */
    fdes[1] = 0x10000; /* outside the file */
    fdes[2] += 3;      /* in the middle */
    struct writer search = make_search(fdes, sorted, 3);
    struct image *image;
    struct cfitable *table = make_table(&frame, &search, false, &image);
    assert_int_equal(cfitable_count(table), 3);
    struct cfi_function function;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(cfitable_find(table, TEXT_SVMA + i * 0x100 + 1, &function), -EINVAL);
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
        cmocka_unit_test(a_search_table_that_points_astray_gives_no_rules),
        cmocka_unit_test(images_without_unwind_information_give_an_empty_table),
        cmocka_unit_test(unusable_entries_are_left_out),
        cmocka_unit_test(knows_programs_that_can_be_evaluated),
        cmocka_unit_test(leaves_out_what_is_said_of_vector_registers),
        cmocka_unit_test(reads_numbers),
        cmocka_unit_test(survives_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
