#include "unwind/gotslot.h"

#include <elf.h>
#include <string.h>

/* Larger tables are looked at up to there; longer names are not compared. */
enum { ENTRIES_MAX = 1 << 20, NAME_BYTES_MAX = 1024, CHUNK_ENTRIES = 128 };

/* The n-th entries of a section of equal ones, some at a time. Returns how many were read. */
static size_t read_entries(const struct image *image, const struct image_section *section, size_t n, size_t entry_bytes,
                           void *buffer)
{
    size_t count = (size_t)(section->bytes / entry_bytes);
    if (count > ENTRIES_MAX)
        count = ENTRIES_MAX;
    if (n >= count)
        return 0;
    size_t wanted = count - n < CHUNK_ENTRIES ? count - n : CHUNK_ENTRIES;
    bool is_read = image_read_off(image, section->off + n * entry_bytes, buffer, wanted * entry_bytes) == 0;
    return is_read ? wanted : 0;
}

static bool find_relocation(const struct image *image, const char *name, uint64_t slot_svma, Elf64_Rela *ret)
{
    struct image_section section;
    Elf64_Rela chunk[CHUNK_ENTRIES];
    if (!image_find_section(image, name, &section) || section.compression != IMAGE_STORED)
        return false;
    size_t got;
    for (size_t n = 0; (got = read_entries(image, &section, n, sizeof(chunk[0]), chunk)) > 0; n += got) {
        for (size_t i = 0; i < got; i++) {
            if (chunk[i].r_offset == slot_svma) {
                *ret = chunk[i];
                return true;
            }
        }
    }
    return false;
}

/* The n-th name. false: none, or too long. */
static bool read_name(const struct image *image, const struct image_section *strings, uint32_t off, char *name)
{
    if (off == 0 || off >= strings->bytes)
        return false;
    uint64_t room = strings->bytes - off;
    size_t size = room < NAME_BYTES_MAX ? (size_t)room : NAME_BYTES_MAX;
    return image_read_off(image, strings->off + off, name, size) == 0 && memchr(name, '\0', size) != NULL;
}

struct dynamic_symbols {
    struct image_section symbols;
    struct image_section strings;
};

static bool find_symbols(const struct image *image, struct dynamic_symbols *ret)
{
    return image_find_section(image, ".dynsym", &ret->symbols) && ret->symbols.compression == IMAGE_STORED &&
           image_find_section(image, ".dynstr", &ret->strings) && ret->strings.compression == IMAGE_STORED;
}

/* Is one of the symbols of the function's address of this name? */
static enum gotslot_answer compare_names(const struct image *function_image, uint64_t function_svma, const char *name)
{
    struct dynamic_symbols tables;
    Elf64_Sym chunk[CHUNK_ENTRIES];
    char other[NAME_BYTES_MAX];
    if (!find_symbols(function_image, &tables))
        return GOTSLOT_UNKNOWN;
    size_t got;
    for (size_t n = 0; (got = read_entries(function_image, &tables.symbols, n, sizeof(chunk[0]), chunk)) > 0;
         n += got) {
        for (size_t i = 0; i < got; i++) {
            if (chunk[i].st_shndx != SHN_UNDEF && chunk[i].st_value == function_svma &&
                read_name(function_image, &tables.strings, chunk[i].st_name, other) && strcmp(name, other) == 0)
                return GOTSLOT_FUNCTION;
        }
    }
    return GOTSLOT_OTHER;
}

enum gotslot_answer gotslot_find(const struct image *image, uint64_t slot_svma, const struct image *function_image,
                                 uint64_t function_svma)
{
    Elf64_Rela relocation;
    if (!find_relocation(image, ".rela.plt", slot_svma, &relocation) &&
        !find_relocation(image, ".rela.dyn", slot_svma, &relocation))
        return GOTSLOT_UNKNOWN;
    unsigned type = ELF64_R_TYPE(relocation.r_info);
    if (type == R_X86_64_RELATIVE)
        return image == function_image && (uint64_t)relocation.r_addend == function_svma ? GOTSLOT_FUNCTION
                                                                                         : GOTSLOT_OTHER;
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)
        return GOTSLOT_UNKNOWN;
    struct dynamic_symbols tables;
    Elf64_Sym symbol;
    char name[NAME_BYTES_MAX];
    uint64_t number = ELF64_R_SYM(relocation.r_info);
    if (!find_symbols(image, &tables) || number >= tables.symbols.bytes / sizeof(symbol) ||
        image_read_off(image, tables.symbols.off + number * sizeof(symbol), &symbol, sizeof(symbol)) < 0 ||
        !read_name(image, &tables.strings, symbol.st_name, name))
        return GOTSLOT_UNKNOWN;
    return compare_names(function_image, function_svma, name);
}
