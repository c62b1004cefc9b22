/*
 * Names of functions in which a thread may hold, or be in the middle of changing, what dlopen needs: the allocator's
 * and the loader's locks and tables, those of fork, of threads' stacks, of atexit, of the environment and messages.
 */
#ifndef SAMPLER_INJECTNAMES_H
#define SAMPLER_INJECTNAMES_H

#include <stdbool.h>

/*
 * Whether a thread with this function (as in the symbol table) on its stack is in no such place, as far as its name
 * says. `in_libc`: it is the C library's, whose names are known, so whole families count. `is_waiting`: the thread
 * sleeps in a system call, so a function that only waits in one is no harm.
 */
bool injectnames_is_harmless(const char *name, bool in_libc, bool is_waiting);

/* An allocator's library, or a sanitizer's, by its path: all of it counts. */
bool injectnames_is_allocator(const char *path);

#endif
