#include "sampler/injectremote.h"

#include "common/clock.h"
#include "sampler/capture_arch.h"
#include "sampler/waitstatus.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Of the kernel's include/linux/errno.h; only tracers see them. */
enum { ERESTARTSYS = 512, ERESTARTNOINTR = 513, ERESTARTNOHAND = 514 };

enum {
    SYSCALL_BYTES = 2,   /* of the instruction */
    SYSCALL_STOP = 0x80, /* PTRACE_O_TRACESYSGOOD: on top of SIGTRAP */
    SETXID_SIGNAL = 33   /* glibc's own, for setuid in all threads at once */
};

#define SPIN_NS        (5 * NS_PER_US)
#define LOOK_NS        (10 * NS_PER_US)
#define INTERRUPT_NS   (20 * NS_PER_MS) /* an interrupt can go lost: then another one */
#define REMOTE_WAIT_NS (10 * NS_PER_SEC)

#define SIGNAL_BIT(number) (UINT64_C(1) << ((number)-1))

/* ---- memory ---- */

static int read_memory(pid_t tid, uint64_t avma, void *bytes, size_t size)
{
    struct iovec ours = {.iov_base = bytes, .iov_len = size};
    struct iovec theirs = {.iov_base = (void *)avma, .iov_len = size};
    return process_vm_readv(tid, &ours, 1, &theirs, 1, 0) == (ssize_t)size ? 0 : -EFAULT;
}

static int write_memory(pid_t tid, uint64_t avma, const void *bytes, size_t size)
{
    struct iovec ours = {.iov_base = (void *)bytes, .iov_len = size};
    struct iovec theirs = {.iov_base = (void *)avma, .iov_len = size};
    return process_vm_writev(tid, &ours, 1, &theirs, 1, 0) == (ssize_t)size ? 0 : -EFAULT;
}

/* Only a debugger's way writes to what the process itself may but read and execute. */
static int write_code(pid_t tid, uint64_t avma, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += sizeof(long)) {
        long word = 0;
        memcpy(&word, bytes + at, size - at < sizeof(word) ? size - at : sizeof(word));
        if (ptrace(PTRACE_POKEDATA, tid, (void *)(avma + at), (void *)word) < 0)
            return -errno;
    }
    return 0;
}

/* ---- stops ---- */

/* Asleep, so that the thread may have our CPU, and not for long: who yields is let in after all others. */
static void pause_in_wait(uint64_t since_ns, uint64_t now_ns)
{
    if (now_ns - since_ns >= SPIN_NS)
        clock_sleep_until(now_ns + LOOK_NS);
}

/* Looks without taking: a wait that takes a signal stop would lose the signal if we were killed next. */
static int wait_stopped(pid_t tid, uint64_t limit_ns, bool interrupts, siginfo_t *ret_info)
{
    uint64_t since_ns = clock_now_ns();
    uint64_t interrupted_ns = since_ns;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD) < 0)
            return errno == ECHILD ? -ESRCH : -errno;
        uint64_t now_ns = clock_now_ns();
        if (info.si_pid == tid) {
            *ret_info = info;
            return 0;
        }
        if (now_ns - since_ns > limit_ns)
            return -ETIMEDOUT;
        if (interrupts && now_ns - interrupted_ns > INTERRUPT_NS) {
            ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
            interrupted_ns = now_ns;
        }
        pause_in_wait(since_ns, now_ns);
    }
}

static void reap(pid_t tid)
{
    waitid(P_PID, (id_t)tid, &(siginfo_t){0}, WEXITED | WNOHANG | __WALL | __WNOTHREAD);
}

static void detach(struct inject_held *held, int signal)
{
    /* Before: the thread may take our CPU. */
    held->stopped_ns = clock_now_ns() - held->since_ns;
    ptrace(PTRACE_DETACH, held->tid, NULL, (void *)(intptr_t)signal);
}

