/*
 * Each way to handle SIGSEGV and SIGBUS, installed in each way, with each kind of fault: what the program sees, and how
 * it ends. "faulter" or "faulter traced" prints a block for each case, the same for the same behaviour: addresses are
 * said relative to where things are. Traced: also the last signal that the case got, as a tracer sees it.
 *
 * With FAULTER_LIBRARY=FILE that library is loaded, or is preloaded already, and its faulter_own() is called before or
 * after the handlers are installed, as the case wants; faulter_load_badly() then says whether its bad loads went as
 * they should. That prints nothing, but if something is wrong.
 */
#include "testprog.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { PAGE = 4096, STACK_BYTES = 128 * 1024, GUARD_FAULTS = 1000 };
enum kind {
    KIND_NONE,
    KIND_IGNORE,
    KIND_PLAIN,
    KIND_SIGINFO,
    KIND_RESETHAND,
    KIND_ONSTACK,
    KIND_NODEFER,
    KIND_RESTART,
    KIND_ALL_FLAGS,
    KIND_SIGLONGJMP,
    KIND_LONGJMP,
    KIND_REPAIR,
    KIND_FAULTING,
    KIND_COUNT
};
enum way { WAY_SIGACTION, WAY_SIGNAL, WAY_SYSV, WAY_SIGSET, WAY_RAW, WAY_COUNT };
enum fault {
    FAULT_NULL,
    FAULT_READ_ONLY,
    FAULT_GUARDS,
    FAULT_TRUNCATED,
    FAULT_PROF_MEMCPY,
    FAULT_KILL,
    FAULT_RAISE,
    FAULT_SIGQUEUE,
    FAULT_SUSPEND,
    FAULT_JUMP,
    FAULT_NO_EXEC,
    FAULT_NON_CANONICAL,
    FAULT_OVERFLOW,
    FAULT_COUNT
};

static const char *const kind_names[] = {"none",    "ignore",  "plain",   "siginfo",   "resethand",
                                         "onstack", "nodefer", "restart", "all_flags", "siglongjmp",
                                         "longjmp", "repair",  "faulting"};
static const char *const way_names[] = {"sigaction", "signal", "sysv_signal", "sigset", "raw"};
static const char *const fault_names[] = {"null",    "read_only",     "guards",   "truncated",  "prof_memcpy",
                                          "kill",    "raise",         "sigqueue", "sigsuspend", "jump",
                                          "no_exec", "non_canonical", "overflow"};

struct mark {
    uint64_t pc, sp, rbp, rbx, r12, r13, r14, r15;
};
int mark_set(struct mark *mark) __attribute__((returns_twice));
void fault_load(uint64_t address);
void fault_store(uint64_t address);
void fault_call(uint64_t address);
extern const char fault_load_at[], fault_store_at[], fault_call_at[];

static const uint64_t non_canonical = 0x8000123412341234;
static enum kind kind;
static enum fault fault;
static char *region; /* one page: nothing may be done with it, or what the fault wants */
static char *file_page;
static int file;
static char *alternate;
static char *small_stack;
static struct mark mark;
static sigjmp_buf jump;
static volatile int calls, depth, quiet;
static volatile uint64_t sum;
static pid_t first_pid;
static uint64_t libc_restorer;

static void say(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(1, line, (size_t)size) != size)
        _exit(98);
}

/* An address as NAME+OFFSET, the same in each run. */
static const char *place(uint64_t address, char *text)
{
    const struct {
        const char *name;
        uint64_t start, bytes;
    } known[] = {
        {"null", 0, PAGE},
        {"load", (uint64_t)fault_load_at, 1},
        {"store", (uint64_t)fault_store_at, 1},
        {"call", (uint64_t)fault_call_at, 1},
        {"region", (uint64_t)region, PAGE},
        {"file", (uint64_t)file_page, PAGE},
        {"alternate", (uint64_t)alternate, STACK_BYTES},
        {"small_stack", (uint64_t)small_stack, PAGE}, /* its guard */
        {"non_canonical", non_canonical, PAGE},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (address - known[i].start >= known[i].bytes)
            continue;
        bool exact = known[i].bytes > 1 && strcmp(known[i].name, "small_stack") != 0;
        sprintf(text, "%s+%lx", known[i].name, exact ? address - known[i].start : 0ul);
        return text;
    }
    return "elsewhere";
}

static bool is_sent(const siginfo_t *info)
{
    return info->si_code <= 0;
}

