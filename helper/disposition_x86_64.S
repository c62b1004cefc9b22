/*
 * Where the kernel enters for owned signals, and where handlers return to.
 */
#include "helper/disposition_entries.h"

    .text

/*
 * One entry point for each record, which it names in ecx. What the kernel put into rdi, rsi and rdx is kept for the
 * program's handler, which is jumped to with the stack pointer as the kernel left it: it returns to the restorer. None:
 * return there at once.
 */
    .balign DISPOSITION_ENTRY_BYTES
    .globl disposition_entries
    .hidden disposition_entries
    .type disposition_entries, @function
disposition_entries:
    .cfi_startproc
    .set entry, 0
    .rept DISPOSITION_OWNED_MAX * DISPOSITION_RECORDS
    .balign DISPOSITION_ENTRY_BYTES
    endbr64
    movl $entry, %ecx
    jmp disposition_entered
    .set entry, entry + 1
    .endr
    .balign DISPOSITION_ENTRY_BYTES
    .cfi_endproc
    .size disposition_entries, . - disposition_entries

    .type disposition_entered, @function
disposition_entered:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    call disposition_dispatch
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jz 1f
    movq %rax, %r11
    xorl %eax, %eax
    jmp *%r11
1:  ret
    .cfi_endproc
    .size disposition_entered, . - disposition_entered

/*
 * Two restorers, the same code: one where the C library's is not known, one that says that a mask has the guard's
 * signal in it. Unwinders know such a place by these very bytes, if nothing else describes it or the byte before it.
 */
    .macro restorer name
    .balign 16
    nop
    .balign 16
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    .byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00 /* movq $15 (rt_sigreturn), %rax */
    syscall
    .size \name, . - \name
    .endm

    restorer disposition_restorer
    restorer disposition_guard_restorer

    .section .note.GNU-stack, "", @progbits
