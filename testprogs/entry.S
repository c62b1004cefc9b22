/*
 * Spins at its very first instruction, where the stack has no return address and CFI does not say so yet. Prints
 * nothing; it is killed.
 */
#include "testasm.h"

        .text
FUNCTION(_start)
        jmp _start
        CFI(undefined rip)
        xor %ebp, %ebp
        hlt
END(_start)

        .section .note.GNU-stack, "", @progbits