static int read_regs(pid_t tid, struct user_regs_struct *ret)
{
    struct iovec buffer = {.iov_base = ret, .iov_len = sizeof(*ret)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &buffer) < 0)
        return -errno;
    return buffer.iov_len == sizeof(*ret) ? 0 : -ENOEXEC;
}

static int write_regs(pid_t tid, const struct user_regs_struct *regs)
{
    struct iovec buffer = {.iov_base = (void *)regs, .iov_len = sizeof(*regs)};
    return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &buffer) < 0 ? -errno : 0;
}

/* The calls that go on by restart_syscall(2), for the rest of their timeout. */
static bool is_timed_call(uint32_t number)
{
    return number == SYS_poll || number == SYS_nanosleep || number == SYS_clock_nanosleep || number == SYS_futex;
}

/*
 * A thread that was stopped before in such a call is in restart_syscall(2) now, and that fails behind an rt_sigreturn.
 * Its number is gone, its arguments are not: the instruction before the call tells, mov $NUMBER, %eax.
 */
static bool find_number(pid_t tid, struct user_regs_struct *regs)
{
    enum { MOV_EAX = 0xb8 };
    uint8_t code[5 + SYSCALL_BYTES];
    uint32_t number;
    if (read_memory(tid, regs->rip - sizeof(code), code, sizeof(code)) != 0 || code[0] != MOV_EAX)
        return false;
    memcpy(&number, code + 1, sizeof(number));
    regs->orig_rax = number;
    return is_timed_call(number);
}

/*
 * What the kernel does itself when it lets a thread go on that was not changed: the call is made again. A relative
 * timeout starts over; and for a thread that was not changed, too, so that its number does not get lost.
 */
static int make_call_again(struct inject_held *held)
{
    struct user_regs_struct *regs = &held->regs;
    int64_t result = (int64_t)regs->rax;
    int error = 0;
    held->is_waiting = (int64_t)regs->orig_rax >= 0 && (result == -ERESTARTSYS || result == -ERESTARTNOINTR ||
                                                        result == -ERESTARTNOHAND || result == -ERESTART_RESTARTBLOCK);
    held->can_change = true;
    if (!held->is_waiting)
        return 0;
    if (regs->orig_rax == SYS_restart_syscall) {
        held->can_change = find_number(held->tid, regs);
    } else if (result == -ERESTART_RESTARTBLOCK) {
        regs->rax = (uint64_t)-ERESTARTNOHAND;
        error = write_regs(held->tid, regs);
    }
    regs->rax = regs->orig_rax;
    regs->rip -= SYSCALL_BYTES;
    return error;
}

static int read_held(struct inject_held *held)
{
    bool unused;
    int error = capture_arch.read_registers(held->tid, &held->registers, &unused);
    if (error)
        return error;
    /* So that none of the calls that a stop ends with EINTR does. */
    capture_arch.restart_call(held->tid, &unused, &unused);
    error = read_regs(held->tid, &held->regs);
    return error ? error : make_call_again(held);
}

int injectremote_hold(pid_t tid, uint64_t limit_ns, struct inject_held *ret)
{
    siginfo_t info = {0};
    if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) < 0)
        return -errno;
    memset(ret, 0, sizeof(*ret));
    ret->tid = tid;
    /* ESRCH: it ends already; the wait tells. */
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    int error = wait_stopped(tid, limit_ns, true, &info);
    if (error)
        return error;
    ret->since_ns = clock_now_ns();
    struct wait_event event = wait_classify(info.si_code, info.si_status);
    if (event.kind == WAIT_EXIT) {
        reap(tid);
        return -ESRCH;
    }
    error = event.kind == WAIT_INTERRUPT_STOP ? read_held(ret) : -EAGAIN;
    if (error)
        detach(ret, wait_detach_signal(&event));
    return error;
}

void injectremote_release(struct inject_held *held)
{
    detach(held, 0);
}

