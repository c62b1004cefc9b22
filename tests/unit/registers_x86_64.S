/* Are all registers the same around something? */
    .text

    .macro put register, number
    movq $\number, %\register
    .endm

    .macro put_vectors
    movq $0x123456789abcdef, %rax
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    addq $0x1111, %rax
    movq %rax, %xmm\n
    pslldq $4, %xmm\n
    .endr
    fninit
    fldcw odd_control(%rip)
    ldmxcsr odd_mxcsr(%rip)
    fldpi
    fldl2e
    .endm

    /* Into the struct registers at `to`: what a call keeps, with the vector registers and the x87 state. */
    .macro keep_preserved to
    fxsave64 (%\to)
    movq %rbx, 512(%\to)
    movq %rbp, 520(%\to)
    movq %r12, 528(%\to)
    movq %r13, 536(%\to)
    movq %r14, 544(%\to)
    movq %r15, 552(%\to)
    .endm

    .macro begin
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $24, %rsp
    stmxcsr 16(%rsp)
    fnstcw 20(%rsp)
    .endm

    .macro end
    fninit
    fldcw 20(%rsp)
    ldmxcsr 16(%rsp)
    addq $24, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .endm

    .section .rodata
    .balign 4
odd_mxcsr: .long 0x7fa1      /* rounding to zero, some flags set */
odd_control: .word 0x0e7f    /* 64 bits, upwards */
    .text

/*
 * void registers_around_call(bool (*call)(uint64_t avma, uint64_t *ret_value), uint64_t avma, struct registers *before,
 * struct registers *after): of what a call keeps, and the vector registers and the x87 state.
 */
    .globl registers_around_call
    .type registers_around_call, @function
registers_around_call:
    begin
    movq %rdx, (%rsp)
    movq %rcx, 8(%rsp)
    movq %rdi, %rbx
    put_vectors
    put r12, 0x100c
    put r13, 0x100d
    put r14, 0x100e
    put r15, 0x100f
    put rbp, 0x1007
    movq (%rsp), %rdx
    keep_preserved rdx
    movq %rsi, %rdi
    subq $16, %rsp
    movq %rsp, %rsi
    call *%rbx
    addq $16, %rsp
    movq 8(%rsp), %rdx
    keep_preserved rdx
    end
    .size registers_around_call, . - registers_around_call

/* void registers_around_signal(pid, tid, signal, struct registers *before, struct registers *after): of all but what a
 * system call changes, around tgkill(2) of oneself. */
    .globl registers_around_signal
    .type registers_around_signal, @function
registers_around_signal:
    begin
    movq %rcx, (%rsp)
    movq %r8, 8(%rsp)
    put_vectors
    put rbx, 0x1002
    put rbp, 0x1007
    put r8, 0x1008
    put r9, 0x1009
    put r10, 0x100a
    put r12, 0x100c
    put r13, 0x100d
    put r14, 0x100e
    put r15, 0x100f
    movq (%rsp), %rax
    call keep_all
    movl $234, %eax
    syscall
    movq 8(%rsp), %rax
    call keep_all
    end
    .size registers_around_signal, . - registers_around_signal

keep_all:
    keep_preserved rax
    movq %r8, 560(%rax)
    movq %r9, 568(%rax)
    movq %r10, 576(%rax)
    movq %rdi, 584(%rax)
    movq %rsi, 592(%rax)
    movq %rdx, 600(%rax)
    ret

    .section .note.GNU-stack, "", @progbits
