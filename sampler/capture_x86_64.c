#include "sampler/capture_arch.h"

#include "common/fileio.h"
#include "sampler/procfs.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

/* 64-bit code has this segment, on every x86-64 Linux. */
enum { USER_CS = 0x33 };

static struct registers convert(const struct user_regs_struct *regs)
{
    return (struct registers){
        .value =
            {
                [REGISTER_RAX] = regs->rax,
                [REGISTER_RDX] = regs->rdx,
                [REGISTER_RCX] = regs->rcx,
                [REGISTER_RBX] = regs->rbx,
                [REGISTER_RSI] = regs->rsi,
                [REGISTER_RDI] = regs->rdi,
                [REGISTER_RBP] = regs->rbp,
                [REGISTER_RSP] = regs->rsp,
                [REGISTER_R8] = regs->r8,
                [REGISTER_R9] = regs->r9,
                [REGISTER_R10] = regs->r10,
                [REGISTER_R11] = regs->r11,
                [REGISTER_R12] = regs->r12,
                [REGISTER_R13] = regs->r13,
                [REGISTER_R14] = regs->r14,
                [REGISTER_R15] = regs->r15,
                [REGISTER_PC] = regs->rip,
            },
        .known = REGISTERS_ALL,
    };
}

/* What a call that was to wait answers to a stop: -EINTR, or one of the kernel's own (its include/linux/errno.h), which
 * only tracers see. */
static bool is_interrupted_wait(const struct user_regs_struct *regs)
{
    enum { ERESTARTSYS = 512, ERESTARTNOINTR = 513, ERESTARTNOHAND = 514 };
    int64_t result = (int64_t)regs->rax;
    return (int64_t)regs->orig_rax >= 0 && (result == -EINTR || result == -ERESTARTSYS || result == -ERESTARTNOINTR ||
                                            result == -ERESTARTNOHAND || result == -ERESTART_RESTARTBLOCK);
}

static int read_registers(pid_t tid, struct registers *ret, bool *ret_in_wait)
{
    struct user_regs_struct regs;
    struct iovec buffer = {.iov_base = &regs, .iov_len = sizeof(regs)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &buffer) < 0)
        return -errno;
    /* A thread in 32-bit code has 17 registers of 4 bytes. */
    if (buffer.iov_len != sizeof(regs))
        return -ENOEXEC;
    *ret = convert(&regs);
    *ret_in_wait = is_interrupted_wait(&regs);
    return 0;
}

static bool registers_at_entry(const unsigned long long *words, struct registers *ret)
{
    struct user_regs_struct regs = {0};
    memcpy(&regs, words, offsetof(struct user_regs_struct, fs_base));
    if (regs.cs != USER_CS)
        return false;
    *ret = convert(&regs);
    ret->known &= ~(1U << REGISTER_RAX); /* the number of the call, or its result so far */
    return true;
}

/*
 * struct ucontext (asm/ucontext.h, asm/sigcontext.h), in words: flags, link (0), the signal stack's address, flags and
 * size, then the registers.
 */
enum {
    UCONTEXT_LINK = 1,
    UCONTEXT_STACK = 2,
    UCONTEXT_STACK_BYTES = 4,
    UCONTEXT_RSP = 20,
    UCONTEXT_CS_GS_FS_SS = 23,
    UCONTEXT_WORDS = 24,
    LOOK_BYTES = 64 << 10,
    RED_ZONE_BYTES = 128 /* System V ABI, AMD64 supplement, 3.2.2: below the stack pointer, the function's */
};

