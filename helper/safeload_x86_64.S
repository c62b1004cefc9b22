/*
 * The load and the copy that may fault. A fault at safeload_load_at or safeload_copy_at goes on at the label …_failed.
 */
    .text

/* bool safeload_load(uint64_t avma, uint64_t *ret_value) */
    .balign 16
    .globl safeload_load
    .hidden safeload_load
    .type safeload_load, @function
safeload_load:
    .cfi_startproc
    endbr64
    .globl safeload_load_at
    .hidden safeload_load_at
safeload_load_at:
    movq (%rdi), %rax
    movq %rax, (%rsi)
    movl $1, %eax
    ret
    .globl safeload_load_failed
    .hidden safeload_load_failed
safeload_load_failed:
    xorl %eax, %eax
    ret
    .cfi_endproc
    .size safeload_load, . - safeload_load

/* size_t safeload_copy(void *buffer, uint64_t avma, size_t size): how many bytes are missing. A fault leaves in rcx
 * what is still to be done. */
    .balign 16
    .globl safeload_copy
    .hidden safeload_copy
    .type safeload_copy, @function
safeload_copy:
    .cfi_startproc
    endbr64
    movq %rdx, %rcx
    .globl safeload_copy_at
    .hidden safeload_copy_at
safeload_copy_at:
    rep movsb
    .globl safeload_copy_failed
    .hidden safeload_copy_failed
safeload_copy_failed:
    movq %rcx, %rax
    ret
    .cfi_endproc
    .size safeload_copy, . - safeload_copy

    .section .note.GNU-stack, "", @progbits
