/* Faults with all registers known, and a way back from them. */
    .text

/* int mark_set(struct mark *mark): 0, and what a handler puts into rax when it goes back to the mark. */
    .globl mark_set
    .type mark_set, @function
mark_set:
    movq (%rsp), %rax
    movq %rax, (%rdi)
    leaq 8(%rsp), %rax
    movq %rax, 8(%rdi)
    movq %rbp, 16(%rdi)
    movq %rbx, 24(%rdi)
    movq %r12, 32(%rdi)
    movq %r13, 40(%rdi)
    movq %r14, 48(%rdi)
    movq %r15, 56(%rdi)
    xorl %eax, %eax
    ret
    .size mark_set, . - mark_set

/* Puts a number of its own into each register but rsp and the one with the address, r11. */
    .macro fault name, instruction:vararg
    .globl \name
    .type \name, @function
\name:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rdi, %r11
    movq $0x1001, %rax
    movq $0x1002, %rbx
    movq $0x1003, %rcx
    movq $0x1004, %rdx
    movq $0x1005, %rsi
    movq $0x1006, %rdi
    movq $0x1007, %rbp
    movq $0x1008, %r8
    movq $0x1009, %r9
    movq $0x100a, %r10
    movq $0x100c, %r12
    movq $0x100d, %r13
    movq $0x100e, %r14
    movq $0x100f, %r15
    stc
    .globl \name\()_at
\name\()_at:
    \instruction
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size \name, . - \name
    .endm

    fault fault_load, movq (%r11), %r10
    fault fault_store, movq %r10, (%r11)
    fault fault_call, call *%r11

    .section .note.GNU-stack, "", @progbits
