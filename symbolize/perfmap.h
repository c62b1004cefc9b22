/*
 * Names of JIT code from a perf map: a text file, one line per piece of code, `START SIZE name with blanks`, START and
 * SIZE hexadecimal with or without 0x (source: the Linux kernel's tools/perf/Documentation/jit-interface.txt). For
 * example:
 *
 *   3ef414c0 398 LazyCompile:~main app.js:12
 *
 * The file only grows while the runtime compiles; a runtime that reuses memory writes the new name behind the old one.
 * So a later line wins on every byte that it covers, and what it leaves of older lines stays. A last line without
 * newline is half written: it is kept back until the rest comes, and dropped when it never does. Lines that do not
 * parse, have size 0 or wrap around are counted and skipped. Names keep their bytes here (cleaning is the writer's),
 * cut at 4 KiB.
 *
 * Not thread-safe; one owner.
 */
#ifndef SYMBOLIZE_PERFMAP_H
#define SYMBOLIZE_PERFMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct perfmap;

/* The bytes around an address for which this is the name: a line's, or what later lines left of it. */
struct perfmap_entry {
    uint64_t start_avma;
    uint64_t end_avma;
    const char *name; /* borrowed, valid until the map is added to or freed */
};

struct perfmap *perfmap_new(void); /* NULL: no memory */
void perfmap_free(struct perfmap *map);

/* Adds the next bytes of the file, cut anywhere. Returns 0 or -ENOMEM. */
int perfmap_add(struct perfmap *map, const char *bytes, size_t size);

/*
 * Opens `path` below `dirfd` as a perf map that can be trusted: a regular file, not reached through a symbolic link as
 * its last component, owned by `owner` or by root, never waiting (a FIFO is refused without blocking). Returns a
 * descriptor, or a negative errno: -ELOOP symbolic link, -EINVAL not a regular file, -EPERM foreign owner, ...
 */
int perfmap_open_file(int dirfd, const char *path, uid_t owner);

/*
 * Reads what the file has beyond what was read before; of a file that shrank nothing, and what was read stays.
 * Returns 0 or a negative errno; at most 4 GiB in all.
 */
int perfmap_read(struct perfmap *map, int fd);

/*
 * The name of `avma`, by all lines so far; false when there is none (or no memory is left).
 * The first call after an addition sorts; later ones are binary searches.
 */
bool perfmap_find(struct perfmap *map, uint64_t avma, struct perfmap_entry *ret_entry);

size_t perfmap_lines(const struct perfmap *map);   /* good lines so far */
size_t perfmap_skipped(const struct perfmap *map); /* lines that were not */

/* Good line `index` (below perfmap_lines), in the order of the file, as it stands there: later lines may have parts of
 * its range. */
void perfmap_get_line(const struct perfmap *map, size_t index, struct perfmap_entry *ret_entry);

#endif
