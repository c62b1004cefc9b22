/*
 * Runs in the target, on a stack of its own, entered with all signals blocked but those of faults and SIGSETXID. Its
 * caller is nobody: the thread's registers, vector state and signal mask are in a signal frame in the data, written by
 * the sampler, and rt_sigreturn(2) puts all of them back at once. So the thread is either here with its signals blocked
 * or exactly where it was: no handler ever sees a state in between, and one may longjmp as it likes.
 */
#include "sampler/injectstub.h"

    .section .rodata
    .p2align 4
    .globl inject_stub
    .hidden inject_stub
    .globl inject_stub_end
    .hidden inject_stub_end
inject_stub:
    leaq inject_stub(%rip), %rbx
    addq $INJECT_DATA_OFF, %rbx
    /* What the ABI wants at a call: an empty x87 stack, exceptions masked. The thread's own state is in the frame. */
    fninit
    ldmxcsr INJECT_MXCSR(%rbx)
    xorl %ebp, %ebp
    /* The interrupted code may be about to read errno. */
    call *INJECT_ERRNO_LOCATION(%rbx)
    movq %rax, %r12
    movl (%rax), %r13d

    movl $INJECT_STEP_DLOPEN, INJECT_STEP(%rbx)
    leaq INJECT_PATH(%rbx), %rdi
    movl INJECT_DLOPEN_MODE(%rbx), %esi
    call *INJECT_DLOPEN(%rbx)
    testq %rax, %rax
    jz .Lfailed
    movl $INJECT_STEP_DLSYM, INJECT_STEP(%rbx)
    movq %rax, %rdi
    leaq INJECT_FUNCTION(%rbx), %rsi
    call *INJECT_DLSYM(%rbx)
    testq %rax, %rax
    jz .Lfailed
    movl $INJECT_STEP_CALL, INJECT_STEP(%rbx)
    movq INJECT_ARGUMENT(%rbx), %rdi
    call *%rax
    movq %rax, INJECT_VALUE(%rbx)
    movl $INJECT_STEP_SUCCESS, INJECT_STEP(%rbx)
    jmp .Lleave

.Lfailed:
    movq INJECT_DLERROR(%rbx), %rax
    testq %rax, %rax
    jz .Lleave
    call *%rax
    testq %rax, %rax
    jz .Lleave
    leaq INJECT_ERROR(%rbx), %rdi
    movl $(INJECT_ERROR_BYTES - 1), %ecx
.Lcopy:
    movb (%rax), %dl
    movb %dl, (%rdi)
    testb %dl, %dl
    jz .Lleave
    incq %rax
    incq %rdi
    decl %ecx
    jnz .Lcopy

.Lleave:
    movl %r13d, (%r12)
    /* From "done" on no handler may begin here: who sees it set, and the thread's pc outside, may unmap all this. */
    movl $14, %eax /* rt_sigprocmask */
    movl $2, %edi  /* SIG_SETMASK */
    leaq INJECT_ALL_SIGNALS(%rbx), %rsi
    xorl %edx, %edx
    movl $8, %r10d
    syscall
    movl $1, INJECT_DONE(%rbx)
    leaq INJECT_UCONTEXT(%rbx), %rsp
    movl $15, %eax /* rt_sigreturn */
    syscall
    ud2
inject_stub_end:

    .section .note.GNU-stack, "", @progbits
