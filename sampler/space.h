/*
 * An address space: one memory image of a process, from its start or exec to its exec or end, and what was mapped in
 * it.
 *
 * The capture thread makes it, notices its end and reads its maps; the unwinding thread keeps its own state in it; the
 * names at the end read its perf map. A space lives to the end of the run (recorded frames carry its number), its
 * descriptors do not.
 */
#ifndef SAMPLER_SPACE_H
#define SAMPLER_SPACE_H

#include "sampler/images.h"
#include "sampler/remap.h"
#include "symbolize/perfmap.h"
#include "unwind/codemap.h"
#include "unwind/unwind.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct space {
    uint32_t number; /* from 1 */
    pid_t pid;
    int proc_fd;  /* own duplicate of the process's /proc directory; -1 once closed */
    int mem_fd;   /* /proc/PID/mem: bound to this memory, reads 0 bytes once it is gone; -1: not permitted */
    int statm_fd; /* for the counter that moves when code is mapped */

    /* The capture thread's. */
    bool ended;         /* exec or exit was seen */
    unsigned in_flight; /* samples of it in the making */
    struct remaps remaps;

    /* The unwinding thread's. */
    struct unwind_space *unwind;
    struct perfmap *perfmap; /* NULL until code without a file was seen */
    int perfmap_fd;          /* -1: not found yet */
    uint64_t perfmap_tried_ns;

    /* Set by the unwinding thread when an address lay in nothing known, taken by the capture thread: read the maps
     * again. */
    atomic_bool maps_stale;
    atomic_bool wants_look; /* likewise: some thread of it wants another sample though it does not run */
};

/* Half-open range that is mapped and readable; stacks are found in them. */
struct extent {
    uint64_t start_avma;
    uint64_t end_avma;
};

/* What was mapped at one time. Immutable, counted references from any thread. */
struct address_map {
    atomic_uint references;
    struct codemap code;
    struct code_region *regions; /* code.regions, owned */
    uint32_t *region_images; /* per region: the number of its image; also where regions[i].image is NULL because it is
                                no ELF */
    struct extent *extents;  /* sorted */
    size_t extent_count;
    size_t extent_capacity;
    size_t region_capacity;
    size_t image_capacity;
};

/*
 * A space of the process `pid`, whose /proc directory is `proc_fd` (borrowed). `tid` is a living thread of it, here and
 * below: what /proc/PID itself has of memory and files is the main thread's, and nothing once that one has ended.
 * Returns 0, -ENOMEM, -ESRCH, or -EACCES/-EPERM when the memory may not be read.
 */
int space_new(pid_t pid, int proc_fd, pid_t tid, uint32_t number, struct space **ret_space);
void space_free(struct space *space);

/* A space of a process that is not there, from a file: without descriptors. Returns 0 or -ENOMEM. */
int space_new_saved(pid_t pid, uint32_t number, struct space **ret_space);

/* Closes what needs the process; perf map contents read so far and its descriptor stay. Called by the unwinding thread.
 */
void space_close(struct space *space);

/* True when the memory is gone: the process called exec, or ended. One system call. */
bool space_is_gone(const struct space *space);

/* A number that moves whenever code is mapped or unmapped with a change in size. One system call; 0 when it cannot be
 * read. */
uint64_t space_counter(const struct space *space);

/*
 * Reads the maps and opens images not seen before. Returns 0 or a negative errno (-ESRCH: the memory is gone, or became
 * another's while we read; -EACCES).
 */
int space_read_maps(struct space *space, pid_t tid, struct images *images, struct address_map **ret_map);

/* Room for so many regions (code.count, all zero) and extents, for a reader of saved maps to fill. One reference; NULL:
 * no memory. */
struct address_map *address_map_new(size_t regions, size_t extents);

struct address_map *address_map_ref(struct address_map *map);
void address_map_unref(struct address_map *map); /* NULL is fine */

/* The extent that holds `avma`, borrowed, or NULL. */
const struct extent *address_map_extent(const struct address_map *map, uint64_t avma);

/*
 * Looks for the perf map of this space's process, at most ten times a second, and keeps it open when it is there.
 * Called when code without a file was seen. The file is /tmp/perf-<pid as the process sees it>.map in the process's own
 * root directory.
 */
void space_find_perfmap(struct space *space, pid_t tid);

/* Reads what the perf map has now. */
void space_read_perfmap(struct space *space);

#endif
