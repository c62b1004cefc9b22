/* Lines of /proc/PID/maps. */
#ifndef SAMPLER_MAPS_H
#define SAMPLER_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "7f12a000-7f12b000 r-xp 00001000 fe:00 1234   /usr/lib/libc.so.6 (deleted)" */
struct mapping {
    uint64_t start_avma;
    uint64_t end_avma;
    uint64_t off;
    uint64_t dev; /* as makedev gives it */
    uint64_t inode;
    bool readable;
    bool executable;
    const char *path; /* borrowed, not NUL-ended; newlines are still "\012". Size 0: anonymous */
    size_t path_size;
};

/*
 * Reads the line at *cursor and moves behind its newline. false: the line is no mapping (it is skipped all the same) or
 * nothing is left (*cursor == end). A last line without newline counts.
 */
bool mapping_parse(const char **cursor, const char *end, struct mapping *ret);

/*
 * The path as the target's file system knows it, NUL-ended, in a caller's buffer: "\012" is a newline again (the kernel
 * escapes nothing else) and " (deleted)" goes. Cut to the buffer.
 */
void mapping_path(const struct mapping *mapping, char *buffer, size_t size);

/*
 * What the line does not tell: whether the name itself ends in " (deleted)", or has "\012" in it. So there are up to
 * four readings, the likely one first: number `reading` from 0 on. false: there is no such one.
 */
bool mapping_path_reading(const struct mapping *mapping, unsigned reading, char *buffer, size_t size);

/* All mappings of a maps file, which they borrow. *ret_list is from malloc, for the caller to free. Returns 0 or
 * -ENOMEM. */
int mappings_parse(const char *text, size_t size, struct mapping **ret_list, size_t *ret_count);

/*
 * The mapping of file offset 0 that belongs to list[index], a mapping of a file: of the mappings of that file the
 * nearest one not above it. At most 64 lines are looked at. NULL: none.
 */
const struct mapping *mappings_base(const struct mapping *list, size_t index);

/* Whether both are of the same file (the device and inode are). */
bool mapping_is_same_file(const struct mapping *a, const struct mapping *b);

/* True for a mapping whose "path" is none: no name, [heap], [anon:...], shared anonymous memory, System V segments. */
bool mapping_is_anonymous(const struct mapping *mapping);

#endif
