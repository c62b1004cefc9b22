/*
 * Reads a snapshot file (snapformat.h): gives its items one after another, each with the space, maps and thread that it
 * had in the run, and a way to read the code bytes of its time. No process is needed; images are opened by their path
 * in our own root directory, if the file there is the one that ran.
 *
 * The file is not trusted. Every length, number and index is checked before it is used; memory grows with what was
 * read, never with what a number claims. A file that ends early, or has something impossible in it, is good up to
 * there.
 */
#ifndef SAMPLER_SNAPREAD_H
#define SAMPLER_SNAPREAD_H

#include "sampler/capture.h"
#include "sampler/images.h"
#include "sampler/item.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapread;

/* How the run was made. */
struct snapread_run {
    bool is_wall;
    enum unwind_mode unwind;
    size_t max_depth;
    unsigned rate_hz;
};

enum snapread_answer {
    SNAPREAD_ITEM,
    SNAPREAD_WHOLE,  /* the end: nothing is missing */
    SNAPREAD_CUT,    /* the end, but the run was to go on */
    SNAPREAD_DAMAGED /* what comes next cannot be read */
};

/* True when these are the first bytes of a snapshot file. */
bool snapread_is_magic(const void *bytes, size_t size);

/*
 * `fd` (borrowed) is a regular file. `warn` is told of each image that is missing or another build, a line without
 * newline that may hold any bytes. Returns 0, or -ENOMSG: no snapshot file, -ENOTSUP: of another version, -EBADMSG: its
 * beginning is damaged or missing, or another negative errno.
 */
int snapread_open(int fd, void (*warn)(void *context, const char *text), void *context, struct snapread **ret_read);
void snapread_free(struct snapread *read);

const struct snapread_run *snapread_run(const struct snapread *read);

/*
 * The next item. Everything in it is borrowed until the next call. After another answer than SNAPREAD_ITEM there is
 * nothing more. Returns 0, or -ENOMEM, or the error of reading.
 */
int snapread_next(struct snapread *read, struct item *ret_item, enum snapread_answer *ret_answer);

/* Where in the file the reading is. */
uint64_t snapread_offset(const struct snapread *read);

/* Code bytes of a space, as the run had them when it unwound the current item. */
struct memory_reader snapread_reader(struct snapread *read, const struct space *space);

/* So far. For names and counters; the latter are all zero unless the file is whole. Borrowed. */
const struct images *snapread_images(const struct snapread *read);
struct space *const *snapread_spaces(const struct snapread *read, size_t *ret_count);
const struct capture_result *snapread_capture(const struct snapread *read);
const struct tracer_counters *snapread_tracer(const struct snapread *read);

#endif
