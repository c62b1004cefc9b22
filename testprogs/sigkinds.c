/*
 * sigkinds: signals of all kinds, each checked for what the kernel says of it (siginfo), its number, its order and the
 * stack that its handler runs on. Each lane is a thread that alone takes its signals; most send the next one only when
 * the last one has come, so that a lost one ends the lane. main spins in sigkinds_spin until all are done. Prints as
 * JSON how many came in each lane, "wrong": how many were not as they should be (the first one is told), "interrupted":
 * waits without a handler that ended with EINTR, and "missed": expirations of periodic timers that nobody told of.
 * Exits with 1 when a lane does not come to its end within 50 seconds.
 */
#include "testprog.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum {
    PING = 2000,
    QUEUED = 4000,
    BURST = 20,
    CHILDREN = 200,
    FAULTS = 300,
    ALARMS = 500,
    PROFS = 60,
    TIMERS = 800,
    READY = 500
};
enum {
    PERIOD_NS = 1000000,
    EFLAGS_TF = 0x100,
    UNUSED_CALL = 183,
    CODE_SECCOMP = 1 /* SYS_SECCOMP, which older headers lack */,
    LAST = 100
};

enum lane {
    ALARM,
    PROF,
    TIMER,
    THREAD_TIMER,
    PINGS,
    THREAD_QUEUE,
    SIGNALFD,
    SIGWAIT,
    CHILD,
    FPE,
    ILL,
    SEGV,
    BUS,
    STEP,
    SYS,
    IO,
    LANES
};

static const char *const names[LANES] = {
    "alarm", "prof", "timer", "thread_timer", "ping", "thread_queue", "signalfd", "sigwait",
    "child", "fpe",  "ill",   "segv",         "bus",  "step",         "sys",      "io"};

static atomic_int came[LANES], wrong, interrupted, missed, running;
static char first_wrong[200] = "";

static void check(enum lane lane, bool is_right, const siginfo_t *info)
{
    if (!is_right && atomic_fetch_add(&wrong, 1) == 0)
        snprintf(first_wrong, sizeof first_wrong, "%s %d: signal %d code %d pid %d value %d addr %p", names[lane],
                 came[lane], info->si_signo, info->si_code, (int)info->si_pid, info->si_value.sival_int, info->si_addr);
    came[lane]++;
}

static bool is_from_us(const siginfo_t *info, int code)
{
    return info->si_code == code && info->si_pid == getpid() && info->si_uid == getuid();
}

/* ---- lanes ---- */

static int lane_signal(enum lane lane)
{
    return SIGRTMIN + (int)lane;
}

static sigset_t only(int signal_number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    return set;
}

static void handle(int signal_number, void (*function)(int, siginfo_t *, void *), int more_flags)
{
    struct sigaction action = {.sa_sigaction = function, .sa_flags = SA_SIGINFO | SA_RESTART | more_flags};
    if (sigaction(signal_number, &action, NULL) != 0)
        fail("sigaction");
}

/* Lets the signals in, by the handler, until so many have come. */
static void take(enum lane lane, int signal_number, int wanted)
{
    sigset_t all_but;
    sigfillset(&all_but);
    sigdelset(&all_but, signal_number);
    while (came[lane] < wanted)
        sigsuspend(&all_but);
}

static void wait_signal(int signal_number, siginfo_t *info)
{
    sigset_t set = only(signal_number);
    while (sigwaitinfo(&set, info) < 0)
        interrupted++;
}

/* ---- timers ---- */

static void arm(int which, int us)
{
    struct itimerval timer = {.it_value.tv_usec = us};
    setitimer((__itimer_which_t)which, &timer, NULL);
}

static void on_alarm(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    check(ALARM, info->si_code == SI_KERNEL, info);
    arm(ITIMER_REAL, 1000);
}

static void *alarm_main(void *argument)
{
    handle(SIGALRM, on_alarm, 0);
    arm(ITIMER_REAL, 1000);
    take(ALARM, SIGALRM, ALARMS);
    return argument;
}

static void on_prof(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    check(PROF, info->si_code == SI_KERNEL, info);
    arm(ITIMER_PROF, 5000);
}

static void *prof_main(void *argument)
{
    handle(SIGPROF, on_prof, 0);
    arm(ITIMER_PROF, 5000);
    take(PROF, SIGPROF, PROFS);
    return argument;
}

