#include "cmocka_all.h"

#include "common/fileio.h"
#include "common/rng.h"
#include "symbolize/image.h"
#include "symbolize/symtab.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes read_fixture(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    char *data = NULL;
    struct bytes bytes = {0};
    assert_int_equal(fileio_read_all(fd, 64 << 20, &data, &bytes.size), 0);
    close(fd);
    bytes.data = (uint8_t *)data;
    return bytes;
}

static struct image *open_fixture(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct image *image = NULL;
    assert_int_equal(image_open(fd, path, &image), 0);
    return image;
}

/* A copy of exactly that size, so that a sanitizer sees each byte read beyond it. */
static struct image *open_copy(struct bytes bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes.data, size);
    struct image *image = NULL;
    assert_int_equal(image_open_memory(copy, size, "[copy]", &image), 0);
    return image;
}

static int file_of(struct bytes bytes, size_t size)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, bytes.data, size), 0);
    return fd;
}

/* Asks everything that can be asked; the answers of a damaged image are only required to be inside its file. */
static void ask_everything(struct image *image)
{
    static const char *const names[] = {".text", ".eh_frame", ".symtab", ".note.gnu.build-id", ".none"};
    struct image_section section;
    uint8_t byte;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!image_find_section(image, names[i], &section))
            continue;
        assert_true(section.bytes > 0 && section.off + section.bytes <= image_size(image));
        assert_int_equal(image_read_off(image, section.off + section.bytes - 1, &byte, 1), 0);
    }
    if (image_find_dynamic(image, &section))
        assert_true(section.off + section.bytes <= image_size(image));
    if (image_find_eh_frame_hdr(image, &section))
        assert_int_equal(image_read_off(image, section.off + section.bytes - 1, &byte, 1), 0);
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(segments[i].off + segments[i].file_bytes <= image_size(image));
        uint64_t value;
        assert_true(image_off_to_svma(image, segments[i].off, &value));
        assert_true(image_svma_to_off(image, segments[i].svma, &value));
        assert_true(image_bias(image, 0x10000, segments[i].off & ~UINT64_C(4095), true, &value));
        assert_int_equal(image_read_svma(image, segments[i].svma, &byte, 1), 0);
    }
    size_t id_bytes;
    image_build_id(image, &id_bytes);
    assert_true(id_bytes <= 64);
    struct symtab *table;
    assert_int_equal(symtab_new(image, &table), 0);
    struct symbol symbol;
    symtab_find(table, image_entry_svma(image), &symbol);
    symtab_free(table);
    image_free(image);
}

static void test_plain(void **state)
{
    (void)state;
    struct image *image = open_fixture(FIXTURES "/plain");
    assert_int_equal(image_kind(image), IMAGE_ELF);
    assert_string_equal(image_path(image), FIXTURES "/plain");
    assert_true(image_fd(image) >= 0);
    size_t size;
    assert_null(image_memory(image, &size));

    struct image_section text;
    assert_true(image_find_section(image, ".text", &text));
    assert_true(image_entry_svma(image) >= text.svma && image_entry_svma(image) < text.svma + text.bytes);
    struct image_section bss;
    assert_false(image_find_section(image, ".bss", &bss));
    assert_false(image_find_section(image, ".tex", &bss));
    assert_false(image_find_section(image, "text", &bss));

    uint64_t svma;
    uint64_t off;
    assert_true(image_off_to_svma(image, text.off, &svma));
    assert_int_equal(svma, text.svma);
    assert_true(image_svma_to_off(image, text.svma + 5, &off));
    assert_int_equal(off, text.off + 5);
    assert_false(image_off_to_svma(image, image_size(image), &svma));
    assert_false(image_svma_to_off(image, UINT64_MAX, &off));

    char by_off[16];
    char by_svma[16];
    assert_int_equal(image_read_off(image, text.off, by_off, sizeof(by_off)), 0);
    assert_int_equal(image_read_svma(image, text.svma, by_svma, sizeof(by_svma)), 0);
    assert_memory_equal(by_off, by_svma, sizeof(by_off));
    assert_int_equal(image_read_off(image, image_size(image) - 4, by_off, 5), -ENODATA);
    assert_int_equal(image_read_off(image, UINT64_MAX, by_off, 5), -ENODATA);
    assert_int_equal(image_read_svma(image, UINT64_MAX - 2, by_off, 5), -ENODATA);

    struct image_section header;
    struct image_section named;
    assert_true(image_find_eh_frame_hdr(image, &header));
    assert_true(image_find_section(image, ".eh_frame_hdr", &named));
    assert_int_equal(header.off, named.off);
    assert_int_equal(header.svma, named.svma);
    assert_true(image_find_dynamic(image, &header));
    assert_true(image_find_section(image, ".dynamic", &named));
    assert_int_equal(header.off, named.off);
    assert_int_equal(header.svma, named.svma);
    assert_int_equal(header.bytes, named.bytes);
    image_free(image);
}

