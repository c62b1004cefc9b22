/*
 * A file that is there whole or not at all: written under a temporary name beside its own and renamed when complete.
 * What exists and is no regular file (a FIFO, /dev/stdout, /dev/full) is written to directly.
 */
#ifndef SAMPLER_OUTFILE_H
#define SAMPLER_OUTFILE_H

#include <stdbool.h>

struct outfile {
    int fd;
    char *path;           /* owned; the final name, NULL for standard output */
    char *temporary_path; /* owned; NULL when written directly */
};

/* NULL or "-": standard output. Returns 0 or a negative errno; nothing is left behind then. */
int outfile_open(const char *path, struct outfile *ret_file);

/* Everything was written: the file takes its name. Returns 0 or a negative errno (then nothing of it is left). */
int outfile_commit(struct outfile *file);

/* Forgets it: no file, and one of that name that was there before stays. Fine after commit, and on a zeroed struct with
 * fd -1. */
void outfile_deinit(struct outfile *file);

#endif
