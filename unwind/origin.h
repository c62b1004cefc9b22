/*
 * Where stacks begin though no unwind information says so: code that its author left without any, because there the
 * caller changes from one instruction to the next.
 *
 * - The entry point of a program or dynamic linker: at its first instruction the stack pointer points at argc, not at a
 * return address, whatever CFI says of it; and the dynamic linker's start code has no CFI. The kernel starts a program
 * with rbp 0. (Old linkers gave shared libraries an entry point too, at some function; that one has a caller.)
 * - What a thread's first function returns to, in libraries that leave it without CFI (inspect.h).
 * - The system call of a clone wrapper. glibc ends the CFI of clone and clone3 before it, since behind it there are two
 * threads: the child, with an empty stack, and the parent, with its return address at the stack pointer. The sequence
 * (sysdeps/unix/sysv/linux/x86_64) is   syscall; test %rax,%rax; jl error; je child; ret.   New threads often wait
 * there for their first turn on a CPU.
 */
#ifndef UNWIND_ORIGIN_H
#define UNWIND_ORIGIN_H

#include "unwind/framepointer.h"
#include "unwind/view.h"

enum origin {
    ORIGIN_NONE,        /* nothing of that kind: the ordinary rules decide */
    ORIGIN_OUTERMOST,   /* no caller */
    ORIGIN_ENTRY,       /* no caller, unless the word at the stack pointer is a return address */
    ORIGIN_RETURN_AT_SP /* the return address is the word at the stack pointer */
};

/* For a frame at `lookup_avma` in `region`; `has_rule`: CFI covers it. */
enum origin origin_find(const struct view *view, const struct code_region *region, const struct registers *registers,
                        uint64_t lookup_avma, bool exact, bool has_rule);

/*
 * A frame without unwind information and with rbp 0, as the kernel and clone start threads: rbp was never set, so it
 * says nothing of where the return address is. If the stack's beginning is near, that is one of the next words: a
 * return address into the code at an entry point, or into what a thread's first function returns to. Any other return
 * address before it may be a caller's, which a stack that looks whole would then lack: false. On true *ret_words says
 * which word it is (from the stack pointer).
 */
bool origin_is_near(struct view *view, struct callsites callsites, const struct registers *registers,
                    unsigned *ret_words);

#endif