/* Three ways to the same build-id: the note segment, the note section, and neither. */
static void test_build_id(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/plain");
    struct image *image = open_copy(file, file.size);
    struct image_section note;
    assert_true(image_find_section(image, ".note.gnu.build-id", &note));
    size_t id_bytes;
    const uint8_t *id = image_build_id(image, &id_bytes);
    assert_int_equal(id_bytes, 20);
    assert_memory_equal(id, file.data + note.off + 16, 20);

    struct bytes changed = read_fixture(FIXTURES "/plain");
    Elf64_Ehdr elf;
    memcpy(&elf, changed.data, sizeof(elf));
    for (size_t i = 0; i < elf.e_phnum; i++) {
        uint32_t *type = (uint32_t *)(void *)(changed.data + elf.e_phoff + i * sizeof(Elf64_Phdr));
        *type = *type == PT_NOTE ? PT_NULL : *type;
    }
    struct image *by_section = open_copy(changed, changed.size);
    const uint8_t *section_id = image_build_id(by_section, &id_bytes);
    assert_int_equal(id_bytes, 20);
    assert_memory_equal(section_id, id, 20);
    image_free(by_section);
    image_free(image);
    free(changed.data);
    free(file.data);

    image = open_fixture(FIXTURES "/plain_no_build_id");
    assert_int_equal(image_kind(image), IMAGE_ELF);
    image_build_id(image, &id_bytes);
    assert_int_equal(id_bytes, 0);
    image_free(image);
}

static void test_bias(void **state)
{
    (void)state;
    static const char *const paths[] = {FIXTURES "/plain", FIXTURES "/plain_no_pie", FIXTURES "/tiny"};
    for (size_t k = 0; k < 3; k++) {
        struct image *image = open_fixture(paths[k]);
        const uint64_t bias = 0x7f0000000000;
        size_t count;
        const struct image_segment *segments = image_segments(image, &count);
        assert_true(count > 0);
        size_t executable = 0;
        for (size_t i = 0; i < count; i++) {
            /* Data segments that share a page of the file look alike to somebody who has only its number. */
            if (!segments[i].executable)
                continue;
            executable++;
            /* What the kernel maps for this segment. */
            uint64_t map_off = segments[i].off & ~UINT64_C(4095);
            uint64_t start = segments[i].svma & ~UINT64_C(4095);
            uint64_t found;
            assert_true(image_bias(image, bias + start, map_off, true, &found));
            assert_int_equal(found, bias);
            assert_true(image_bias(image, start, map_off, true, &found));
            assert_int_equal(found, 0);
        }
        assert_int_equal(executable, 1);
        uint64_t found;
        assert_false(image_bias(image, bias, UINT64_C(1) << 40, true, &found));
        image_free(image);
    }
}

