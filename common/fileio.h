/* Whole reads and writes, without surprises from short counts or signals. */
#ifndef COMMON_FILEIO_H
#define COMMON_FILEIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes the descriptor when the variable goes out of scope; -1 is nothing to close. */
#define autoclose __attribute__((cleanup(fileio_cleanup_fd)))
void fileio_cleanup_fd(int *fd);

/*
 * pread until `size` bytes, the end of the file or an error. Returns the count (short only at the end of the file) or a
 * negative errno; bytes read before an error are lost.
 */
ssize_t fileio_pread(int fd, void *buffer, size_t size, uint64_t offset);

/*
 * Opens `path` below `dirfd`, reads at most `size - 1` bytes and ends them with NUL: for small procfs files. Returns
 * the length or a negative errno. What does not fit is cut off.
 */
ssize_t fileio_read_text(int dirfd, const char *path, char *buffer, size_t size);

/*
 * Reads from an open descriptor to its end, for procfs files of unknown size. At most `limit` bytes; -EFBIG beyond.
 * *ret_data is owned by the caller (free), NUL behind its last byte. Returns 0 or a negative errno.
 */
int fileio_read_all(int fd, size_t limit, char **ret_data, size_t *ret_size);

/* Lets the process have as many descriptors as its hard limit allows. */
void fileio_raise_limit(void);

/* write until everything is written. Returns 0 or a negative errno (-EPIPE, -ENOSPC, ...). */
int fileio_write(int fd, const void *data, size_t size);

/* Opens a regular file for reading, without waiting (a FIFO may lie at the path by now) and without becoming anything's
 * terminal. Returns the descriptor, or -1. */
int fileio_open_regular(int dirfd, const char *path);

#endif
