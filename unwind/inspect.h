/*
 * Where the return address is, from the instruction that is about to run: for code without unwind information, at the
 * places in which a frame pointer tells of the caller's caller, since it is not set yet or is restored already.
 *
 * patterns.h has the list.
 *
 * Only instructions that mean this wherever they stand, at the pc itself, which is the start of an instruction for
 * certain. A jump in general, and what stands before the pc, prove nothing (a pop may be the end of another
 * instruction). Encodings: Intel SDM volume 2.
 */
#ifndef UNWIND_INSPECT_H
#define UNWIND_INSPECT_H

#include "unwind/callsite.h"
#include "unwind/patterns.h"
#include "unwind/view.h"

/* For an exact frame at `pc_avma` in `region`. false: an instruction that says nothing. */
bool inspect_find(const struct view *view, const struct code_region *region, uint64_t pc_avma, struct inspection *ret);

/*
 * The two ways to write the code that a signal handler returns to, which calls rt_sigreturn; musl, Go and others have
 * no unwind information for it. At its instructions the stack pointer points at the kernel's struct ucontext.
 */
bool inspect_is_sigreturn(const struct view *view, const struct code_region *region, uint64_t pc_avma);

/*
 * Code without unwind information that a thread's first function returns to: soon the system call exit, as in musl's
 * clone; or Go's goexit, whose return address is made up to be one byte into  nop; call goexit1; nop.
 */
bool inspect_is_thread_end(const struct view *view, const struct code_region *region, uint64_t return_avma);

#endif
