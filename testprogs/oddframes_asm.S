/* The functions of oddframes.c that no compiler would make. */
#include "testasm.h"

        .text

/* A call that is not made, and what an address behind it looks like on a stack: decoy_fn + 5. */
FUNCTION(decoy_fn)
        call decoy_target
        nop
        ret
END(decoy_fn)

FUNCTION(decoy_target)
        ret
END(decoy_target)

/* All locals hold decoy_fn + 5, and one instruction looks like an epilogue's neighbour. Never returns. */
FUNCTION(decoy_locals)
        ENTER
        sub $0x100, %rsp
        lea decoy_fn + 5(%rip), %rax
        mov %rsp, %rdi
        mov $0x20, %ecx
        rep stosq
        mov %rsp, %rdx
        mov 0x58(%rdx), %rax
1:      jmp 1b
END(decoy_locals)

/* rbp is rdi while it spins esi turns. */
FUNCTION(rbp_abuser)
        push %rbp
        CFI(def_cfa_offset 16)
        CFI(offset rbp, -16)
        mov %rdi, %rbp
1:      dec %esi
        jnz 1b
        pop %rbp
        CFI(def_cfa_offset 8)
        CFI(restore rbp)
        ret
END(rbp_abuser)

/*
 * rsp is on an aligned buffer, rbp is untouched, and where rsp was stands only at rsp + 8 * r9 + 8: the CFA is
 * *(rsp + 8 * r9 + 8) + 8. r9 and rsp are the callee's to change, so they are known in an interrupted frame alone.
 */
FUNCTION(mont_asm)
        mov %rsp, %rax
        CFI(def_cfa_register rax)
        mov $12, %r9d
        sub $0x100, %rsp
        and $-64, %rsp
        mov %rax, 8(%rsp, %r9, 8)
        /* DW_CFA_def_cfa_expression: breg7 0, breg9 0, lit8, mul, plus, plus_uconst 8, deref, plus_uconst 8 */
        CFI(escape 0x0f, 12, 0x77, 0, 0x79, 0, 0x38, 0x1e, 0x22, 0x23, 8, 0x06, 0x23, 8)
        mov $-1, %rax
1:      dec %edi
        jnz 1b
        mov 8(%rsp, %r9, 8), %rsp
        CFI(def_cfa rsp, 8)
        ret
END(mont_asm)

/* A callback in the middle of C functions: with a frame pointer. */
FUNCTION(asm_with_frame)
        ENTER
        push %rbx
        CFI(offset rbx, -24)
        sub $8, %rsp
        call *%rdi
        add $8, %rsp
        pop %rbx
        LEAVE
        ret
END(asm_with_frame)

/* Without a frame pointer; rbp stays what its caller had. */
FUNCTION(asm_without_frame)
        sub $24, %rsp
        CFI(def_cfa_offset 32)
        call *%rdi
        add $24, %rsp
        CFI(def_cfa_offset 8)
        ret
END(asm_without_frame)

/* Calls itself edi - 1 times and spins in the innermost call; all return addresses are the same. Never returns. */
FUNCTION(asm_recursion)
        ENTER
        dec %edi
        jz 1f
        call asm_recursion
        jmp 2f
1:      jmp 1b
2:      LEAVE
        ret
END(asm_recursion)

/* Its last instruction is a call that does not return; asm_neighbour starts where it would return to. */
FUNCTION(ends_in_call)
        ENTER
        call abort_like
END(ends_in_call)

FUNCTION(asm_neighbour)
        ENTER
        nop
        LEAVE
        ret
END(asm_neighbour)

        .section .note.GNU-stack, "", @progbits
