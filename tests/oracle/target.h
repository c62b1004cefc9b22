/*
 * The process that is looked at: its address space and maps, kept up to date while a thread of it is held, and our own
 * walk. Everything is built as sampler/pipeline.c and sampler/flight.c build it, from the same modules.
 */
#ifndef ORACLE_TARGET_H
#define ORACLE_TARGET_H

#include "sampler/images.h"
#include "sampler/space.h"
#include "stop.h"
#include "trace.h"
#include "unwind/unwind.h"

/* A stack is copied whole up to this, and so is one that a signal handler interrupted. */
enum { TARGET_COPY_BYTES = 8 << 20 };

struct target {
    pid_t pid;
    int proc_fd;
    enum unwind_mode mode;
    struct images *images;     /* owned */
    struct unwinder *unwinder; /* owned */
    struct space **spaces;     /* owned: one per program image; the last is the one of now */
    size_t space_count;
    size_t space_capacity;
    struct address_map *map; /* owned reference */
    uint64_t maps_hash;      /* of all of maps */
    uint64_t code_hash;      /* of its executable mappings */
    uint8_t *copy;           /* owned */
    struct snapshot snapshot;
    struct stack stack;
};

/* Returns 0 or a negative errno. */
int target_open(pid_t pid, enum unwind_mode mode, struct target *ret_target);
void target_close(struct target *target);

/*
 * Reads the maps if they are not the ones that were read last. `tid` is held. *ret_code_changed: what was learned about
 * executable mappings is void. Returns 0 or a negative errno.
 */
int target_refresh(struct target *target, pid_t tid, bool *ret_code_changed);

/* Whether the maps are another's by now: other threads run on, and what was walked by them is not to be judged. */
bool target_has_moved(const struct target *target, pid_t tid);

/* Copies the held thread's stack: target->snapshot. Returns 0 or a negative errno. */
int target_copy(struct target *target, const struct stop *stop);

/* Our walk of target->snapshot. Returns 0 or a negative errno. */
int target_walk(struct target *target, struct trace *ret_trace);

/*
 * The same with no other registers than those that are known of a thread that was not stopped: stack pointer, pc and
 * a system call's arguments. target->stack says what was inferred.
 */
int target_walk_reduced(struct target *target, struct trace *ret_trace);

struct space *target_space(const struct target *target);

/* Memory of the process, as it is now. */
bool target_read(const struct target *target, uint64_t avma, void *buffer, size_t size);

/* "libc.so.6+0x2724a"; anonymous memory has no offset: "[anon]"; "?" for what is not executable. `buffer` is returned.
 */
const char *target_place(const struct target *target, uint64_t avma, char *buffer, size_t size);

#endif