static void say_siginfo(const siginfo_t *info)
{
    char text[64];
    if (is_sent(info))
        say("    info signo %d code %d errno %d pid %s uid %d value %d\n", info->si_signo, info->si_code,
            info->si_errno,
            info->si_pid == getpid()    ? "own"
            : info->si_pid == first_pid ? "parent"
                                        : "other",
            (int)info->si_uid, info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
    else
        say("    info signo %d code %d errno %d addr %s\n", info->si_signo, info->si_code, info->si_errno,
            place((uint64_t)info->si_addr, text));
}

static uint64_t mask_now(void)
{
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask);
    return mask;
}

static bool has_known_registers(void)
{
    return fault != FAULT_PROF_MEMCPY && fault != FAULT_OVERFLOW;
}

static bool is_asynchronous(void)
{
    return fault == FAULT_KILL || fault == FAULT_RAISE || fault == FAULT_SIGQUEUE || fault == FAULT_SUSPEND;
}

static void say_context(const ucontext_t *context, const void *frame)
{
    char text[64];
    const greg_t *regs = context->uc_mcontext.gregs;
    uint64_t mask;
    memcpy(&mask, &context->uc_sigmask, sizeof mask);
    say("    mask now %lx interrupted %lx alternate %d flags %lx frame %ld\n", mask_now(), mask,
        (size_t)((const char *)frame - alternate) < STACK_BYTES, context->uc_flags,
        (long)((const char *)context - (const char *)frame));
    say("    stack %s flags %d size %zu\n", place((uint64_t)context->uc_stack.ss_sp, text), context->uc_stack.ss_flags,
        context->uc_stack.ss_size);
    if (!has_known_registers())
        return;
    say("    pc %s", place((uint64_t)regs[REG_RIP], text));
    if (is_asynchronous()) {
        say("\n");
        return; /* in a call of the C library; trap, error and cr2 are the last fault's */
    }
    say(" cr2 %s", regs[REG_TRAPNO] == 14 ? place((uint64_t)regs[REG_CR2], text) : "unused");
    say(" trap %llx error %llx flags %llx sp %lld registers", regs[REG_TRAPNO], regs[REG_ERR], regs[REG_EFL],
        (long long)(mark.sp - (uint64_t)regs[REG_RSP]));
    static const int named[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP,
                                REG_R8,  REG_R9,  REG_R10, REG_R12, REG_R13, REG_R14, REG_R15};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        say(" %llx", regs[named[i]]);
    say("\n");
}

static void go_to_mark(ucontext_t *context)
{
    greg_t *regs = context->uc_mcontext.gregs;
    regs[REG_RIP] = (greg_t)mark.pc;
    regs[REG_RSP] = (greg_t)mark.sp;
    regs[REG_RBP] = (greg_t)mark.rbp;
    regs[REG_RBX] = (greg_t)mark.rbx;
    regs[REG_R12] = (greg_t)mark.r12;
    regs[REG_R13] = (greg_t)mark.r13;
    regs[REG_R14] = (greg_t)mark.r14;
    regs[REG_R15] = (greg_t)mark.r15;
    regs[REG_RAX] = 1;
}

/* Makes the fault's cause go away where that can be. */
static bool repair(void)
{
    switch (fault) {
    case FAULT_READ_ONLY:
    case FAULT_GUARDS:
    case FAULT_PROF_MEMCPY:
        return mprotect(region, PAGE, PROT_READ | PROT_WRITE) == 0;
    case FAULT_TRUNCATED:
        return ftruncate(file, PAGE) == 0;
    case FAULT_NO_EXEC:
        return mprotect(region, PAGE, PROT_READ | PROT_EXEC) == 0;
    default:
        return false;
    }
}

static bool knows_siginfo;

static void handle(int signal_number, siginfo_t *info, void *context_pointer)
{
    ucontext_t *context = context_pointer;
    calls++;
    sum = sum * 31 + (uint64_t)signal_number;
    if (!quiet || calls <= 2) {
        say("  handler %d signal %d errno %d\n", calls, signal_number, errno);
        if (knows_siginfo)
            say_siginfo(info);
        say_context(context, __builtin_frame_address(0));
    }
    if (kind == KIND_FAULTING) {
        say("    faults itself\n");
        mark_set(&mark);
        fault_load(8);
    }
    if (kind == KIND_NODEFER && ++depth == 1) {
        struct mark outer = mark;
        enum fault outer_fault = fault;
        fault = FAULT_NULL;
        if (mark_set(&mark) == 0)
            fault_load(16);
        mark = outer;
        fault = outer_fault;
        depth = 0;
        say("    back from the nested one\n");
    }
    if (kind == KIND_SIGLONGJMP || kind == KIND_LONGJMP)
        siglongjmp(jump, 1);
    if (is_asynchronous() || (kind == KIND_REPAIR && repair()))
        return;
    go_to_mark(context);
}

