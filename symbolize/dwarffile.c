#include "symbolize/dwarffile.h"

#include "symbolize/elfinflate.h"
#include "symbolize/mapguard.h"

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

/* libdw would open whatever lies at that path by itself, and wait for it. */
static int open_alternate(struct dwarffile *file, const struct debugfile_search *search)
{
    const char *name;
    const void *build_id;
    ssize_t bytes = dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &build_id);
    if (bytes <= 0)
        return 0;
    int error = debugfile_find_alternate(search, file->image, name, build_id, (size_t)bytes, &file->alternate);
    if (error || !file->alternate)
        return error;
    file->shared = calloc(1, sizeof(*file->shared));
    if (!file->shared)
        return -ENOMEM;
    error = dwarffile_open(file->shared, file->alternate, search);
    if (file->shared->dwarf)
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
