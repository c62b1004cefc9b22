/* The functions of edges.c that every instruction of matters in. */
#include "testasm.h"

        .text

/* sit_…: spin edi turns in one state of the frame, all functions with the same instructions before and after. */

FUNCTION(sit_at_entry)
1:      dec %edi
        jnz 1b
        ENTER
        LEAVE
        ret
END(sit_at_entry)

FUNCTION(sit_after_push)
        push %rbp
        CFI(def_cfa_offset 16)
        CFI(offset rbp, -16)
1:      dec %edi
        jnz 1b
        mov %rsp, %rbp
        CFI(def_cfa_register rbp)
        LEAVE
        ret
END(sit_after_push)

FUNCTION(sit_after_mov)
        ENTER
1:      dec %edi
        jnz 1b
        LEAVE
        ret
END(sit_after_mov)

FUNCTION(sit_in_body)
        ENTER
        sub $64, %rsp
1:      dec %edi
        jnz 1b
        leave
        CFI(def_cfa rsp, 8)
        ret
END(sit_in_body)

FUNCTION(sit_after_pop)
        ENTER
        LEAVE
1:      dec %edi
        jnz 1b
        ret
END(sit_after_pop)

FUNCTION(sit_after_leave)
        ENTER
        sub $64, %rsp
        leave
        CFI(def_cfa rsp, 8)
1:      dec %edi
        jnz 1b
        ret
END(sit_after_leave)

/* tiny_…: so few instructions that samples of many calls fall on each. */

FUNCTION(tiny_plain)
        ENTER
        mov %edi, %eax
        LEAVE
        ret
END(tiny_plain)

/* As the other encoding of the same mov. */
FUNCTION(tiny_other_mov)
        push %rbp
        CFI(def_cfa_offset 16)
        CFI(offset rbp, -16)
        .byte 0x48, 0x8b, 0xec
        CFI(def_cfa_register rbp)
        mov %edi, %eax
        LEAVE
        ret
END(tiny_other_mov)

FUNCTION(tiny_endbr)
        endbr64
        ENTER
        mov %edi, %eax
        LEAVE
        ret
END(tiny_endbr)

FUNCTION(tiny_leave)
        ENTER
        sub $32, %rsp
        mov %edi, -8(%rbp)
        mov -8(%rbp), %eax
        leave
        CFI(def_cfa rsp, 8)
        ret
END(tiny_leave)

FUNCTION(tiny_saved)
        ENTER
        push %rbx
        CFI(offset rbx, -24)
        mov %edi, %ebx
        mov %ebx, %eax
        pop %rbx
        LEAVE
        ret
END(tiny_saved)

FUNCTION(tiny_repz_ret)
        ENTER
        mov %edi, %eax
        LEAVE
        repz ret
END(tiny_repz_ret)

/* Two ends: the first is left by a branch over the rest. */
FUNCTION(tiny_two_ends)
        ENTER
        mov %edi, %eax
        test $1, %sil
        jz 1f
        CFI(remember_state)
        LEAVE
        ret
1:      CFI(restore_state)
        lea 1(%rax), %eax
        LEAVE
        ret
END(tiny_two_ends)

FUNCTION(tiny_tail)
        ENTER
        mov %edi, %eax
        LEAVE
        jmp tail_target
END(tiny_tail)

FUNCTION(tail_target)
        ENTER
        mov %edi, %eax
        LEAVE
        ret
END(tail_target)

/* Without a frame of its own. */
FUNCTION(tiny_frameless)
        mov %edi, %eax
        lea 1(%rax), %eax
        add %esi, %eax
        xor %edi, %eax
        ret
END(tiny_frameless)

        .section .note.GNU-stack, "", @progbits