/* Installing */

static int flags_of(enum kind of)
{
    switch (of) {
    case KIND_PLAIN:
    case KIND_LONGJMP:
        return 0;
    case KIND_RESETHAND:
        return (int)(SA_RESETHAND | SA_SIGINFO);
    case KIND_ONSTACK:
    case KIND_SIGLONGJMP:
        return SA_ONSTACK | SA_SIGINFO;
    case KIND_NODEFER:
        return SA_NODEFER | SA_SIGINFO;
    case KIND_RESTART:
        return SA_RESTART;
    case KIND_ALL_FLAGS:
        return (int)(SA_RESETHAND | SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART);
    default:
        return SA_SIGINFO;
    }
}

static void say_action(const char *what, int result, const struct sigaction *action)
{
    uint64_t mask;
    memcpy(&mask, &action->sa_mask, sizeof mask);
    void *handler = (void *)action->sa_handler;
    say("  %s result %d handler %s flags %x mask %lx restorer %s\n", what, result,
        handler == (void *)handle    ? "own"
        : handler == (void *)SIG_DFL ? "default"
        : handler == (void *)SIG_IGN ? "ignore"
                                     : "unknown",
        (unsigned)action->sa_flags, mask,
        (uint64_t)action->sa_restorer == libc_restorer ? "libc"
        : action->sa_restorer                          ? "unknown"
                                                       : "none");
}

static void *handler_of(enum kind of)
{
    return of == KIND_NONE ? (void *)SIG_DFL : of == KIND_IGNORE ? (void *)SIG_IGN : (void *)handle;
}

static void install_raw(int signal_number, const struct sigaction *action)
{
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } raw = {(void *)action->sa_handler, (unsigned long)action->sa_flags | 0x04000000, (void *)libc_restorer, 0};
    memcpy(&raw.mask, &action->sa_mask, sizeof raw.mask);
    say("  raw %ld\n", syscall(SYS_rt_sigaction, signal_number, &raw, NULL, sizeof raw.mask));
}

static void install(int signal_number, enum way way)
{
    struct sigaction action = {.sa_flags = flags_of(kind)}, old = {0};
    action.sa_handler = (void (*)(int))handler_of(kind);
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGSTOP);
    void (*handler)(int) = action.sa_handler;
    void (*before)(int) = NULL;
    if (way == WAY_SIGACTION)
        say_action("set", sigaction(signal_number, &action, &old), &old);
    else if (way == WAY_RAW)
        install_raw(signal_number, &action);
    else if (way == WAY_SIGNAL)
        before = signal(signal_number, handler);
    else if (way == WAY_SYSV)
        before = sysv_signal(signal_number, handler);
    else
        before = sigset(signal_number, handler);
    if (way != WAY_SIGACTION && way != WAY_RAW)
        say("  before: %s\n", before == SIG_DFL ? "default" : before == SIG_IGN ? "ignore" : "other");
}

static void *library_symbol(const char *name)
{
    const char *library = getenv("FAULTER_LIBRARY");
    void *symbol = library ? dlsym(dlopen(library, RTLD_NOW), name) : NULL;
    if (library && !symbol) {
        say("  NO LIBRARY: %s\n", dlerror());
        _exit(95);
    }
    return symbol;
}

static void own(bool wanted)
{
    int (*owner)(void) = NULL;
    *(void **)&owner = library_symbol("faulter_own");
    if (wanted && owner && owner() != 0)
        say("  NOT OWNED\n");
}

/* The library has the signals but where the program has gone around it: by a raw call or, where it could not come
 * before the C library, by any. */
static void load_badly(enum way way, bool own_first)
{
    bool (*loads)(bool) = NULL;
    bool is_replaced = own_first && (way == WAY_RAW || !getenv("LD_PRELOAD"));
    *(void **)&loads = library_symbol("faulter_load_badly");
    int before = calls;
    if (loads && !loads(!is_replaced))
        say("  BAD LOADS WENT WRONG\n");
    if (calls != before)
        say("  A BAD LOAD CAME TO THE HANDLER\n");
}

/* Faults */

static void *overflow_deep(uint64_t n)
{
    volatile char filler[512];
    filler[n % 512] = 1;
    void *deeper = overflow_deep(n + 1);
    return filler[7] ? deeper : NULL;
}