/* Numbers that do not fit the ELF header stand in section header 0. */
static void test_extended_numbering(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/plain");
    Elf64_Ehdr *elf = (Elf64_Ehdr *)(void *)file.data;
    Elf64_Shdr *first = (Elf64_Shdr *)(void *)(file.data + elf->e_shoff);
    struct image *image = open_copy(file, file.size);
    size_t segments;
    image_segments(image, &segments);
    image_free(image);

    first->sh_size = elf->e_shnum;
    first->sh_link = elf->e_shstrndx;
    first->sh_info = elf->e_phnum;
    elf->e_shnum = 0;
    elf->e_shstrndx = SHN_XINDEX;
    elf->e_phnum = PN_XNUM;
    image = open_copy(file, file.size);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    size_t extended;
    image_segments(image, &extended);
    assert_int_equal(extended, segments);
    struct image_section section;
    assert_true(image_find_section(image, ".text", &section));
    image_free(image);

    first->sh_size = UINT64_MAX / 64;
    first->sh_info = UINT32_MAX;
    image = open_copy(file, file.size);
    assert_int_equal(image_kind(image), IMAGE_DAMAGED);
    assert_false(image_find_section(image, ".text", &section));
    ask_everything(image);
    free(file.data);
}

static enum image_kind kind_after(struct bytes file, size_t at, uint8_t value)
{
    uint8_t before = file.data[at];
    file.data[at] = value;
    struct image *image = open_copy(file, file.size);
    file.data[at] = before;
    enum image_kind kind = image_kind(image);
    size_t count;
    image_segments(image, &count);
    assert_true(kind == IMAGE_ELF || count == 0);
    image_free(image);
    return kind;
}

static void test_kinds(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/tiny");
    assert_int_equal(kind_after(file, 0, 0x7f), IMAGE_ELF);
    assert_int_equal(kind_after(file, 1, 'e'), IMAGE_NOT_ELF);
    assert_int_equal(kind_after(file, EI_CLASS, ELFCLASS32), IMAGE_FOREIGN);
    assert_int_equal(kind_after(file, EI_DATA, ELFDATA2MSB), IMAGE_FOREIGN);
    assert_int_equal(kind_after(file, offsetof(Elf64_Ehdr, e_machine), EM_AARCH64), IMAGE_FOREIGN);
    assert_int_equal(kind_after(file, offsetof(Elf64_Ehdr, e_phoff) + 7, 0xff), IMAGE_DAMAGED);
    assert_int_equal(kind_after(file, offsetof(Elf64_Ehdr, e_phentsize), 1), IMAGE_DAMAGED);
    /* Section headers that cannot be used cost the sections only. */
    assert_int_equal(kind_after(file, offsetof(Elf64_Ehdr, e_shoff) + 7, 0xff), IMAGE_ELF);
    assert_int_equal(kind_after(file, offsetof(Elf64_Ehdr, e_shstrndx) + 1, 0xfe), IMAGE_ELF);
    free(file.data);
}

static enum image_kind kind_of_fd(int fd)
{
    struct image *image = NULL;
    assert_int_equal(image_open(fd, "odd", &image), 0);
    enum image_kind kind = image_kind(image);
    assert_true(image_size(image) == 0 || kind != IMAGE_UNREADABLE || image_fd(image) >= 0);
    ask_everything(image);
    return kind;
}

/* Nothing here may wait. */
static void test_odd_files(void **state)
{
    (void)state;
    assert_int_equal(kind_of_fd(-1), IMAGE_UNREADABLE);
    assert_int_equal(kind_of_fd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), IMAGE_NOT_ELF);
    assert_int_equal(kind_of_fd(open("/dev/null", O_RDONLY | O_CLOEXEC)), IMAGE_NOT_ELF);
    assert_int_equal(kind_of_fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)), IMAGE_NOT_ELF);
    assert_int_equal(kind_of_fd(open(FIXTURES "/tiny", O_PATH | O_CLOEXEC)), IMAGE_UNREADABLE);
    assert_int_equal(kind_of_fd(memfd_create("empty", MFD_CLOEXEC)), IMAGE_NOT_ELF);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(kind_of_fd(ends[0]), IMAGE_NOT_ELF);
    close(ends[1]);
}

