/*
 * What one walk may look at: the snapshot, and the code that is mapped. It remembers how far
 * up the stack the walk had to look. Lives for one walk, on the unwinder's thread.
 */
#ifndef UNWIND_VIEW_H
#define UNWIND_VIEW_H

#include "unwind/unwind.h"

#include <string.h>

struct view {
    const struct codemap *map;          /* borrowed */
    const struct snapshot *snapshot;    /* borrowed */
    const struct memory_reader *reader; /* borrowed; NULL: no anonymous code */
    uint64_t top_avma;                  /* end of the highest byte of the stack that was needed; 0 for none */
    uint64_t other_bytes;               /* of another range that were needed, from its start; 0 for none */
    /* Set by a view_read that failed, cleared by who wants to know. */
    bool failed;
    bool cut; /* the failed read would have succeeded with a larger copy of the stack */
    /* What expressions have done in this walk: operations (expression.h), words for libunwind (foreign.h). */
    unsigned work;
};

/*
 * Limit of `work`. Each evaluation has one of its own, but a hostile program may ask for a long one for each register
 * of each frame. Real ones take a handful, in few frames.
 */
enum { VIEW_WORK_MAX = 1 << 18 };

/* As it was before, but for the work that was done. */
static inline void view_restore(struct view *view, const struct view *before)
{
    unsigned work = view->work;
    *view = *before;
    view->work = work;
}

/* Notes that the stack's bytes [avma, avma + size) are needed, if they are in a copied range or in what it lacks. */
void view_need(struct view *view, uint64_t avma, size_t size);

/* From the snapshot, else from the code of an image. false, with `failed` and `cut` set: neither has all of it. */
bool view_read(struct view *view, uint64_t avma, void *buffer, size_t size);

/* Notes that the first range's bytes up to `end_avma`, which it has, are needed. */
static inline void view_have(struct view *view, uint64_t end_avma)
{
    if (end_avma > view->top_avma)
        view->top_avma = end_avma;
}

/* The word that view_read gives, by the short way: nearly all are in the first copied range. */
static inline bool view_word(struct view *view, uint64_t avma, uint64_t *ret_word)
{
    const struct memory_range *stack = &view->snapshot->ranges[0];
    uint64_t start = avma - stack->avma;
    if (view->snapshot->range_count == 0 || avma < stack->avma || stack->size < sizeof(*ret_word) ||
        start > stack->size - sizeof(*ret_word))
        return view_read(view, avma, ret_word, sizeof(*ret_word));
    memcpy(ret_word, stack->bytes + start, sizeof(*ret_word));
    view_have(view, avma + sizeof(*ret_word));
    return true;
}

/* The same for a word that the walk can do without: leaves no trace in the view when it is not there. */
static inline bool view_try_word(struct view *view, uint64_t avma, uint64_t *ret_word)
{
    struct view before = *view;
    if (view_word(view, avma, ret_word))
        return true;
    *view = before;
    return false;
}

/*
 * Bytes of one executable region: from its image, else from the reader (anonymous memory, and files that are no ELF
 * image: JIT code may lie in a memfd).
 */
bool view_read_code(const struct view *view, const struct code_region *region, uint64_t avma, void *buffer,
                    size_t size);

#endif
