/*
 * Where the return address is, from the instruction that is about to run: for code without unwind information, at the
 * places in which a frame pointer tells of the caller's caller, since it is not set yet or is restored already.
 *
 *   entry         [endbr64] push %rbp           return address at the stack pointer
 *   behind push   mov %rsp,%rbp                 one word above it; rbp is the caller's
 *   before ret    pop %rbp; ret                 one word above it, the caller's rbp at the stack pointer
 *   at ret        ret                           at the stack pointer
 *   HotSpot       mov %eax,-n(%rsp); push %rbp  entry of a compiled method, which touches the stack first
 *                 cmp n(%r15),%rsp; ja; ret     its end, where it asks whether to stop; also behind pop %rbp, and at ja
 *   PLT           jmp *slot(%rip)               at the stack pointer; also a tail call through a pointer
 *                 push $index; jmp PLT0         at the stack pointer; one word above it
 *                 PLT0: push; jmp *slot(%rip)   one and two words above it
 *
 * Only instructions that mean this wherever they stand, at the pc itself, which is the start of an instruction for
 * certain. A jump in general, and what stands before the pc, prove nothing (a pop may be the end of another
 * instruction). Encodings: Intel SDM volume 2.
 */
#ifndef UNWIND_INSPECT_H
#define UNWIND_INSPECT_H

#include "unwind/callsite.h"
#include "unwind/view.h"

struct inspection {
    unsigned return_words; /* the return address lies so many words above the stack pointer */
    bool rbp_at_sp;        /* the caller's rbp is the word at the stack pointer; else it is in rbp */
};

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