bool injectremote_is_in_sequence(const struct inject_held *held)
{
    enum { RSEQ_CS_OFF = 8 }; /* struct rseq (linux/rseq.h) */
    struct __ptrace_rseq_configuration rseq = {0};
    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, held->tid, (void *)sizeof(rseq), &rseq) < 0 || !rseq.rseq_abi_pointer)
        return false;
    uint64_t section = 0;
    struct iovec ours = {.iov_base = &section, .iov_len = sizeof(section)};
    struct iovec theirs = {.iov_base = (void *)(rseq.rseq_abi_pointer + RSEQ_CS_OFF), .iov_len = sizeof(section)};
    return process_vm_readv(held->tid, &ours, 1, &theirs, 1, 0) != sizeof(section) || section != 0;
}

/* ---- the frame ---- */

/*
 * The vector state as a signal frame has it: XSAVE's standard format, with what the kernel looks at to know it for that
 * (asm/sigcontext.h, struct _fpx_sw_bytes, and a second mark at its end). A part that is not in it is reset.
 */
enum {
    FX_BYTES = 512,
    FX_SOFTWARE_OFF = 464,
    XSAVE_HEADER_BYTES = 64,
    XSAVE_LEAF = 0xd,
    XSAVE_TILES = 3 << 17, /* AMX: 8 KB, and only where a thread has asked for it */
    FRAME_MAGIC1 = 0x46505853,
    FRAME_MAGIC2 = 0x46505845
};

struct software_bytes {
    uint32_t magic1;
    uint32_t extended_bytes;
    uint64_t parts;
    uint32_t state_bytes;
    uint32_t padding[7];
};

static size_t state_bytes(uint64_t parts)
{
    size_t bytes = FX_BYTES + XSAVE_HEADER_BYTES;
    for (unsigned part = 2; part < 63; part++) {
        unsigned size;
        unsigned off;
        unsigned unused1;
        unsigned unused2;
        if (parts >> part & 1 && __get_cpuid_count(XSAVE_LEAF, part, &size, &off, &unused1, &unused2) &&
            (size_t)off + size > bytes)
            bytes = (size_t)off + size;
    }
    return bytes;
}

/* Returns the bytes that are used, or a negative errno. */
static ssize_t fill_fpstate(pid_t tid, uint8_t *fpstate)
{
    uint8_t state[16 << 10];
    uint64_t parts;
    uint64_t used;
    struct iovec buffer = {.iov_base = state, .iov_len = sizeof(state)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &buffer) < 0) { /* a processor without XSAVE */
        if (ptrace(PTRACE_GETFPREGS, tid, NULL, fpstate) < 0)
            return -errno;
        memset(fpstate + FX_SOFTWARE_OFF, 0, sizeof(struct software_bytes));
        return FX_BYTES;
    }
    if (buffer.iov_len < FX_BYTES + XSAVE_HEADER_BYTES)
        return -ENOTSUP;
    memcpy(&parts, state + FX_SOFTWARE_OFF, sizeof(parts)); /* XCR0, as ptrace gives it */
    memcpy(&used, state + FX_BYTES, sizeof(used));
    if (used & XSAVE_TILES)
        return -ENOTSUP;
    parts &= ~(uint64_t)XSAVE_TILES;
    size_t size = state_bytes(parts);
    uint32_t magic2 = FRAME_MAGIC2;
    if (size > buffer.iov_len || size + sizeof(magic2) > INJECT_FPSTATE_BYTES)
        return -ENOTSUP;
    struct software_bytes software = {.magic1 = FRAME_MAGIC1,
                                      .extended_bytes = (uint32_t)(size + sizeof(magic2)),
                                      .parts = parts,
                                      .state_bytes = (uint32_t)size};
    _Static_assert(sizeof(software) == FX_BYTES - FX_SOFTWARE_OFF, "the rest of that area");
    memcpy(fpstate, state, size);
    memcpy(fpstate + FX_SOFTWARE_OFF, &software, sizeof(software));
    memcpy(fpstate + size, &magic2, sizeof(magic2));
    return (ssize_t)(size + sizeof(magic2));
}

