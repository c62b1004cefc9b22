/*
 * unsigned injectee_spin(void): spins until injectee_stop is set, and looks all the time whether anything of the thread
 * is other than what it has put there: all registers, the vector and floating point state, the red zone, a flag.
 * Returns 0, or 1 when something was. injectee_turns counts the turns.
 */
    .data
    .p2align 6
    .globl injectee_stop
    .globl injectee_turns
    .globl injectee_has_avx
    .globl injectee_has_avx512
injectee_stop:       .quad 0
injectee_turns:      .quad 0
injectee_has_avx:    .quad 0
injectee_has_avx512: .quad 0
scratch:             .quad 0
mxcsr:               .long 0x7f80 /* rounds to zero */
control:             .word 0x0f7f /* so does this */
    .p2align 6
general: /* what the general registers have, but for rsp */
    .set number, 0
    .rept 15
    .quad 0x0123456789abcdef + 0x1111111111111 * number
    .set number, number + 1
    .endr
    .p2align 6
vectors: /* what vector register n has begins at byte 8 * n */
    .set number, 0
    .rept 64
    .quad 0x5a5a5a5aa5a5a5a5 + 0x0101010101010101 * number
    .set number, number + 1
    .endr

    .macro for_general what
    \what rax, 0
    \what rbx, 1
    \what rcx, 2
    \what rdx, 3
    \what rsi, 4
    \what rdi, 5
    \what rbp, 6
    \what r8, 7
    \what r9, 8
    \what r10, 9
    \what r11, 10
    \what r12, 11
    \what r13, 12
    \what r14, 13
    \what r15, 14
    .endm
    .macro load_general register, index
    movq general + 8 * \index(%rip), %\register
    .endm
    .macro check_general register, index
    cmpq general + 8 * \index(%rip), %\register
    jne .Lbad
    .endm
    .macro save register
    pushq %\register
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset \register, 0
    .endm
    .macro restore register
    popq %\register
    .cfi_adjust_cfa_offset -8
    .cfi_restore \register
    .endm

    .text
    .globl injectee_spin
    .type injectee_spin, @function
injectee_spin:
    .cfi_startproc
    .irp register, rbp, rbx, r12, r13, r14, r15
    save \register
    .endr
    .set number, 1
    .rept 16
    movq $(0x1234567 + number), -8 * number(%rsp)
    .set number, number + 1
    .endr
    fninit
    fldcw control(%rip)
    fldpi
    ldmxcsr mxcsr(%rip)
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    movups vectors + 8 * \number(%rip), %xmm\number
    .endr
    cmpq $0, injectee_has_avx(%rip)
    je .Lno_avx
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    vmovups vectors + 8 * \number(%rip), %ymm\number
    .endr
    cmpq $0, injectee_has_avx512(%rip)
    je .Lno_avx
    kmovw general(%rip), %k1
    vmovups vectors(%rip), %zmm16
    vmovups vectors + 64(%rip), %zmm31
.Lno_avx:
    for_general load_general

.Lturn:
    incq injectee_turns(%rip)
    for_general check_general
    .set number, 1
    .rept 16
    cmpq $(0x1234567 + number), -8 * number(%rsp)
    jne .Lbad
    .set number, number + 1
    .endr
    stmxcsr scratch(%rip)
    cmpl $0x7f80, scratch(%rip)
    jne .Lbad
    fnstcw scratch(%rip)
    cmpw $0x0f7f, scratch(%rip)
    jne .Lbad
    fstl scratch(%rip)
    cmpl $0x54442d18, scratch(%rip)
    jne .Lbad
    cmpl $0x400921fb, scratch + 4(%rip)
    jne .Lbad
    stc
    .rept 40
    nop
    .endr
    jnc .Lbad
    cmpq $0, injectee_has_avx(%rip)
    je .Lno_avx_turn
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    vxorps vectors + 8 * \number(%rip), %ymm\number, %ymm15
    vptest %ymm15, %ymm15
    jne .Lbad
    .endr
    cmpq $0, injectee_has_avx512(%rip)
    je .Lno_avx_turn
    kmovw %k1, scratch(%rip)
    cmpw $0xcdef, scratch(%rip)
    jne .Lbad
    vpcmpeqd vectors(%rip), %zmm16, %k2
    kmovw %k2, scratch(%rip)
    cmpw $-1, scratch(%rip)
    jne .Lbad
    vpcmpeqd vectors + 64(%rip), %zmm31, %k2
    kmovw %k2, scratch(%rip)
    cmpw $-1, scratch(%rip)
    jne .Lbad
.Lno_avx_turn:
    cmpq $0, injectee_stop(%rip)
    je .Lturn
    xorl %eax, %eax
    jmp .Lend
.Lbad:
    movl $1, %eax
.Lend:
    cmpq $0, injectee_has_avx(%rip)
    je .Lout
    vzeroupper
.Lout:
    fninit
    movl $0x1f80, scratch(%rip)
    ldmxcsr scratch(%rip)
    cld
    .irp register, r15, r14, r13, r12, rbx, rbp
    restore \register
    .endr
    ret
    .cfi_endproc
    .size injectee_spin, . - injectee_spin
    .section .note.GNU-stack, "", @progbits
