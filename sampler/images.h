/*
 * All images that were seen mapped, each opened once, when first seen, and kept to the end: a target that exits before
 * the names are looked up still gets them. An image is identified by device and inode (which cannot be used again while
 * we hold it open; where we do not, by the first page in memory, too) and its number is what a recorded frame carries.
 * Number 0 is no image.
 *
 * Filled by one thread only, the capture thread in a run.
 */
#ifndef SAMPLER_IMAGES_H
#define SAMPLER_IMAGES_H

#include "sampler/maps.h"
#include "symbolize/image.h"

#include <stdint.h>
#include <sys/types.h>

struct images;

struct images *images_new(void); /* NULL: no memory */
void images_free(struct images *images);

/* A mapping of a file in a process. All borrowed. */
struct mapped_file {
    int proc_fd;                   /* the process's /proc directory */
    int mem_fd;                    /* and its memory */
    pid_t tid;                     /* a living thread of it */
    const struct mapping *mapping; /* any of the file */
    const struct mapping *base;    /* the one of its offset 0, or NULL (mappings_base) */
};

/*
 * The image of that file. It is opened through map_files (which also finds deleted and replaced files; needs
 * privileges), by its path in the process's mounts and in ours, or as the process's program; what does not come from
 * map_files counts only if it is the file that is mapped (samefile.h). Else it is read from the process's memory
 * (memimage.h), else it is IMAGE_UNREADABLE and names by its path alone. Returns 0 or -ENOMEM.
 */
int images_add_file(struct images *images, const struct mapped_file *file, uint32_t *ret_number);

/* The vDSO: its bytes are read from the process's memory. Equal bytes are one image. */
int images_add_vdso(struct images *images, int mem_fd, const struct mapping *mapping, uint32_t *ret_number);

/* An image that was opened otherwise; consumed, also on failure. Returns 0 or -ENOMEM. */
int images_add(struct images *images, struct image *image, uint32_t *ret_number);

/* Borrowed until images_free; NULL for 0. Any thread. */
const struct image *images_get(const struct images *images, uint32_t number);

#endif