/* A periodic timer whose expirations, each told or counted as an overrun, are as many as there were. */
struct periodic {
    timer_t timer;
    uint64_t start_ns;
    uint64_t told;
    uint64_t least_missed; /* of the last ones: between the kernel's count and our look at the clock time may pass */
};

static struct periodic by_handler, by_wait;
static char handler_stack[64 << 10];

static void periodic_start(struct periodic *periodic, struct sigevent *event)
{
    *periodic = (struct periodic){.start_ns = clock_ns(CLOCK_MONOTONIC) + PERIOD_NS, .least_missed = UINT64_MAX};
    struct itimerspec spec = {
        .it_interval.tv_nsec = PERIOD_NS,
        .it_value = {(time_t)(periodic->start_ns / 1000000000), (long)(periodic->start_ns % 1000000000)}};
    if (timer_create(CLOCK_MONOTONIC, event, &periodic->timer) != 0 ||
        timer_settime(periodic->timer, TIMER_ABSTIME, &spec, NULL) != 0)
        fail("timer_create");
}

static void periodic_came(struct periodic *periodic, enum lane lane, bool is_right, const siginfo_t *info)
{
    uint64_t expired = (clock_ns(CLOCK_MONOTONIC) - periodic->start_ns) / PERIOD_NS + 1;
    periodic->told += 1 + (uint64_t)info->si_overrun;
    check(lane, is_right && info->si_code == SI_TIMER && periodic->told <= expired, info);
    if (came[lane] > TIMERS - LAST && expired - periodic->told < periodic->least_missed)
        periodic->least_missed = expired - periodic->told;
}

static void periodic_end(struct periodic *periodic)
{
    timer_delete(periodic->timer);
    missed += (int)periodic->least_missed;
}

static void on_timer(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    char here;
    bool is_there = &here >= handler_stack && &here < handler_stack + sizeof handler_stack;
    periodic_came(&by_handler, TIMER, is_there && info->si_value.sival_int == 0x1234567, info);
}

static void *timer_main(void *argument)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    sigaltstack(&stack, NULL);
    handle(lane_signal(TIMER), on_timer, SA_ONSTACK);
    struct sigevent event = {
        .sigev_notify = SIGEV_SIGNAL, .sigev_signo = lane_signal(TIMER), .sigev_value.sival_int = 0x1234567};
    periodic_start(&by_handler, &event);
    take(TIMER, lane_signal(TIMER), TIMERS);
    periodic_end(&by_handler);
    return argument;
}

static void *thread_timer_main(void *argument)
{
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = lane_signal(THREAD_TIMER), .sigev_value.sival_ptr = &by_wait};
    event._sigev_un._tid = gettid();
    periodic_start(&by_wait, &event);
    while (came[THREAD_TIMER] < TIMERS) {
        siginfo_t info;
        wait_signal(lane_signal(THREAD_TIMER), &info);
        periodic_came(&by_wait, THREAD_TIMER, info.si_value.sival_ptr == &by_wait, &info);
    }
    periodic_end(&by_wait);
    return argument;
}

/* ---- from thread to thread ---- */

static atomic_int ping_tid, pong_tid;

static void on_ping(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    bool is_ping = gettid() == pong_tid;
    check(PINGS, is_from_us(info, SI_TKILL) && signal_number == (is_ping ? SIGUSR1 : SIGUSR2), info);
    if (came[PINGS] < PING)
        syscall(SYS_tgkill, getpid(), is_ping ? ping_tid : pong_tid, is_ping ? SIGUSR2 : SIGUSR1);
}

static void *pong_main(void *argument)
{
    pong_tid = gettid();
    take(PINGS, SIGUSR1, PING - 1);
    return argument;
}

static void *ping_main(void *argument)
{
    pthread_t pong;
    handle(SIGUSR1, on_ping, 0);
    handle(SIGUSR2, on_ping, 0);
    ping_tid = gettid();
    pthread_create(&pong, NULL, pong_main, NULL);
    while (!pong_tid)
        sched_yield();
    syscall(SYS_tgkill, getpid(), pong_tid, SIGUSR1);
    take(PINGS, SIGUSR2, PING); /* pings are odd, so the last one, an even number, comes here */
    pthread_join(pong, NULL);
    return argument;
}

static void on_thread_queue(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    check(THREAD_QUEUE, is_from_us(info, SI_QUEUE) && info->si_value.sival_int == came[THREAD_QUEUE], info);
}

