/* The functions of altstacks.c and restorer.c that signals hit at their edges. */
#include "testasm.h"

        .text

FUNCTION(before_trap_first)
        ret
END(before_trap_first)

/* SIGILL at the first instruction, right behind another function. */
FUNCTION(trap_first)
        ud2
        ENTER
        LEAVE
        ret
END(trap_first)

/* SIGILL between push and mov. */
FUNCTION(trap_after_push)
        push %rbp
        CFI(def_cfa_offset 16)
        CFI(offset rbp, -16)
        ud2
        mov %rsp, %rbp
        CFI(def_cfa_register rbp)
        LEAVE
        ret
END(trap_after_push)

/* SIGILL at the last instruction, right before another function. */
FUNCTION(trap_last)
        ENTER
        LEAVE
        ud2
END(trap_last)

FUNCTION(behind_trap_last)
        ret
END(behind_trap_last)

/* A call that does not return is the last instruction; what it calls traps at once. */
FUNCTION(trap_call)
        ENTER
        call trap_first
END(trap_call)

FUNCTION(behind_trap_call)
        ret
END(behind_trap_call)

/* SIGSEGV, for a signal inside the handler of another. */
FUNCTION(trap_again)
        ENTER
        hlt
        LEAVE
        ret
END(trap_again)

/*
 * What a handler returns to, as other C libraries than glibc have it: no unwind information, and the address before its
 * first instruction belongs to another function.
 */
#define BARE(name) .globl name; .type name, @function; name:
#define BARE_END(name) .size name, . - name

BARE(before_restorer)
        ret
BARE_END(before_restorer)

BARE(restorer_eax)
        mov $15, %eax
        syscall
BARE_END(restorer_eax)

BARE(between_restorers)
        ret
BARE_END(between_restorers)

BARE(restorer_rax)
        mov $15, %rax
        syscall
BARE_END(restorer_rax)

/* As Go has it: with the unwind information of a function that is called. */
FUNCTION(before_restorer_cfi)
        ret
END(before_restorer_cfi)

FUNCTION(restorer_cfi)
        mov $15, %rax
        syscall
END(restorer_cfi)

        .section .note.GNU-stack, "", @progbits
