#include "common/fileio.h"

#include "common/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

void fileio_cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

ssize_t fileio_pread(int fd, void *buffer, size_t size, uint64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, (char *)buffer + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

ssize_t fileio_read_text(int dirfd, const char *path, char *buffer, size_t size)
{
    autoclose int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t done = 0;
    while (done + 1 < size) {
        ssize_t got = read(fd, buffer + done, size - 1 - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    buffer[done] = '\0';
    return (ssize_t)done;
}

int fileio_read_all(int fd, size_t limit, char **ret_data, size_t *ret_size)
{
    char *data = NULL;
    size_t capacity = 0;
    size_t size = 0;
    for (;;) {
        int error = array_room(&data, &capacity, size + 16384);
        if (error) {
            free(data);
            return error;
        }
        ssize_t got = read(fd, data + size, capacity - size - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || size + (size_t)got > limit) {
            error = got < 0 ? -errno : -EFBIG;
            free(data);
            return error;
        }
        if (got == 0)
            break;
        size += (size_t)got;
    }
    data[size] = '\0';
    *ret_data = data;
    *ret_size = size;
    return 0;
}

void fileio_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int fileio_write(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t put = write(fd, (const char *)data + done, size - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        done += (size_t)put;
    }
    return 0;
}

int fileio_open_regular(int dirfd, const char *path)
{
    struct stat st;
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}