/* The file is cut after it was opened: reads fail, nothing dies. */
static void test_file_that_shrinks(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/plain");
    int fd = file_of(file, file.size);
    struct image *image = NULL;
    assert_int_equal(image_open(fd, "shrinking", &image), 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    char byte;
    assert_int_equal(image_read_off(image, 4095, &byte, 1), 0);
    assert_int_equal(image_read_off(image, 4096, &byte, 1), -ENODATA);
    struct image_section section;
    assert_false(image_find_section(image, ".text", &section));
    struct symtab *table;
    assert_int_equal(symtab_new(image, &table), 0);
    assert_int_equal(symtab_count(table), 0);
    symtab_free(table);
    image_free(image);
    free(file.data);
}

static void test_every_length(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/tiny");
    for (size_t size = 0; size <= file.size; size++) {
        struct image *image = open_copy(file, size);
        assert_int_equal(image_kind(image) == IMAGE_NOT_ELF, size < sizeof(Elf64_Ehdr));
        ask_everything(image);
    }
    for (size_t size = 0; size <= file.size; size += 41) {
        struct image *image = NULL;
        assert_int_equal(image_open(file_of(file, size), "short", &image), 0);
        ask_everything(image);
    }
    free(file.data);
}

/* Opens a changed file, as memory and each 16th time as a file. */
static void ask_changed(struct bytes file, size_t turn)
{
    ask_everything(open_copy(file, file.size));
    if (turn % 16 != 0)
        return;
    struct image *image = NULL;
    assert_int_equal(image_open(file_of(file, file.size), "changed", &image), 0);
    ask_everything(image);
}

static void flip_range(struct bytes file, size_t from, size_t bytes)
{
    static const uint8_t patterns[] = {0xff, 0x80, 0x01};
    for (size_t at = from; at < from + bytes && at < file.size; at++) {
        for (size_t k = 0; k < sizeof(patterns); k++) {
            file.data[at] ^= patterns[k];
            ask_changed(file, at);
            file.data[at] ^= patterns[k];
        }
    }
}

static void test_changed_bytes(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/tiny");
    Elf64_Ehdr elf;
    memcpy(&elf, file.data, sizeof(elf));
    flip_range(file, 0, sizeof(elf));
    flip_range(file, elf.e_phoff, elf.e_phnum * sizeof(Elf64_Phdr));
    flip_range(file, elf.e_shoff, elf.e_shnum * sizeof(Elf64_Shdr));

    struct rng rng = {.state = 1};
    for (size_t turn = 0; turn < 3000; turn++) {
        size_t at[4];
        uint8_t before[4];
        for (size_t k = 0; k < 4; k++) {
            at[k] = rng_below(&rng, file.size);
            before[k] = file.data[at[k]];
            file.data[at[k]] = (uint8_t)rng_next(&rng);
        }
        ask_changed(file, turn);
        for (size_t k = 4; k-- > 0;)
            file.data[at[k]] = before[k];
    }
    free(file.data);
}

/* 64-bit fields of each header, set to values around what wraps. */
static void test_hostile_numbers(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/tiny");
    Elf64_Ehdr elf;
    memcpy(&elf, file.data, sizeof(elf));
    const uint64_t values[] = {UINT64_MAX,    UINT64_MAX - 63, UINT64_MAX / 2,    UINT64_C(1) << 63,
                               file.size - 1, file.size,       UINT64_C(1) << 32, 0};
    const size_t spans[][2] = {{24, sizeof(elf)},
                               {elf.e_phoff, elf.e_phoff + elf.e_phnum * sizeof(Elf64_Phdr)},
                               {elf.e_shoff, elf.e_shoff + elf.e_shnum * sizeof(Elf64_Shdr)}};
    for (size_t s = 0; s < 3; s++) {
        for (size_t at = spans[s][0]; at + 8 <= spans[s][1]; at += 8) {
            uint64_t before;
            memcpy(&before, file.data + at, 8);
            for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
                memcpy(file.data + at, &values[v], 8);
                ask_changed(file, v);
            }
            memcpy(file.data + at, &before, 8);
        }
    }
    free(file.data);
}

