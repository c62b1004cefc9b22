/*
 * Is this file the one that is mapped there? A path leads to whatever lies at it now, in whatever mounts: the file may
 * have been replaced, and some file systems show other numbers in maps than in stat. The capture thread's.
 */
#ifndef SAMPLER_SAMEFILE_H
#define SAMPLER_SAMEFILE_H

#include "sampler/maps.h"
#include "symbolize/image.h"

#include <stdbool.h>

enum samefile {
    SAMEFILE_NO,
    SAMEFILE_YES,    /* its contents are */
    SAMEFILE_NUMBERS /* and device and inode: nothing else can have them while it is open */
};

/* Device and inode are the mapping's, or could be: of a file system that shows others in maps than in stat
 * (*ret_maybe).
 */
bool samefile_has_numbers(int fd, const struct mapping *mapping, bool *ret_maybe);

/*
 * `image` is opened on that file, `base` the mapping of the file's offset 0 or NULL. Where the file and the memory both
 * have a build-id, it decides; else device and inode do; else, on file systems that show others, the code.
 */
enum samefile samefile_check(const struct image *image, int mem_fd, const struct mapping *mapping,
                             const struct mapping *base);

/* Both have a build-id, and not the same. */
bool samefile_has_other_id(const struct image *image, int mem_fd, const struct mapping *base);

/*
 * Whether memory and image have the same bytes: a sample of the pages of [avma, avma + bytes), 16 of them, with the
 * first and the last. What of a page is not in the image's segments is passed over; false when nothing is left to
 * compare.
 */
bool samefile_has_code(const struct image *image, int mem_fd, uint64_t avma, uint64_t bytes, uint64_t bias);

#endif
