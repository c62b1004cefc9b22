/*
 * syscall(3) of the program: notes a seccomp filter that is to come (confine.c) and goes on to the C library's function
 * with stack and registers as they were, so that calls which return twice or on another stack work as ever.
 */
#include <sys/syscall.h>

        .text
        .globl syscall
        .type syscall, @function
syscall:
        .cfi_startproc
        endbr64
        cmp $SYS_seccomp, %rdi
        je 1f
2:      mov confine_real_syscall(%rip), %r11
        test %r11, %r11
        jz 3f
        jmp *%r11
1:      cmp $1, %rsi            /* SECCOMP_SET_MODE_STRICT, _FILTER */
        ja 2b
        push %rdi
        .cfi_adjust_cfa_offset 8
        push %rsi
        .cfi_adjust_cfa_offset 8
        push %rdx
        .cfi_adjust_cfa_offset 8
        push %rcx
        .cfi_adjust_cfa_offset 8
        push %r8
        .cfi_adjust_cfa_offset 8
        push %r9
        .cfi_adjust_cfa_offset 8
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
        call confine_note
        add $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop %r9
        .cfi_adjust_cfa_offset -8
        pop %r8
        .cfi_adjust_cfa_offset -8
        pop %rcx
        .cfi_adjust_cfa_offset -8
        pop %rdx
        .cfi_adjust_cfa_offset -8
        pop %rsi
        .cfi_adjust_cfa_offset -8
        pop %rdi
        .cfi_adjust_cfa_offset -8
        jmp 2b
3:      /* Before our constructor, by another library's: as the C library does it. */
        mov %rdi, %rax
        mov %rsi, %rdi
        mov %rdx, %rsi
        mov %rcx, %rdx
        mov %r8, %r10
        mov %r9, %r8
        mov 8(%rsp), %r9
        syscall
        cmp $-4095, %rax
        jae 4f
        ret
4:      neg %eax
        push %rax
        .cfi_adjust_cfa_offset 8
        call __errno_location@PLT
        pop %rcx
        .cfi_adjust_cfa_offset -8
        mov %ecx, (%rax)
        mov $-1, %rax
        ret
        .cfi_endproc
        .size syscall, . - syscall

        .section .note.GNU-stack, "", @progbits
