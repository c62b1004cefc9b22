/*
 * The DWARF of one ELF file, through libdw. The file is mapped, not read: of large ones only what is asked for comes
 * into memory. What libdw cannot take as it is (sections compressed by zstd) is given to it as an image in memory.
 */
#ifndef SYMBOLIZE_DWARFFILE_H
#define SYMBOLIZE_DWARFFILE_H

#include "symbolize/debugfile.h"
#include "symbolize/image.h"

#include <elfutils/libdw.h>

struct dwarffile {
    const struct image *image;
    Elf *elf;
    Dwarf *dwarf;             /* NULL: has none */
    uint8_t *inflated;        /* owned; or NULL */
    const void *guarded;      /* what the file is mapped at; or NULL */
    struct image *alternate;  /* owned; what it shares with others (dwz) is in here */
    struct dwarffile *shared; /* owned; likewise */
};

/* Has it DWARF at all? Nothing is opened for that. */
bool dwarffile_has_any(const struct image *image);

/* `search` NULL: what it shares with others is not looked for. Returns 0 or -ENOMEM; without DWARF, or with none that
 * libdw takes, `dwarf` is NULL. `file` is to be closed. */
int dwarffile_open(struct dwarffile *file, const struct image *image, const struct debugfile_search *search);
void dwarffile_close(struct dwarffile *file);

#endif
