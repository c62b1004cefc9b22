/*
 * Which functions of an image have unwind information, and where it stands: spans of code in ascending order, of one of
 * three sources. What an index says is not yet true: the search table may lie, and an entry may be damaged; cfitable.c,
 * which is the only user, looks at the entries.
 *
 * A pass over a section takes entries for code only: the range must lie in one executable segment, and not in the ELF
 * header. So functions that the linker discarded, whose entries in .debug_frame stay behind with address 0, are no
 * functions of address 0. Of entries that start at the same address the longest counts, of these the first.
 */
#ifndef UNWIND_CFIINDEX_H
#define UNWIND_CFIINDEX_H

#include "symbolize/image.h"

struct cfi_span {
    int32_t start;  /* relative to the index's base */
    int32_t fde;    /* relative to the same; in .debug_frame the offset in the section */
    uint32_t bytes; /* 0: not known (search table) */
};

struct cfiindex {
    uint64_t base_svma;
    struct cfi_span *spans; /* ascending by start */
    size_t count;
    size_t capacity;
};

/*
 * Each fills an index of zeros and returns 0 or -ENOMEM; without a source, or with one that is no good, it stays empty.
 * Sources of more than 256 MB, or more than 4 million entries, are read up to there or not at all.
 */

/* The search table of PT_GNU_EH_FRAME, when it is sorted. */
int cfiindex_read_search(struct cfiindex *index, const struct image *image);

/* One pass over .eh_frame, found by its section header or else by what PT_GNU_EH_FRAME says. */
int cfiindex_read_eh_frame(struct cfiindex *index, const struct image *image);

/* One pass over the content of .debug_frame. */
int cfiindex_read_debug_frame(struct cfiindex *index, const struct image *image, const uint8_t *data, size_t size);

void cfiindex_deinit(struct cfiindex *index);

/* The last function that starts at or before `svma`; SIZE_MAX: none. */
size_t cfiindex_find(const struct cfiindex *index, uint64_t svma);

uint64_t cfiindex_start(const struct cfiindex *index, size_t n);

#endif
