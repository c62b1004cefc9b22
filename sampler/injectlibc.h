/*
 * What of a target's C library is used to load a library: functions by name, and two places in its code.
 */
#ifndef SAMPLER_INJECTLIBC_H
#define SAMPLER_INJECTLIBC_H

#include "common/strbuf.h"
#include "sampler/space.h"

#include <stdbool.h>
#include <stdint.h>

struct inject_libc {
    uint64_t dlopen_avma;
    uint64_t dlsym_avma;
    uint64_t dlerror_avma; /* 0: none, with the functions that the C library kept for itself */
    uint64_t errno_location_avma;
    uint32_t dlopen_mode;
    uint64_t syscall_avma;   /* syscall; ret */
    uint64_t sigreturn_avma; /* mov $__NR_rt_sigreturn, %rax; syscall: what ends a signal handler */
};

/* The base names by which they are known. */
bool injectlibc_is_libc(const char *path);
bool injectlibc_is_loader(const char *path);

/*
 * By what is mapped. Returns 0, or -ENOEXEC and in one line why this program cannot load a library: linked statically,
 * another C library; -ENOMEM.
 */
int injectlibc_find(const struct space *space, const struct address_map *map, struct inject_libc *ret,
                    struct strbuf *ret_why);

#endif
