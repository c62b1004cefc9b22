/*
 * All images that were seen mapped, each opened once, when first seen, and kept to the end: a target that exits before
 * the names are looked up still gets them. An image is identified by device and inode (which cannot be used again while
 * we hold it open) and its number is what a recorded frame carries. Number 0 is no image.
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

/*
 * The image of a file mapping of the process whose /proc directory is `proc_fd`; `tid` is a living thread of it. The
 * file is opened through map_files (which also finds deleted and replaced files; needs privileges) or through the
 * process's root directory, where the inode must be the one in the mapping; else the image is IMAGE_UNREADABLE and
 * names by its path alone. Returns 0 or -ENOMEM.
 */
int images_add_file(struct images *images, int proc_fd, pid_t tid, const struct mapping *mapping, uint32_t *ret_number);

/* The vDSO: its bytes are read from the process's memory. Equal bytes are one image. */
int images_add_vdso(struct images *images, int mem_fd, const struct mapping *mapping, uint32_t *ret_number);

/* An image that was opened otherwise; consumed, also on failure. Returns 0 or -ENOMEM. */
int images_add(struct images *images, struct image *image, uint32_t *ret_number);

/* Opens a regular file without waiting (a FIFO may lie at the path by now) and without becoming anything's terminal.
 * Returns the descriptor, or -1. */
int images_open_regular(int dirfd, const char *path);

/* Borrowed until images_free; NULL for 0. Any thread. */
const struct image *images_get(const struct images *images, uint32_t number);

#endif
