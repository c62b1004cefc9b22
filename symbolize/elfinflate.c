#include "symbolize/elfinflate.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#ifndef ELFCOMPRESS_ZSTD
enum { ELFCOMPRESS_ZSTD = 2 };
#endif

enum { NAME_BYTES = 24, ALIGNMENT = 16, RATIO_MAX = 4096 };

#define INFLATED_BYTES_MAX ((uint64_t)2 << 30)

/* The file in the making. */
struct inflated {
    const struct image *image;
    Elf64_Ehdr head;
    Elf64_Shdr *sections; /* owned: as in the image, then as they come */
    size_t count;
    uint8_t *elf; /* owned */
    uint64_t bytes;
};

static bool read_sections(struct inflated *file)
{
    file->count = image_section_count(file->image);
    if (file->count == 0 || image_read_off(file->image, 0, &file->head, sizeof(file->head)) < 0)
        return false;
    file->sections = calloc(file->count, sizeof(*file->sections));
    return file->sections &&
           image_read_off(file->image, file->head.e_shoff, file->sections, file->count * sizeof(*file->sections)) == 0;
}

/* What its compression says of it; false: not compressed by zstd. */
static bool read_zstd(const struct inflated *file, const Elf64_Shdr *section, Elf64_Chdr *ret_header)
{
    return section->sh_type != SHT_NOBITS && (section->sh_flags & SHF_COMPRESSED) &&
           section->sh_size >= sizeof(*ret_header) &&
           image_read_off(file->image, section->sh_offset, ret_header, sizeof(*ret_header)) == 0 &&
           ret_header->ch_type == ELFCOMPRESS_ZSTD;
}

static bool is_any_zstd(const struct inflated *file)
{
    Elf64_Chdr header;
    for (size_t i = 0; i < file->count; i++)
        if (read_zstd(file, &file->sections[i], &header))
            return true;
    return false;
}

/* Is its content wanted? Names of sections are, too. */
static bool is_wanted(const struct inflated *file, size_t index)
{
    const Elf64_Shdr *section = &file->sections[index];
    const Elf64_Shdr *names = &file->sections[file->head.e_shstrndx];
    char name[NAME_BYTES] = "";
    if (section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL || section->sh_size == 0)
        return false;
    if (index == file->head.e_shstrndx)
        return true;
    if (section->sh_name >= names->sh_size)
        return false;
    uint64_t left = names->sh_size - section->sh_name;
    if (image_read_off(file->image, names->sh_offset + section->sh_name, name,
                       left < sizeof(name) - 1 ? (size_t)left : sizeof(name) - 1) < 0)
        return false;
    return strncmp(name, ".debug_", 7) == 0 || strncmp(name, ".zdebug_", 8) == 0 ||
           strcmp(name, ".gnu_debugaltlink") == 0;
}

/* Room for so many bytes at the end. */
static int grow(struct inflated *file, uint64_t bytes, uint64_t *ret_off)
{
    uint64_t off = (file->bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    if (bytes > INFLATED_BYTES_MAX || off + bytes > INFLATED_BYTES_MAX)
        return -ENODATA;
    uint8_t *grown = realloc(file->elf, (size_t)(off + bytes));
    if (!grown)
        return -ENOMEM;
    memset(grown + file->bytes, 0, (size_t)(off - file->bytes));
    file->elf = grown;
    file->bytes = off + bytes;
    *ret_off = off;
    return 0;
}

static int copy_plain(struct inflated *file, Elf64_Shdr *section)
{
    uint64_t off = 0;
    if (section->sh_size > image_size(file->image)) /* also what grow() would not notice as too large in time */
        return -ENODATA;
    int error = grow(file, section->sh_size, &off);
    if (!error)
        error = image_read_off(file->image, section->sh_offset, file->elf + off, (size_t)section->sh_size);
    section->sh_offset = off;
    return error;
}

static int inflate(struct inflated *file, Elf64_Shdr *section, const Elf64_Chdr *header)
{
    uint64_t off = 0;
    uint64_t bytes = section->sh_size - sizeof(*header);
    if (section->sh_size > image_size(file->image) || header->ch_size / RATIO_MAX > bytes)
        return -ENODATA;
    uint8_t *compressed = malloc((size_t)bytes + 1);
    int error = compressed ? 0 : -ENOMEM;
    if (!error)
        error = image_read_off(file->image, section->sh_offset + sizeof(*header), compressed, (size_t)bytes);
    if (!error)
        error = grow(file, header->ch_size, &off);
    if (!error &&
        ZSTD_decompress(file->elf + off, (size_t)header->ch_size, compressed, (size_t)bytes) != header->ch_size)
        error = -ENODATA;
    free(compressed);
    if (error)
        return error;
    section->sh_offset = off;
    section->sh_size = header->ch_size;
    section->sh_addralign = header->ch_addralign;
    section->sh_flags &= ~(Elf64_Xword)SHF_COMPRESSED;
    return 0;
}

static int add_sections(struct inflated *file)
{
    uint64_t off = 0;
    if (file->head.e_shstrndx >= file->count)
        return -ENODATA;
    int error = grow(file, sizeof(file->head), &off);
    for (size_t i = 0; i < file->count && !error; i++) {
        Elf64_Shdr *section = &file->sections[i];
        Elf64_Chdr header;
        if (i == file->head.e_shstrndx)
            continue;
        if (!is_wanted(file, i))
            section->sh_type = section->sh_type == SHT_NULL ? SHT_NULL : SHT_NOBITS;
        else if (read_zstd(file, section, &header))
            error = inflate(file, section, &header);
        else
            error = copy_plain(file, section);
    }
    return error ? error : copy_plain(file, &file->sections[file->head.e_shstrndx]);
}

static int add_headers(struct inflated *file)
{
    uint64_t off = 0;
    int error = grow(file, file->count * sizeof(*file->sections), &off);
    if (error)
        return error;
    file->head.e_shoff = off;
    file->head.e_phoff = 0;
    file->head.e_phnum = 0;
    memcpy(file->elf + off, file->sections, file->count * sizeof(*file->sections));
    memcpy(file->elf, &file->head, sizeof(file->head));
    return 0;
}

int elfinflate(const struct image *image, uint8_t **ret_elf, size_t *ret_bytes)
{
    struct inflated file = {.image = image};
    *ret_elf = NULL;
    if (!read_sections(&file) || !is_any_zstd(&file)) {
        free(file.sections);
        return 0;
    }
    int error = add_sections(&file);
    if (!error)
        error = add_headers(&file);
    free(file.sections);
    if (error) {
        free(file.elf);
        return error;
    }
    *ret_elf = file.elf;
    *ret_bytes = (size_t)file.bytes;
    return 0;
}
