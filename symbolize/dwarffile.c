#include "symbolize/dwarffile.h"

#include "symbolize/elfinflate.h"
#include "symbolize/mapguard.h"

#include <elf.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <stdlib.h>

bool dwarffile_has_any(const struct image *image)
{
    struct image_section section;
    return image_find_section(image, ".debug_info", &section) || image_find_section(image, ".zdebug_info", &section);
}

static int open_elf(struct dwarffile *file)
{
    size_t bytes;
    const void *memory = image_memory(file->image, &bytes);
    if (elf_version(EV_CURRENT) == EV_NONE)
        return 0;
    int error = elfinflate(file->image, &file->inflated, &bytes);
    if (error)
        return error == -ENOMEM ? error : 0;
    if (file->inflated)
        memory = file->inflated;
    if (memory) {
        file->elf = elf_memory((char *)(uintptr_t)memory, bytes); /* not written to: the handle is only read from */
        return 0;
    }
    file->elf = elf_begin(image_fd(file->image), ELF_C_READ_MMAP, NULL);
    const void *mapping = elf_rawfile(file->elf, &bytes);
    if (mapping && mapguard_add(mapping, bytes) == 0)
        file->guarded = mapping;
    if (!file->guarded) { /* unguarded it is not to be read */
        elf_end(file->elf);
        file->elf = NULL;
    }
    return 0;
}

/* A file with DWARF in which nothing is found. */
static struct {
    Elf64_Ehdr head;
    Elf64_Shdr sections[3];
    char names[32];
    uint8_t line;
} empty = {
    .head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
             .e_type = ET_EXEC,
             .e_machine = EM_X86_64,
             .e_version = EV_CURRENT,
             .e_shoff = sizeof(Elf64_Ehdr),
             .e_ehsize = sizeof(Elf64_Ehdr),
             .e_shentsize = sizeof(Elf64_Shdr),
             .e_shnum = 3,
             .e_shstrndx = 1},
    .sections = {[1] = {.sh_name = 1,
                        .sh_type = SHT_STRTAB,
                        .sh_offset = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr),
                        .sh_size = sizeof(empty.names),
                        .sh_addralign = 1},
                 [2] = {.sh_name = 11,
                        .sh_type = SHT_PROGBITS,
                        .sh_offset = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Shdr) + sizeof(empty.names),
                        .sh_size = sizeof(empty.line),
                        .sh_addralign = 1}},
    .names = "\0.shstrtab\0.debug_line",
};

static int open_empty(struct dwarffile *file)
{
    dwarffile_close(file);
    file->elf = elf_memory((char *)&empty, sizeof(empty));
    file->dwarf = dwarf_begin_elf(file->elf, DWARF_C_READ, NULL);
    return file->dwarf ? 0 : -ENOMEM;
}

/*
 * libdw would open whatever lies at that path by itself, wait for it, and take a file of another build. So it always
 * gets one. What is shared does not refer to a third file.
 */
static int open_alternate(struct dwarffile *file, const struct debugfile_search *search)
{
    const char *name;
    const void *build_id;
    ssize_t bytes = dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &build_id);
    if (bytes <= 0)
        return 0;
    file->shared = calloc(1, sizeof(*file->shared));
    int error = file->shared ? 0 : -ENOMEM;
    if (!error && search)
        error = debugfile_find_alternate(search, file->image, name, build_id, (size_t)bytes, &file->alternate);
    if (!error && file->alternate)
        error = dwarffile_open(file->shared, file->alternate, NULL);
    if (!error && !file->shared->dwarf)
        error = open_empty(file->shared);
    if (!error)
        dwarf_setalt(file->dwarf, file->shared->dwarf);
    return error;
}

int dwarffile_open(struct dwarffile *file, const struct image *image, const struct debugfile_search *search)
{
    *file = (struct dwarffile){.image = image};
    if (!dwarffile_has_any(image))
        return 0;
    int error = open_elf(file);
    if (error || !file->elf)
        return error;
    file->dwarf = dwarf_begin_elf(file->elf, DWARF_C_READ, NULL);
    return file->dwarf ? open_alternate(file, search) : 0;
}

void dwarffile_close(struct dwarffile *file)
{
    dwarf_end(file->dwarf);
    mapguard_remove(file->guarded);
    elf_end(file->elf);
    free(file->inflated);
    if (file->shared)
        dwarffile_close(file->shared);
    free(file->shared);
    image_free(file->alternate);
    *file = (struct dwarffile){0};
}