static bool find_interrupted(const uint8_t *bytes, size_t size, uint64_t avma, uint64_t *ret_sp_at_avma,
                             uint64_t *ret_stack_end_avma)
{
    size_t first = (size_t)(-avma & 7U);
    if (size > LOOK_BYTES)
        size = LOOK_BYTES;
    for (size_t off = first; off + UCONTEXT_WORDS * sizeof(uint64_t) <= size; off += sizeof(uint64_t)) {
        uint64_t word[UCONTEXT_WORDS];
        memcpy(&word[UCONTEXT_CS_GS_FS_SS], bytes + off + UCONTEXT_CS_GS_FS_SS * sizeof(uint64_t), sizeof(uint64_t));
        if ((word[UCONTEXT_CS_GS_FS_SS] & 0xffffU) != USER_CS)
            continue;
        memcpy(word, bytes + off, sizeof(word));
        uint64_t place = avma + off;
        uint64_t start = word[UCONTEXT_STACK];
        uint64_t stack_bytes = word[UCONTEXT_STACK_BYTES];
        /* It lies on the signal stack that it tells of, where we are; the interrupted code's stack is another one,
         * which it is not when a handler interrupted a handler. */
        if (word[UCONTEXT_LINK] == 0 && start <= avma + RED_ZONE_BYTES && place - start < stack_bytes &&
            word[UCONTEXT_RSP] - start >= stack_bytes) {
            *ret_sp_at_avma = place + UCONTEXT_RSP * sizeof(uint64_t);
            *ret_stack_end_avma = start + stack_bytes;
            return true;
        }
    }
    return false;
}

/*
 * Calls that look for a signal before they look whether their time is over, when they are woken: reads and writes, of
 * sockets with a timeout, and asynchronous I/O.
 */
static bool may_lose_timeout(int64_t call)
{
    switch (call) {
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
        return true;
    default:
        return false;
    }
}

/* The calls that do not restart by themselves; read and write as far as they are of sockets with a timeout. */
static bool is_interrupted_by_stops(int64_t call)
{
    switch (call) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_rt_sigtimedwait:
    case SYS_io_uring_enter:
        return true;
    default:
        return may_lose_timeout(call);
    }
}

/* Of those above, the ones that wait without a timeout, as their arguments say. */
static bool waits_for_ever(const struct user_regs_struct *regs)
{
    switch (regs->orig_rax) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return (int32_t)regs->r10 < 0;
    case SYS_epoll_pwait2:
    case SYS_semtimedop:
        return regs->r10 == 0;
    case SYS_semop:
        return true;
    case SYS_rt_sigtimedwait:
        return regs->rdx == 0;
    case SYS_io_getevents:
    case SYS_io_pgetevents:
        return regs->r8 == 0;
    default:
        return false;
    }
}

/* The thread is in a stop of ours, so the number is its own. */
static bool has_seccomp_filter(pid_t tid)
{
    struct procfs_status status;
    autoclose int fd = procfs_open_process(tid);
    return fd >= 0 && procfs_read_status(fd, &status) == 0 && status.has_seccomp_filter;
}

static bool ends_badly(pid_t tid, const struct user_regs_struct *regs)
{
    if ((int64_t)regs->orig_rax < 0)
        return false;
    if ((int64_t)regs->rax == -EINTR)
        return is_interrupted_by_stops((int64_t)regs->orig_rax);
    return (int64_t)regs->rax == -ERESTART_RESTARTBLOCK && has_seccomp_filter(tid);
}

static bool restart_call(pid_t tid, bool *ret_is_endless, bool *ret_may_lose_timeout)
{
    struct user_regs_struct regs;
    struct iovec buffer = {.iov_base = &regs, .iov_len = sizeof(regs)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &buffer) < 0 || buffer.iov_len != sizeof(regs) ||
        !ends_badly(tid, &regs))
        return false;
    *ret_is_endless = waits_for_ever(&regs);
    *ret_may_lose_timeout = may_lose_timeout((int64_t)regs.orig_rax);
    /* Of the kernel's include/linux/errno.h, seen by tracers only. The kernel sets the program counter back itself. */
    enum { ERESTARTNOHAND = 514 };
    regs.rax = (uint64_t)-ERESTARTNOHAND;
    return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &buffer) == 0;
}

const struct capture_arch capture_arch = {
    .read_registers = read_registers,
    .registers_at_entry = registers_at_entry,
    .find_interrupted = find_interrupted,
    .restart_call = restart_call,
    .may_lose_timeout = may_lose_timeout,
    .red_zone_bytes = RED_ZONE_BYTES,
};
