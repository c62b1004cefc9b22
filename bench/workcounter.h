/* A number in a file that other processes read while it grows: eight bytes, in the order of the machine. C and C++. */
#ifndef BENCH_WORKCOUNTER_H
#define BENCH_WORKCOUNTER_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* NULL when there can be none. */
static inline uint64_t *workcounter_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0)
        return NULL;
    void *mapped = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return mapped == MAP_FAILED ? NULL : (uint64_t *)mapped;
}

static inline void workcounter_add(uint64_t *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

#endif
