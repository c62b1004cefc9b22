/*
 * What one walk may look at: the snapshot, and the code that is mapped. It remembers how far
 * up the stack the walk had to look. Lives for one walk, on the unwinder's thread.
 */
#ifndef UNWIND_VIEW_H
#define UNWIND_VIEW_H

#include "unwind/unwind.h"

struct view {
    const struct codemap *map;          /* borrowed */
    const struct snapshot *snapshot;    /* borrowed */
    const struct memory_reader *reader; /* borrowed; NULL: no anonymous code */
    uint64_t top_avma;                  /* end of the highest byte of the stack that was needed; 0 for none */
    /* Set by a view_read that failed, cleared by who wants to know. */
    bool failed;
    bool cut; /* the failed read would have succeeded with a larger copy of the stack */
};

/* Notes that the stack's bytes [avma, avma + size) are needed, if they are in the first copied range or in what it
 * lacks. */
void view_need(struct view *view, uint64_t avma, size_t size);

/* From the snapshot, else from code. false, with `failed` and `cut` set: neither has all of it. */
bool view_read(struct view *view, uint64_t avma, void *buffer, size_t size);

/*
 * Bytes of one executable region: from its image, else from the reader (anonymous memory, and files that are no ELF
 * image: JIT code may lie in a memfd).
 */
bool view_read_code(const struct view *view, const struct code_region *region, uint64_t avma, void *buffer,
                    size_t size);

#endif
