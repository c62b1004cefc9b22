/*
 * An ELF image read back from the memory that it was mapped into, for files that cannot be had: deleted ones without
 * the right to open them, or such on file systems that we may not read.
 *
 * A loader maps no section headers, so there is no .symtab: names come from .dynsym. The capture thread's.
 */
#ifndef SAMPLER_MEMIMAGE_H
#define SAMPLER_MEMIMAGE_H

#include "sampler/maps.h"
#include "symbolize/image.h"

/* `base` is here and below a mapping of the file's offset 0 (mappings_base). Its first bytes, at most 16 KiB, as an
 * image: program headers, and the build-id if it lies there, as it mostly does. Returns 0, -ENODATA, or -ENOMEM. */
int memimage_open_head(int mem_fd, const struct mapping *base, struct image **ret_image);

/*
 * The image at its own file offsets. Of one whose segments have at most 1 MiB all is read, of others what names and
 * unwinding need, 16 MiB at most; the unwinder reads their code from the process. Returns 0; -ENODATA: it is no ELF,
 * its headers are not mapped, or it would be larger than 256 MiB; -ENOMEM.
 */
int memimage_open(int mem_fd, const struct mapping *base, const char *path, struct image **ret_image);

#endif