/* A sparse file of 1 TiB whose headers speak of sections as large as that: nothing of this size is read or allotted. */
static void test_sparse_file(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/tiny");
    Elf64_Ehdr elf;
    memcpy(&elf, file.data, sizeof(elf));
    const uint64_t huge = UINT64_C(1) << 40;
    for (size_t turn = 0; turn < 2; turn++) {
        int fd = file_of(file, file.size);
        assert_int_equal(ftruncate(fd, (off_t)huge), 0);
        if (turn == 0) {
            elf.e_shnum = 0; /* the number stands in section header 0 */
            const uint64_t count = (huge - elf.e_shoff) / 64;
            assert_int_equal(pwrite(fd, &elf, sizeof(elf), 0), sizeof(elf));
            assert_int_equal(pwrite(fd, &count, 8, (off_t)(elf.e_shoff + offsetof(Elf64_Shdr, sh_size))), 8);
        } else {
            const uint64_t bytes = huge - file.size;
            for (size_t i = 1; i < elf.e_shnum; i++) {
                uint64_t at = elf.e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size);
                assert_int_equal(pwrite(fd, &bytes, 8, (off_t)at), 8);
            }
        }
        struct image *image = NULL;
        assert_int_equal(image_open(fd, "sparse", &image), 0);
        assert_int_equal(image_kind(image), IMAGE_ELF);
        ask_everything(image);
        memcpy(&elf, file.data, sizeof(elf));
    }
    free(file.data);
}

static void test_pieces(void **state)
{
    (void)state;
    struct bytes file = read_fixture(FIXTURES "/plain");
    uint8_t *copy = malloc(file.size);
    assert_non_null(copy);
    memcpy(copy, file.data, file.size);
    const struct image_piece pieces[] = {{0, 2000}, {4096, 100}};
    struct image *image = NULL;
    uint8_t buffer[200];
    assert_int_equal(image_open_pieces(copy, file.size, pieces, 2, "pieces", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    assert_int_equal(image_size(image), file.size);
    size_t size;
    assert_null(image_memory(image, &size));
    assert_int_equal(size, 0);
    assert_int_equal(image_read_off(image, 4096, buffer, 100), 0);
    assert_memory_equal(buffer, file.data + 4096, 100);
    assert_int_equal(image_read_off(image, 4095, buffer, 2), -ENODATA);
    assert_int_equal(image_read_off(image, 4096, buffer, 101), -ENODATA);
    assert_int_equal(image_read_off(image, 4196, buffer, 1), -ENODATA);
    assert_int_equal(image_read_off(image, 3000, buffer, 1), -ENODATA);
    image_free(image);
    free(file.data);
}

static void test_bias_of_shared_pages(void **state)
{
    (void)state;
    /* Two code segments that share a page of the file: the mapping of that page alone can be either's. */
    struct {
        Elf64_Ehdr elf;
        Elf64_Phdr segments[2];
        uint8_t rest[0x2000];
    } *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    made->elf = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                             .e_machine = EM_X86_64,
                             .e_phoff = sizeof(Elf64_Ehdr),
                             .e_phentsize = sizeof(Elf64_Phdr),
                             .e_phnum = 2};
    made->segments[0] =
        (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 0x1300, .p_vaddr = 0x400000};
    made->segments[1] = (Elf64_Phdr){
        .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = 0x1300, .p_filesz = 0x100, .p_vaddr = 0x501300};
    struct image *image;
    assert_int_equal(image_open_memory(made, sizeof(*made), "made", &image), 0);
    assert_true(image_bias_fits(image, 0x501000, 0x1000, 0));
    assert_true(image_bias_fits(image, 0x401000, 0x1000, 0));
    assert_true(image_bias_fits(image, 0x601000, 0x1000, 0x100000));
    assert_true(image_bias_fits(image, 0x501000, 0x1000, 0x100000)); /* the first segment, elsewhere */
    assert_false(image_bias_fits(image, 0x501000, 0x1000, 0x200000));
    assert_false(image_bias_fits(image, 0x501000, 0x2000, 0));
    image_free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_build_id),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_extended_numbering),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_file_that_shrinks),
        cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_hostile_numbers),
        cmocka_unit_test(test_sparse_file),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bias_of_shared_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
