/* How costacks.c gets onto other stacks. */
#include "testasm.h"

        .text

/* start_on_stack(top, function): the outermost frame of a new stack, whose top word is the return address. */
FUNCTION(start_on_stack)
        CFI(undefined rip)
        mov %rdi, %rsp
        xor %ebp, %ebp
        call *%rsi
        hlt
END(start_on_stack)

/* run_on_stack(top, function): the same, but the frame lies on the stack it comes from. */
FUNCTION(run_on_stack)
        ENTER
        mov %rdi, %rsp
        call *%rsi
        mov %rbp, %rsp
        LEAVE
        ret
END(run_on_stack)

/* A call that is not made: decoy_fn + 5 looks like a return address. */
FUNCTION(decoy_fn)
        call decoy_target
        ret
END(decoy_fn)

FUNCTION(decoy_target)
        ret
END(decoy_target)

        .section .note.GNU-stack, "", @progbits