static void *thread_queue_taker(void *argument)
{
    take(THREAD_QUEUE, lane_signal(THREAD_QUEUE), QUEUED);
    return argument;
}

static void *thread_queue_main(void *argument)
{
    pthread_t taker;
    handle(lane_signal(THREAD_QUEUE), on_thread_queue, 0);
    pthread_create(&taker, NULL, thread_queue_taker, NULL);
    for (int i = 0; i < QUEUED; i++) {
        if (pthread_sigqueue(taker, lane_signal(THREAD_QUEUE), (union sigval){.sival_int = i}) != 0)
            fail("pthread_sigqueue");
        while (i % BURST == BURST - 1 && came[THREAD_QUEUE] <= i)
            sleep_ns(100000);
    }
    pthread_join(taker, NULL);
    return argument;
}

/* ---- read, not handled ---- */

/* The lane's values in order, to the process, some at a time. */
static void *queue_to_lane(void *argument)
{
    enum lane lane = *(enum lane *)argument;
    for (int i = 0; i < QUEUED; i++) {
        if (sigqueue(getpid(), lane_signal(lane), (union sigval){.sival_int = i}) != 0)
            fail("sigqueue");
        while (i % BURST == BURST - 1 && came[lane] <= i)
            sleep_ns(100000);
    }
    return NULL;
}

static void *signalfd_main(void *argument)
{
    static enum lane lane = SIGNALFD;
    sigset_t set = only(lane_signal(lane));
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    pthread_t sender;
    pthread_create(&sender, NULL, queue_to_lane, &lane);
    while (came[lane] < QUEUED) {
        struct signalfd_siginfo read_info;
        if (read(fd, &read_info, sizeof read_info) != (ssize_t)sizeof read_info) {
            interrupted++;
            continue;
        }
        siginfo_t info = {.si_signo = (int)read_info.ssi_signo, .si_code = read_info.ssi_code};
        info.si_pid = (pid_t)read_info.ssi_pid;
        info.si_uid = read_info.ssi_uid;
        info.si_value.sival_int = read_info.ssi_int;
        check(lane, is_from_us(&info, SI_QUEUE) && info.si_value.sival_int == came[lane], &info);
    }
    pthread_join(sender, NULL);
    close(fd);
    return argument;
}

static void *sigwait_main(void *argument)
{
    static enum lane lane = SIGWAIT;
    pthread_t sender;
    pthread_create(&sender, NULL, queue_to_lane, &lane);
    while (came[lane] < QUEUED) {
        siginfo_t info;
        wait_signal(lane_signal(lane), &info);
        check(lane, is_from_us(&info, SI_QUEUE) && info.si_value.sival_int == came[lane], &info);
    }
    pthread_join(sender, NULL);
    return argument;
}

/* One child at a time, so that each has a SIGCHLD of its own. */
static void *child_main(void *argument)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (i % 2)
                raise(SIGKILL);
            _exit(i);
        }
        siginfo_t info;
        wait_signal(SIGCHLD, &info);
        bool is_right = info.si_pid == pid && info.si_code == (i % 2 ? CLD_KILLED : CLD_EXITED) &&
                        info.si_status == (i % 2 ? SIGKILL : i);
        check(CHILD, is_right, &info);
        int status;
        while (waitpid(pid, &status, 0) < 0)
            interrupted++;
    }
    return argument;
}

static void on_io(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    char byte;
    bool is_right = info->si_code == POLL_IN && (info->si_band & POLLIN) != 0;
    check(IO, is_right && read(info->si_fd, &byte, 1) == 1 && byte == (char)came[IO], info);
}

static void *io_main(void *argument)
{
    int fds[2];
    struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};
    handle(lane_signal(IO), on_io, 0);
    if (pipe2(fds, O_CLOEXEC) != 0 || fcntl(fds[0], F_SETOWN_EX, &owner) != 0 ||
        fcntl(fds[0], F_SETSIG, lane_signal(IO)) != 0 || fcntl(fds[0], F_SETFL, O_ASYNC | O_NONBLOCK) != 0)
        fail("F_SETSIG");
    while (came[IO] < READY) {
        char byte = (char)came[IO];
        if (write(fds[1], &byte, 1) != 1)
            fail("write");
        take(IO, lane_signal(IO), came[IO] + 1);
    }
    return argument;
}

