/*
 * Which threads of a process to look at, in which order, and which to leave alone: the choice before any of them is
 * held. One thread's.
 */
#ifndef SAMPLER_INJECTTHREADS_H
#define SAMPLER_INJECTTHREADS_H

#include "sampler/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { INJECTTHREADS_MAX = 4096, INJECTTHREADS_CHOSEN = 8, INJECTTHREADS_NOTES = 256 };

/* A sleeping thread that was held in vain: until it has run, it is where it was. */
struct injectthreads_note {
    pid_t tid;
    uint64_t slices;
};

/* All zero is the start. */
struct injectthreads {
    unsigned rounds;
    struct injectthreads_note notes[INJECTTHREADS_NOTES];
};

/*
 * Up to INJECTTHREADS_CHOSEN threads, the best first: on a CPU, asleep without a timeout, asleep with one; other ones
 * in each round. None that cannot be stopped now. Returns how many.
 */
size_t injectthreads_choose(struct injectthreads *threads, int proc_fd, pid_t *ret_tids);

/* A thread that lives, the main thread if that does: through it the process's memory and files are seen. 0: none. */
pid_t injectthreads_find_living(int proc_fd);

/* It was held, and is at no good place. */
void injectthreads_note(struct injectthreads *threads, int proc_fd, pid_t tid);

/* Whether a system call waits no longer than for some time that it counts from its beginning. */
bool injectthreads_has_timeout(const struct procfs_syscall *call);

#endif
