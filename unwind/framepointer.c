#include "unwind/framepointer.h"

#include "unwind/inspect.h"

enum { RECORD_BYTES = 16 };

bool framepointer_is_return(const struct view *view, struct callsites callsites, uint64_t return_avma)
{
    if (return_avma == 0)
        return false;
    const struct code_region *region = codemap_find(view->map, frame_lookup_avma(return_avma, false));
    if (!region)
        return false;
    switch (callsites_find(callsites, view, region, return_avma)) {
    case CALLSITE_CALL:
        return true;
    case CALLSITE_OTHER:
        return inspect_is_sigreturn(view, region, return_avma) || inspect_is_thread_end(view, region, return_avma);
    case CALLSITE_UNREADABLE:
        break;
    }
    return false;
}

/* The copied bytes that hold the stack pointer. Also an alternate signal stack has its own. */
static const struct memory_range *stack_range(const struct snapshot *snapshot, uint64_t sp_avma)
{
    for (size_t i = 0; i < snapshot->range_count; i++) {
        const struct memory_range *range = &snapshot->ranges[i];
        /* One past the end is still this stack: everything copied was popped. */
        if (sp_avma >= range->avma && sp_avma - range->avma <= range->size)
            return range;
    }
    return NULL;
}

static bool mapping_holds(const struct snapshot *snapshot, uint64_t avma, uint64_t size)
{
    return avma >= snapshot->stack_start_avma && avma < snapshot->stack_end_avma &&
           size <= snapshot->stack_end_avma - avma;
}

enum record_place { RECORD_COPIED, RECORD_CUT, RECORD_ELSEWHERE };

static enum record_place record_place(const struct snapshot *snapshot, uint64_t sp_avma, uint64_t record_avma)
{
    bool mapping_known = mapping_holds(snapshot, sp_avma, 1);
    if (mapping_known && !mapping_holds(snapshot, record_avma, RECORD_BYTES))
        return RECORD_ELSEWHERE;
    const struct memory_range *range = stack_range(snapshot, sp_avma);
    if (range && record_avma >= range->avma && record_avma - range->avma <= range->size &&
        RECORD_BYTES <= range->size - (record_avma - range->avma))
        return RECORD_COPIED;
    size_t cut = snapshot_cut_range(snapshot, record_avma + RECORD_BYTES - 1);
    if (cut != SNAPSHOT_RANGES && (mapping_known || range == &snapshot->ranges[cut]))
        return RECORD_CUT;
    return RECORD_ELSEWHERE;
}

/*
 * HotSpot's interpreter enters methods by jumps, with return addresses of its own making: no call stands before them.
 * But its frames have a shape (frame_x86.hpp of OpenJDK 8 to 21): right below the saved rbp lie the stack pointer that
 * its caller had, and the one that it had itself when it entered the method above which we are: between that one's
 * frame and the fixed part of its own.
 */
static enum record_place interpreter_place(const struct view *view, uint64_t rbp, const uint64_t *record)
{
    enum { LAST_SP, SENDER_SP, SHAPE_WORDS, FIXED_WORDS = 8 };
    const struct code_region *region = codemap_find(view->map, frame_lookup_avma(record[1], false));
    uint64_t caller_rbp = record[0];
    uint64_t shape[SHAPE_WORDS];
    if (!region || region->image || caller_rbp % 8 != 0 || caller_rbp <= rbp + RECORD_BYTES)
        return RECORD_ELSEWHERE;
    enum record_place place = record_place(view->snapshot, rbp, caller_rbp);
    if (place != RECORD_COPIED)
        return place;
    if (!snapshot_read(view->snapshot, caller_rbp - sizeof(shape), shape, sizeof(shape)) ||
        (shape[LAST_SP] | shape[SENDER_SP]) % 8 != 0)
        return RECORD_ELSEWHERE;
    bool fits = shape[LAST_SP] >= rbp + RECORD_BYTES && shape[LAST_SP] <= caller_rbp - FIXED_WORDS * sizeof(uint64_t) &&
                shape[SENDER_SP] >= caller_rbp + RECORD_BYTES &&
                record_place(view->snapshot, rbp, shape[SENDER_SP]) != RECORD_ELSEWHERE;
    return fits ? RECORD_COPIED : RECORD_ELSEWHERE;
}

enum framepointer_answer framepointer_step(struct view *view, struct callsites callsites,
                                           const struct registers *registers, bool is_first,
                                           struct registers *ret_registers)
{
    if (!registers_known(registers, REGISTER_RBP))
        return FRAMEPOINTER_NOT_BELIEVED;
    uint64_t rbp = registers->value[REGISTER_RBP];
    uint64_t sp = registers->value[REGISTER_RSP];
    if (rbp % 8 != 0 || rbp < sp)
        return FRAMEPOINTER_NOT_BELIEVED;

    enum record_place place = record_place(view->snapshot, sp, rbp);
    if (place == RECORD_CUT) {
        view_need(view, rbp, RECORD_BYTES);
        return FRAMEPOINTER_CUT;
    }
    uint64_t record[2];
    if (place == RECORD_ELSEWHERE || !snapshot_read(view->snapshot, rbp, record, sizeof(record)))
        return FRAMEPOINTER_NOT_BELIEVED;
    /* Two zero words are common in any stack: the mark of the outermost frame counts only where a chain led to it. */
    bool outermost = record[0] == 0 && record[1] == 0 && !is_first;
    if (!outermost && !framepointer_is_return(view, callsites, record[1])) {
        place = interpreter_place(view, rbp, record);
        if (place == RECORD_CUT)
            view_need(view, record[0], RECORD_BYTES);
        if (place != RECORD_COPIED)
            return place == RECORD_CUT ? FRAMEPOINTER_CUT : FRAMEPOINTER_NOT_BELIEVED;
    }
    view_need(view, rbp, RECORD_BYTES);
    if (outermost)
        return FRAMEPOINTER_OUTERMOST;

    struct registers caller = {.known = 1U << REGISTER_RSP | 1U << REGISTER_RBP | 1U << REGISTER_PC};
    caller.value[REGISTER_RBP] = record[0];
    caller.value[REGISTER_RSP] = rbp + RECORD_BYTES;
    caller.value[REGISTER_PC] = record[1];
    *ret_registers = caller;
    return FRAMEPOINTER_STEPPED;
}