static void queue_from_another(void)
{
    pid_t pid = getpid();
    uint64_t blocked = 1ull << (SIGSEGV - 1), before;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, &before, sizeof blocked);
    pid_t other = fork();
    if (other == 0) {
        sigqueue(pid, SIGSEGV, (union sigval){.sival_int = 4711});
        _exit(0);
    }
    waitpid(other, NULL, 0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof blocked);
}

/* The signal comes in a call that lets it in; the mask behind it has it blocked. */
static void suspend(void)
{
    sigset_t none, blocked, before;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGSEGV);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    raise(SIGSEGV);
    if (kind == KIND_IGNORE)
        raise(SIGUSR2); /* has a handler, so that the call ends */
    sigsuspend(&none);
    say("  suspended no longer\n");
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void fault_once(void)
{
    switch (fault) {
    case FAULT_NULL:
        fault_load(0);
        break;
    case FAULT_READ_ONLY:
        mprotect(region, PAGE, PROT_READ);
        fault_store((uint64_t)region + 24);
        break;
    case FAULT_GUARDS:
        mprotect(region, PAGE, PROT_NONE);
        fault_load((uint64_t)region + 32);
        break;
    case FAULT_TRUNCATED:
        if (ftruncate(file, 0) != 0)
            _exit(97);
        fault_load((uint64_t)file_page + 40);
        break;
    case FAULT_KILL:
        kill(getpid(), SIGSEGV);
        break;
    case FAULT_RAISE:
        raise(SIGSEGV);
        break;
    case FAULT_SIGQUEUE:
        queue_from_another();
        break;
    case FAULT_SUSPEND:
        suspend();
        break;
    case FAULT_JUMP:
        fault_call(0x10);
        break;
    case FAULT_NO_EXEC:
        mprotect(region, PAGE, PROT_READ | PROT_WRITE);
        memset(region, 0xc3, PAGE); /* ret */
        fault_call((uint64_t)region + 48);
        break;
    case FAULT_NON_CANONICAL:
        fault_load(non_canonical);
        break;
    case FAULT_OVERFLOW:
        overflow_deep(0);
        break;
    default: {
        char buffer[256];
        mprotect(region, PAGE, PROT_NONE);
        static volatile size_t size = sizeof buffer; /* so that it is a call */
        memcpy(buffer, region, size);
        sum += (unsigned char)buffer[size - 1];
        break;
    }
    }
}

static void attempt(int number)
{
    volatile int came_back = 0;
    say(" fault %d mask %lx\n", number, mask_now());
    if (sigsetjmp(jump, kind == KIND_SIGLONGJMP) != 0)
        came_back = 1;
    else if (mark_set(&mark) != 0)
        came_back = 2;
    else
        fault_once();
    say("  went on %s, mask %lx, calls %d\n",
        came_back == 1   ? "by jump"
        : came_back == 2 ? "at the mark"
                         : "behind it",
        mask_now(), calls);
    uint64_t both = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGUSR1 - 1) | 1ull << (SIGTERM - 1);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &both, NULL, sizeof both);
}

static void attempt_in_handler(int signal_number)
{
    (void)signal_number;
    attempt(0);
}

static void attempt_many(void)
{
    quiet = 1;
    for (volatile int i = 0; i < GUARD_FAULTS; i++) {
        if (sigsetjmp(jump, 1) == 0 && mark_set(&mark) == 0)
            fault_once();
        if (i % 100 == 99)
            say("  %d faults, %d calls, sum %lx, mask %lx\n", i + 1, calls, sum, mask_now());
    }
    quiet = 0;
}

static void use_alternate(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = STACK_BYTES};
    sigaltstack(&stack, NULL);
}

static void *attempts(void *unused)
{
    use_alternate();
    if (fault == FAULT_GUARDS)
        attempt_many();
    for (int i = 1; i <= 2; i++) {
        if (fault == FAULT_PROF_MEMCPY) {
            signal(SIGPROF, attempt_in_handler);
            raise(SIGPROF);
        } else {
            attempt(i);
        }
    }
    return unused;
}

static void read_back(int signal_number)
{
    struct sigaction now = {0};
    int result = sigaction(signal_number, NULL, &now);
    say_action("reads back", result, &now);
}

static void attempt_on_small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, small_stack + PAGE, STACK_BYTES);
    if (pthread_create(&thread, &attributes, attempts, NULL) != 0)
        _exit(96);
    pthread_join(thread, NULL);
}

