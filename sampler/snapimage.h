/* An image of a snapshot file, opened again: by its path, if the file there is the one that ran. */
#ifndef SAMPLER_SNAPIMAGE_H
#define SAMPLER_SNAPIMAGE_H

#include "common/wire.h"
#include "symbolize/image.h"

/*
 * Reads the payload of an image chunk. A file that is missing, no regular file, or not the one that ran gives an
 * IMAGE_UNREADABLE of that name, and `warn` is told. The same build-id is the same file; without one device, inode,
 * size and time of the last change must be those of the run. Returns 0, -EBADMSG, or -ENOMEM.
 */
int snapimage_open(struct wire *wire, void (*warn)(void *context, const char *text), void *context,
                   struct image **ret_image);

#endif