static void fill_ucontext(const struct inject_held *held, struct inject_ucontext *ret)
{
    /* UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS (asm/ucontext.h). */
    enum { FLAGS = 7 };
    /* Flags of a signal stack that sigaltstack(2) refuses, and rt_sigreturn(2) passes over: it stays what it is. */
    enum { NO_STACK_FLAGS = 4 };
    const struct user_regs_struct *regs = &held->regs;
    *ret = (struct inject_ucontext){
        .flags = FLAGS,
        .stack_flags = NO_STACK_FLAGS,
        .r8 = regs->r8,
        .r9 = regs->r9,
        .r10 = regs->r10,
        .r11 = regs->r11,
        .r12 = regs->r12,
        .r13 = regs->r13,
        .r14 = regs->r14,
        .r15 = regs->r15,
        .rdi = regs->rdi,
        .rsi = regs->rsi,
        .rbp = regs->rbp,
        .rbx = regs->rbx,
        .rdx = regs->rdx,
        .rax = regs->rax,
        .rcx = regs->rcx,
        .rsp = regs->rsp,
        .rip = regs->rip,
        .eflags = regs->eflags,
        .cs = (uint16_t)regs->cs,
        .ss = (uint16_t)regs->ss,
        .mask = held->mask,
    };
}

/* As a handler's frame would lie: below what the function may use without moving its stack pointer. */
static int place_frame(struct inject_held *held, const struct inject_stack *stack)
{
    uint64_t sp = held->regs.rsp;
    uint64_t needed = capture_arch.red_zone_bytes + held->frame_bytes + 64;
    if (sp < stack->start_avma || sp >= stack->end_avma || sp - stack->start_avma < needed)
        return -ENOSPC;
    held->frame_avma = (sp - capture_arch.red_zone_bytes - held->frame_bytes) & ~UINT64_C(63);
    return read_memory(held->tid, held->frame_avma, &held->below, held->frame_bytes) ? -ENOSPC : 0;
}

static struct user_regs_struct call_regs(const struct inject_held *held, const struct inject_libc *libc)
{
    enum { EFLAGS = 0x202 }; /* interrupts on, nothing else: no direction, no single steps */
    struct user_regs_struct regs = held->regs;
    regs.orig_rax = UINT64_MAX; /* no call that is to be made again */
    regs.eflags = EFLAGS;
    regs.rip = libc->syscall_avma;
    regs.rsp = held->frame_avma + offsetof(struct inject_frame, return_avma);
    return regs;
}

static int set_mask(pid_t tid, uint64_t mask)
{
    return ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof(mask), &mask) < 0 ? -errno : 0;
}

/* The mask first: should we die in between, the frame has it as well. No signal is delivered while it is held. */
static void put_back(struct inject_held *held)
{
    struct user_regs_struct regs = held->regs;
    regs.orig_rax = UINT64_MAX;
    set_mask(held->tid, held->mask);
    if (write_regs(held->tid, &regs) == 0)
        write_memory(held->tid, held->frame_avma, &held->below, held->frame_bytes);
}

int injectremote_begin(struct inject_held *held, const struct inject_libc *libc, const struct inject_stack *stack)
{
    pid_t tid = held->tid;
    if (!held->can_change)
        return -ENOTSUP;
    if (ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(held->mask), &held->mask) < 0)
        return -errno;
    ssize_t size = fill_fpstate(tid, held->frame.fpstate);
    if (size < 0)
        return (int)size;
    held->frame_bytes = INJECT_FRAME_HEAD_BYTES + (size_t)size;
    int error = place_frame(held, stack);
    if (error)
        return error;
    fill_ucontext(held, &held->frame.ucontext);
    held->frame.return_avma = libc->sigreturn_avma;
    held->frame.ucontext.fpstate_avma = held->frame_avma + offsetof(struct inject_frame, fpstate);
    if (write_memory(tid, held->frame_avma, &held->frame, held->frame_bytes) != 0) {
        write_memory(tid, held->frame_avma, &held->below, held->frame_bytes);
        return -ENOSPC;
    }
    /* First the way back, then the mask that it brings back. Let go here, it asks for its id. */
    struct user_regs_struct regs = call_regs(held, libc);
    regs.rax = SYS_gettid;
    error = write_regs(tid, &regs);
    if (!error)
        error = set_mask(tid, UINT64_MAX);
    if (error)
        put_back(held);
    return error;
}