static void run_case(enum way way, bool own_first)
{
    alarm(10);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGUSR2, attempt_in_handler);
    struct sigaction some;
    sigaction(SIGUSR2, NULL, &some);
    libc_restorer = (uint64_t)some.sa_restorer;
    some.sa_handler = stop_on_signal;
    sigaction(SIGUSR2, &some, NULL);
    knows_siginfo = flags_of(kind) & SA_SIGINFO && (way == WAY_SIGACTION || way == WAY_RAW);
    own(own_first);
    install(SIGSEGV, way);
    install(SIGBUS, way);
    own(!own_first);
    load_badly(way, own_first);
    if (way != WAY_RAW || own_first)
        read_back(SIGSEGV);
    if (fault == FAULT_OVERFLOW)
        attempt_on_small_stack();
    else
        attempts(NULL);
    read_back(SIGSEGV);
    read_back(SIGBUS);
    /* What was handled all the time still can be set back. */
    say("  %s\n", signal(SIGSEGV, SIG_DFL) == SIG_ERR ? "not set back" : "set back");
    read_back(SIGSEGV);
    _exit(0);
}

/* Cases */

static bool is_last_signal_told;
static siginfo_t last_signal;
static uint64_t last_pc;

static void note_signal(pid_t tid)
{
    struct user_regs_struct regs;
    ptrace(PTRACE_GETSIGINFO, tid, NULL, &last_signal);
    ptrace(PTRACE_GETREGS, tid, NULL, &regs);
    last_pc = regs.rip;
    is_last_signal_told = true;
}

/* Lets it run, with its threads, and notes its signals, till it ends. */
static void trace(pid_t pid)
{
    int status;
    is_last_signal_told = false;
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0)
            fail("waitpid");
        if (tid == pid && !WIFSTOPPED(status))
            break;
        if (!WIFSTOPPED(status))
            continue;
        int number = WSTOPSIG(status);
        if (number == SIGSTOP && tid == pid)
            ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
        if (number == SIGSTOP || number == SIGTRAP) {
            number = 0; /* the start of a thread, and news of it */
        } else {
            note_signal(tid);
        }
        ptrace(PTRACE_CONT, tid, NULL, (void *)(long)number);
    }
    say(" status %x", (unsigned)status);
    if (WIFSIGNALED(status) && is_last_signal_told) {
        char text[64];
        say(", last signal %d code %d addr %s pc %s", last_signal.si_signo, last_signal.si_code,
            last_signal.si_code > 0 ? place((uint64_t)last_signal.si_addr, text) : "none", "");
        say("%s", has_known_registers() ? place(last_pc, text) : "elsewhere");
    }
    say("\n");
}

static void wait_for(pid_t pid)
{
    siginfo_t info = {0};
    waitid(P_PID, (id_t)pid, &info, WEXITED);
    say(" ended code %d status %d\n", info.si_code, info.si_status);
}

static void one_case(enum way way, bool own_first, bool traced)
{
    say("case %s %s %s %s\n", kind_names[kind], way_names[way], own_first ? "after" : "before", fault_names[fault]);
    pid_t pid = fork();
    if (pid == 0) {
        if (traced) {
            ptrace(PTRACE_TRACEME, 0, NULL, NULL);
            raise(SIGSTOP);
        }
        run_case(way, own_first);
    }
    if (traced)
        trace(pid);
    else
        wait_for(pid);
}

static bool makes_sense(enum way way)
{
    return way == WAY_SIGACTION || way == WAY_RAW || kind == KIND_NONE || kind == KIND_IGNORE || kind == KIND_PLAIN ||
           kind == KIND_LONGJMP || kind == KIND_REPAIR || kind == KIND_FAULTING;
}

int main(int argc, char **argv)
{
    bool traced = argc > 1 && strcmp(argv[1], "traced") == 0;
    first_pid = getpid();
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    region = mmap(NULL, PAGE, PROT_NONE, anonymous, -1, 0);
    alternate = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    small_stack = mmap(NULL, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    mprotect(small_stack, PAGE, PROT_NONE);
    file = memfd_create("faulter", 0);
    file_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
    for (kind = 0; kind < KIND_COUNT; kind++)
        for (int way = 0; way < WAY_COUNT; way++)
            for (fault = 0; makes_sense((enum way)way) && fault < FAULT_COUNT; fault++)
                for (int own_first = 0; own_first < 2; own_first++)
                    one_case((enum way)way, own_first, traced);
    return 0;
}
