#include "frameimage.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_OFF = 0x200, SECTIONS_OFF = 0x400, PART_BYTES_MAX = 0x1000 };

static const char NAMES[] = "\0.eh_frame\0.shstrtab\0.debug_frame";
enum { NAME_EH_FRAME = 1, NAME_SHSTRTAB = 11, NAME_DEBUG_FRAME = 21 };

static void put(uint8_t *file, size_t off, const void *data, size_t size)
{
    if (size > 0)
        memcpy(file + off, data, size);
}

static void put_part(uint8_t *file, size_t off, const void *data, size_t size)
{
    put(file, off, data, size < PART_BYTES_MAX ? size : PART_BYTES_MAX);
}

static void put_headers(uint8_t *file, size_t size, const struct frameimage *parts)
{
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_entry = parts->entry_svma,
        .e_phoff = sizeof(header),
        .e_shoff = parts->stripped ? 0 : SECTIONS_OFF,
        .e_ehsize = sizeof(header),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = parts->search_bytes > 0 ? 2 : 1,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = parts->stripped ? 0 : 3,
        .e_shstrndx = parts->stripped ? 0 : 2,
    };
    size_t search_bytes = parts->search_bytes < PART_BYTES_MAX ? parts->search_bytes : PART_BYTES_MAX;
    Elf64_Phdr segments[] = {
        {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = size, .p_memsz = size, .p_align = 0x1000},
        {.p_type = PT_GNU_EH_FRAME,
         .p_flags = PF_R,
         .p_offset = FRAMEIMAGE_SEARCH,
         .p_vaddr = FRAMEIMAGE_SEARCH,
         .p_filesz = search_bytes,
         .p_memsz = search_bytes},
    };
    Elf64_Shdr sections[] = {
        {0},
        {.sh_name = parts->debug ? NAME_DEBUG_FRAME : NAME_EH_FRAME,
         .sh_type = SHT_PROGBITS,
         .sh_flags = parts->debug ? 0 : SHF_ALLOC,
         .sh_addr = parts->debug ? 0 : FRAMEIMAGE_FRAMES,
         .sh_offset = FRAMEIMAGE_FRAMES,
         .sh_size = parts->frame_bytes},
        {.sh_name = NAME_SHSTRTAB, .sh_type = SHT_STRTAB, .sh_offset = NAMES_OFF, .sh_size = sizeof(NAMES)},
    };
    put(file, 0, &header, sizeof(header));
    put(file, sizeof(header), segments, sizeof(segments));
    put(file, NAMES_OFF, NAMES, sizeof(NAMES));
    put(file, SECTIONS_OFF, sections, sizeof(sections));
}

struct image *frameimage_open(const struct frameimage *parts)
{
    size_t size = FRAMEIMAGE_FRAMES + parts->frame_bytes;
    uint8_t *file = calloc(1, size);
    if (!file)
        return NULL;
    put_headers(file, size, parts);
    put_part(file, FRAMEIMAGE_TEXT, parts->text, parts->text_bytes);
    put_part(file, FRAMEIMAGE_SEARCH, parts->search, parts->search_bytes);
    put(file, FRAMEIMAGE_FRAMES, parts->frames, parts->frame_bytes);
    struct image *image = NULL;
    return image_open_memory(file, size, "made", &image) == 0 ? image : NULL;
}

struct writer {
    uint8_t *bytes;
    size_t size;
    size_t off;
};

static void add(struct writer *writer, const void *data, size_t size)
{
    if (writer->off <= writer->size && size <= writer->size - writer->off)
        put(writer->bytes, writer->off, data, size);
    writer->off += size;
}

static void add_number(struct writer *writer, uint64_t value, size_t size)
{
    add(writer, &value, size);
}

/* Pads with DW_CFA_nop and writes the length. */
static void end_entry(struct writer *writer, size_t start)
{
    while ((writer->off - start) % 8 != 0)
        add_number(writer, 0, 1);
    uint32_t length = (uint32_t)(writer->off - start - 4);
    if (writer->off <= writer->size)
        put(writer->bytes, start, &length, sizeof(length));
}

size_t frameprogram_write(const struct frameprogram *function, uint8_t *frames, size_t size, size_t off)
{
    /* DW_CFA_def_cfa rsp + 8; the return address one word below: offset 1 of data_align -8, or -1 of 8 (extended_sf) */
    const uint8_t cie_program[] = {0x0c, 0x07, 0x08, 0x11, 0x10, (uint8_t)(-8 / function->data_align) & 0x7f};
    struct writer writer = {.bytes = frames, .size = size, .off = off};
    size_t cie = off;
    add_number(&writer, 0, 4);
    add_number(&writer, 0, 4);
    add_number(&writer, 1, 1);
    add(&writer, function->signal ? "zRS" : "zR", function->signal ? 4 : 3);
    add_number(&writer, function->code_align, 1);
    add_number(&writer, (uint8_t)function->data_align & 0x7fU, 1);
    add_number(&writer, 16, 1); /* the column of the return address */
    add_number(&writer, 1, 1);
    add_number(&writer, 0x04, 1); /* addresses as 8 bytes */
    add(&writer, cie_program, sizeof(cie_program));
    end_entry(&writer, cie);
    size_t fde = writer.off;
    add_number(&writer, 0, 4);
    add_number(&writer, writer.off - cie, 4);
    add_number(&writer, function->start_svma, 8);
    add_number(&writer, function->bytes, 8);
    add_number(&writer, 0, 1);
    add(&writer, function->program, function->program_bytes);
    end_entry(&writer, fde);
    return writer.off <= size ? writer.off : 0;
}