/* ---- by instructions ---- */

static char *read_only, *behind_end;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    bool is_here = (greg_t)info->si_addr == registers[REG_RIP];
    switch (signal_number) {
    case SIGFPE:
        check(FPE, info->si_code == FPE_INTDIV && is_here, info);
        registers[REG_RIP] += 2;
        break;
    case SIGILL:
        check(ILL, info->si_code == ILL_ILLOPN && is_here, info);
        registers[REG_RIP] += 2;
        break;
    case SIGSEGV:
        check(SEGV, info->si_code == SEGV_ACCERR && info->si_addr == read_only, info);
        registers[REG_RIP] += 3;
        break;
    case SIGBUS:
        check(BUS, info->si_code == BUS_ADRERR && info->si_addr == behind_end, info);
        registers[REG_RIP] += 3;
        break;
    case SIGTRAP:
        check(STEP, info->si_code == TRAP_TRACE && is_here, info);
        registers[REG_EFL] &= ~EFLAGS_TF;
        break;
    default:
        check(SYS, info->si_code == CODE_SECCOMP && info->si_syscall == UNUSED_CALL, info);
    }
}

/* Call UNUSED_CALL gives this thread a SIGSYS. */
static void forbid_call(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UNUSED_CALL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        fail("seccomp");
}

static void map_forbidden(void)
{
    int fd = memfd_create("short", MFD_CLOEXEC);
    read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    behind_end = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || read_only == MAP_FAILED || behind_end == MAP_FAILED)
        fail("mmap");
}

static void *fault_main(void *argument)
{
    static const int signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGTRAP, SIGSYS};
    sigset_t mine;
    sigemptyset(&mine);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        handle(signals[i], on_fault, 0);
        sigaddset(&mine, signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    map_forbidden();
    forbid_call();
    for (int i = 0; i < FAULTS; i++) {
        __asm__ volatile("idivl %%ecx" : : "a"(1), "d"(0), "c"(0));
        __asm__ volatile("ud2");
        __asm__ volatile(".byte 0xc6, 0x00, 0x00" : : "a"(read_only) : "memory");  /* movb $0, (%rax) */
        __asm__ volatile(".byte 0xc6, 0x00, 0x00" : : "a"(behind_end) : "memory"); /* movb $0, (%rax) */
        /* The trap comes behind the instruction that follows popf. */
        __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushf\n\torl %0, (%%rsp)\n\tpopf\n\tnop\n\tlea 128(%%rsp), %%rsp"
                         :
                         : "i"(EFLAGS_TF)
                         : "memory", "cc");
        syscall(UNUSED_CALL);
        sleep_ns(1000000);
    }
    return argument;
}

/* ---- all ---- */

struct work {
    void *(*function)(void *);
};

static void *lane_main(void *argument)
{
    const struct work *work = argument;
    work->function(NULL);
    if (atomic_fetch_sub(&running, 1) == 1)
        stop = 1;
    return NULL;
}

static void *watchdog_main(void *argument)
{
    sleep_ns(50 * 1000000000ull);
    stop = 2;
    return argument;
}

EXACT void sigkinds_spin(void)
{
    SPIN();
}

int main(void)
{
    static const struct work lanes[] = {{alarm_main}, {prof_main},         {timer_main},    {thread_timer_main},
                                        {ping_main},  {thread_queue_main}, {signalfd_main}, {sigwait_main},
                                        {child_main}, {io_main},           {fault_main}};
    enum { COUNT = sizeof lanes / sizeof lanes[0] };
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    ready("");
    char line[8];
    if (fgets(line, sizeof line, stdin) == NULL) /* until it is said to begin */
        return 99;
    running = COUNT;
    for (size_t i = 0; i < COUNT; i++)
        if (pthread_create(&thread, NULL, lane_main, (void *)(uintptr_t)&lanes[i]) != 0)
            fail("pthread_create");
    pthread_create(&thread, NULL, watchdog_main, NULL);
    sigkinds_spin();
    printf("{");
    for (int i = 0; i < LANES; i++)
        printf("\"%s\": %d, ", names[i], came[i]);
    printf("\"wrong\": %d, \"first\": \"%s\", \"interrupted\": %d, \"missed\": %d}\n", wrong, first_wrong, interrupted,
           missed);
    return stop == 1 ? 0 : 1;
}
