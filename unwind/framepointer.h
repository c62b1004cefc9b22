/*
 * One step by the frame pointer: [rbp] is the caller's rbp, [rbp + 8] the return address. rbp is an ordinary register
 * to most code, so the record is believed only if everything about it fits; see framepointer_step.
 */
#ifndef UNWIND_FRAMEPOINTER_H
#define UNWIND_FRAMEPOINTER_H

#include "unwind/callsite.h"
#include "unwind/view.h"

enum framepointer_answer {
    FRAMEPOINTER_STEPPED,
    FRAMEPOINTER_OUTERMOST, /* two zero words mark the outermost frame, where a chain led to them */
    FRAMEPOINTER_NOT_BELIEVED,
    FRAMEPOINTER_CUT /* the record lies in the stack's mapping, above the copied bytes */
};

/*
 * The record must be 8-aligned, not below the stack pointer, wholly within the stack that holds the stack pointer, and
 * its return address must be one (framepointer_is_return, or into HotSpot's interpreter with a frame of its shape). A
 * zero rbp says nothing: most code uses it for what it wants. `is_first`: no such record has led to this one. On
 * FRAMEPOINTER_STEPPED *ret_registers has rsp, rbp and pc of the caller and no other register; otherwise it is
 * untouched.
 */
enum framepointer_answer framepointer_step(struct view *view, struct callsites callsites,
                                           const struct registers *registers, bool is_first,
                                           struct registers *ret_registers);

/*
 * The check of a return address alone: it lies in executable memory whose bytes can be read, behind a call; or it is
 * where a signal handler or a thread's first function returns to, which nothing has called (inspect.h).
 */
bool framepointer_is_return(const struct view *view, struct callsites callsites, uint64_t return_avma);

#endif
