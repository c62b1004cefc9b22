#include "cfi_made.h"

#include "cmocka_all.h"
#include "unwind/cfientry.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

struct image *open_file(const char *path)
{
    struct image *image = NULL;
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

const char *libc_path(void)
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

static void put(uint8_t *file, size_t off, const void *data, size_t size)
{
    if (size > 0)
        memcpy(file + off, data, size);
}

/*
 * File: headers, .shstrtab at 0x200, section headers at 0x400, search table at 0x2000, .eh_frame at 0x3000,
 * .debug_frame behind it: svma = offset.
 */
struct image *make_image(const struct made *made)
{
    static const char names[] = "\0.eh_frame\0.shstrtab\0.debug_frame\0.zdebug_frame";
    size_t debug_off = FRAME_SVMA + (made->frame_bytes + 15) / 16 * 16;
    size_t size = debug_off + made->debug_bytes;
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
        header.e_shnum = 4;
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
    Elf64_Shdr sections[4] = {
        {0},
        {.sh_name = 1,
         .sh_type = SHT_PROGBITS,
         .sh_flags = SHF_ALLOC,
         .sh_addr = FRAME_SVMA + made->frame_svma_error,
         .sh_offset = FRAME_SVMA,
         .sh_size = made->frame_bytes},
        {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_offset = 0x200, .sh_size = sizeof(names)},
        {.sh_name = made->debug_is_z ? 34 : 21,
         .sh_type = SHT_PROGBITS,
         .sh_flags = made->debug_flags,
         .sh_offset = debug_off,
         .sh_size = made->debug_bytes},
    };
    put(file, 0, &header, sizeof(header));
    put(file, sizeof(header), segments, sizeof(segments));
    put(file, 0x200, names, sizeof(names));
    put(file, 0x400, sections, sizeof(sections));
    put(file, SEARCH_SVMA, made->search, made->search_bytes);
    put(file, FRAME_SVMA, made->frame, made->frame_bytes);
    put(file, debug_off, made->debug, made->debug_bytes);
    struct image *image = NULL;
    assert_int_equal(image_open_memory(file, size, "made", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

void write_number(struct writer *writer, uint64_t value, size_t size)
{
    put(writer->data, writer->size, &value, size);
    writer->size += size;
}

void write_bytes(struct writer *writer, const void *data, size_t size)
{
    put(writer->data, writer->size, data, size);
    writer->size += size;
}

void end_entry(struct writer *writer, size_t start)
{
    while ((writer->size - start) % 8 != 0)
        write_number(writer, 0, 1);
    uint32_t length = (uint32_t)(writer->size - start - 4);
    put(writer->data, start, &length, 4);
}

size_t write_cie(struct writer *writer, uint8_t encoding, bool signal)
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

size_t write_fde(struct writer *writer, size_t cie, uint64_t start_svma, uint64_t length, uint8_t encoding)
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

struct cfitable *make_table(const struct writer *frame, const struct writer *search, bool stripped,
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

struct writer make_search(const size_t *fdes, const size_t *order, uint32_t count)
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