/* ---- calls ---- */

/* To the next stop at a system call. Only SIGSTOP cannot be blocked: it comes again when the thread is let go. */
static int run_to_call_stop(struct inject_held *held)
{
    enum { STOPS_MAX = 64 };
    for (int i = 0; i < STOPS_MAX; i++) {
        siginfo_t info = {0};
        if (ptrace(PTRACE_SYSCALL, held->tid, NULL, NULL) < 0)
            return -errno;
        int error = wait_stopped(held->tid, REMOTE_WAIT_NS, false, &info);
        if (error)
            return error;
        struct wait_event event = wait_classify(info.si_code, info.si_status);
        if (event.kind == WAIT_EXIT) {
            reap(held->tid);
            return -ESRCH;
        }
        if (info.si_status == (SIGTRAP | SYSCALL_STOP))
            return 0;
        if (event.kind == WAIT_SIGNAL_STOP)
            held->kept_signal = event.signal;
    }
    return -ETIMEDOUT;
}

int64_t injectremote_call(struct inject_held *held, const struct inject_libc *libc, long number,
                          const uint64_t *arguments, bool *ret_gone)
{
    struct user_regs_struct regs = call_regs(held, libc);
    regs.rax = (uint64_t)number;
    regs.rdi = arguments[0];
    regs.rsi = arguments[1];
    regs.rdx = arguments[2];
    regs.r10 = arguments[3];
    regs.r8 = arguments[4];
    regs.r9 = arguments[5];
    int error = write_regs(held->tid, &regs);
    if (!error)
        error = run_to_call_stop(held); /* before it */
    if (!error)
        error = run_to_call_stop(held); /* and behind it */
    if (!error)
        error = read_regs(held->tid, &regs);
    *ret_gone = error != 0;
    return error ? -EIO : (int64_t)regs.rax;
}

void injectremote_end(struct inject_held *held)
{
    put_back(held);
    detach(held, held->kept_signal);
}

/* A fault's signal that is blocked kills; the library may want to handle its own. glibc's setuid waits for all threads
 * with locks held that dlopen may want. */
static uint64_t stub_mask(uint64_t mask)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    uint64_t blocked = ~SIGNAL_BIT(SETXID_SIGNAL);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        blocked &= ~SIGNAL_BIT(faults[i]) | mask;
    return blocked;
}

int injectremote_enter_stub(struct inject_held *held, uint64_t region_avma, struct inject_data *data)
{
    enum { MXCSR = 0x1f80 };
    uint64_t data_avma = region_avma + INJECT_DATA_OFF;
    data->mxcsr = MXCSR;
    data->all_signals = UINT64_MAX;
    data->frame = held->frame;
    data->frame.ucontext.fpstate_avma = data_avma + offsetof(struct inject_data, frame.fpstate);
    int error = write_memory(held->tid, data_avma, data, sizeof(*data));
    if (!error)
        error = write_code(held->tid, region_avma, inject_stub, (size_t)(inject_stub_end - inject_stub));
    if (error)
        return error;
    struct user_regs_struct regs = held->regs;
    regs.orig_rax = UINT64_MAX;
    regs.eflags = 0x202;
    regs.rip = region_avma;
    regs.rsp = data_avma;
    /* All signals are blocked: let go from here on, it comes back by itself. */
    error = write_regs(held->tid, &regs);
    if (error)
        return error;
    write_memory(held->tid, held->frame_avma, &held->below, held->frame_bytes);
    set_mask(held->tid, stub_mask(held->mask));
    detach(held, held->kept_signal);
    return 0;
}
