/*
 * Where may a thread be sent into dlopen? It is held for the call of a function that it knows nothing of, as by a
 * signal; so all of its stack must be known, to the root, and be free of what dlopen may need (injectnames.h).
 *
 * The process's code, maps and names as they are learnt while a thread is not held: first a stack is copied and looked
 * at when the thread runs again; when it is good, and everything about it is known, the thread is held once more and
 * looked at again, in some 100 us. One thread's.
 */
#ifndef SAMPLER_INJECTPLACE_H
#define SAMPLER_INJECTPLACE_H

#include "sampler/images.h"
#include "sampler/injectremote.h"
#include "sampler/space.h"
#include "unwind/unwind.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What is known of an image's functions. */
struct place_image {
    bool is_loaded;
    bool is_loader;
    bool is_allocator;
    bool is_libc;
    bool is_strict; /* the C library or an allocator whose internal functions have no names: what they do is not known
                       but by the named one that called them */
    struct symtab *symtab; /* owned */
};

struct inject_process {
    pid_t pid;
    pid_t tid;             /* one that lived when it was last looked: the main thread may have ended alone */
    int proc_fd;           /* borrowed */
    struct images *images; /* owned, as all below */
    struct unwinder *unwinder;
    struct space *space;
    struct address_map *map;
    uint64_t map_counter;            /* space_counter before it was read */
    struct inject_stack first_stack; /* the main thread's; 0, 0: not found */
    struct place_image *known;       /* by image number */
    size_t known_capacity;
    uint8_t *copy;
    size_t copied;
    struct snapshot snapshot;
    struct stack stack;
    char obstacle[160]; /* why the last one was no good, for the user */
};

/* Returns 0 or a negative errno. `proc_fd` is borrowed. */
int injectplace_open(pid_t pid, int proc_fd, struct inject_process *ret);
void injectplace_close(struct inject_process *process);

/* Reads the maps if they have changed since. No thread is held. Returns 0 or a negative errno. */
int injectplace_refresh(struct inject_process *process);

/* Whether code was mapped or unmapped since: one system call, for a moment at which a thread is held. */
bool injectplace_is_current(const struct inject_process *process);

/* Copies the held thread's stack. Returns 0 or a negative errno. */
int injectplace_copy(struct inject_process *process, const struct inject_held *held, size_t limit_bytes);

/* Of the last copy. Whether dlopen may run there. `may_load`: names that are not known yet may be looked up, which
 * takes its time; else a place that needs them is none. */
bool injectplace_is_good(struct inject_process *process, const struct inject_held *held, bool may_load);

/* How much of the stack the last look needed. */
size_t injectplace_used_bytes(const struct inject_process *process);

/* The thread's own stack, made by the C library or the kernel, with the thread on it: there a signal frame may lie.
 * Others (coroutines') may be too small, and have somebody else's memory below. false: it is on no such stack. */
bool injectplace_find_stack(const struct inject_process *process, const struct inject_held *held,
                            struct inject_stack *ret);

#endif
