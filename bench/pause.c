/*
 * The programs of bench/pause.py, which see from the inside how long a sampler makes a program stand still.
 *
 * pause target SECONDS CPU THREADS DEPTH   spins on the time stamp counter, DEPTH calls deep, and writes the gaps that
 *                                          it has seen as lines "TID START END" (CLOCK_MONOTONIC, ns), then "end TID
 *                                          START END" of each thread's whole measurement
 * pause spin SECONDS CPU                   a busy program that nobody samples
 * pause naive PID HZ SECONDS               stops a process as a beginner's sampler does, and writes its stops as lines
 *                                          "TID START END"
 *
 * CPU -1: wherever the scheduler likes. `target` and `spin` say "ready" when they begin.
 */
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { GAPS_MAX = 1 << 20, THREADS_MAX = 64, NAIVE_BYTES = 8192 };
/* What a turn of the loop takes is far below, an interrupt above. */
static const uint64_t GAP_NS = 1000;

struct gap {
    uint64_t start;
    uint64_t end;
};

struct thread {
    pthread_t id;
    pid_t tid;
    int cpu;
    int depth;
    struct gap *gaps;
    size_t count;
    struct gap whole;
};

static uint64_t duration_ticks;
static uint64_t gap_ticks;
static pthread_barrier_t barrier;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* One moment by both clocks: of some tries the one that took the shortest time. */
struct moment {
    uint64_t ns;
    uint64_t ticks;
};

static struct moment take_moment(void)
{
    struct moment best = {0};
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        uint64_t before = __rdtsc();
        uint64_t ns = now_ns();
        uint64_t passed = __rdtsc() - before;
        if (passed < shortest) {
            shortest = passed;
            best = (struct moment){.ns = ns, .ticks = before + passed / 2};
        }
    }
    return best;
}

static double ticks_per_ns(struct moment from, struct moment to)
{
    return (double)(to.ticks - from.ticks) / (double)(to.ns - from.ns);
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (cpu >= 0 && sched_setaffinity(0, sizeof(set), &set) < 0)
        perror("pause: sched_setaffinity");
}

static void spin(struct thread *thread)
{
    uint64_t last = __rdtsc();
    uint64_t end = last + duration_ticks;
    thread->whole.start = last;
    while (last < end) {
        uint64_t now = __rdtsc();
        if (now - last > gap_ticks && thread->count < GAPS_MAX)
            thread->gaps[thread->count++] = (struct gap){.start = last, .end = now};
        last = now;
    }
    thread->whole.end = last;
}

/* 100 and more bytes of stack a call, and something behind each call, so that it remains one. */
__attribute__((noinline)) static unsigned descend(struct thread *thread, int depth)
{
    volatile unsigned char pad[64];
    pad[depth % 64] = (unsigned char)depth;
    if (depth > 0)
        return descend(thread, depth - 1) + pad[depth % 64];
    spin(thread);
    return pad[0];
}

static void *run(void *context)
{
    struct thread *thread = context;
    thread->tid = (pid_t)syscall(SYS_gettid);
    pin(thread->cpu);
    pthread_barrier_wait(&barrier);
    descend(thread, thread->depth);
    return NULL;
}

static int target(double seconds, int cpu, int count, int depth)
{
    static struct thread threads[THREADS_MAX];
    if (count < 1 || count > THREADS_MAX)
        return 2;
    struct moment first = take_moment();
    while (now_ns() - first.ns < 50000000)
        ;
    double scale = ticks_per_ns(first, take_moment());
    duration_ticks = (uint64_t)(seconds * 1e9 * scale);
    gap_ticks = (uint64_t)((double)GAP_NS * scale);
    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        threads[i] = (struct thread){.cpu = cpu, .depth = depth, .gaps = malloc(GAPS_MAX * sizeof(struct gap))};
        if (!threads[i].gaps || pthread_create(&threads[i].id, NULL, run, &threads[i]))
            return 1;
        memset(threads[i].gaps, 0, (size_t)(2000 * seconds + 10000) * sizeof(struct gap)); /* no page fault later */
    }
    puts("ready");
    fflush(stdout);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i].id, NULL);
    scale = ticks_per_ns(first, take_moment()); /* the longer the time, the better known */
    for (int i = 0; i < count; i++) {
        const struct thread *thread = &threads[i];
        for (size_t j = 0; j <= thread->count; j++) {
            struct gap gap = j < thread->count ? thread->gaps[j] : thread->whole;
            printf("%s%d %.0f %.0f\n", j < thread->count ? "" : "end ", thread->tid,
                   (double)first.ns + (double)(gap.start - first.ticks) / scale,
                   (double)first.ns + (double)(gap.end - first.ticks) / scale);
        }
    }
    return 0;
}

static int spin_only(double seconds, int cpu)
{
    pin(cpu);
    puts("ready");
    fflush(stdout);
    uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns)
        ;
    return 0;
}

/* One stop, as everybody would write it first. False: the process has ended. */
static int stop_once(pid_t pid, uint8_t *buffer)
{
    int status;
    struct user_regs_struct registers;
    struct iovec set = {.iov_base = &registers, .iov_len = sizeof(registers)};
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 || waitpid(pid, &status, __WALL) < 0 || !WIFSTOPPED(status) ||
        ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &set) < 0)
        return 0;
    struct iovec local = {.iov_base = buffer, .iov_len = NAIVE_BYTES};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)registers.rsp, .iov_len = NAIVE_BYTES};
    process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return ptrace(PTRACE_CONT, pid, NULL, NULL) == 0;
}

static int naive(pid_t pid, double hz, double seconds)
{
    uint8_t *buffer = calloc(1, NAIVE_BYTES);
    size_t most = (size_t)(hz * seconds) + 1;
    struct gap *stops = calloc(most, sizeof(*stops));
    if (!buffer || !stops || ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0) {
        perror("pause: ptrace");
        return 1;
    }
    uint64_t period_ns = (uint64_t)(1e9 / hz);
    uint64_t next_ns = now_ns();
    size_t count = 0;
    while (count < most) {
        next_ns += period_ns;
        struct timespec until = {.tv_sec = (time_t)(next_ns / 1000000000U), .tv_nsec = (long)(next_ns % 1000000000U)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        stops[count].start = now_ns();
        if (!stop_once(pid, buffer))
            break;
        stops[count++].end = now_ns();
    }
    /* A thread that ended as our tracee would stay a zombie while we write. */
    int status;
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0 && waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status))
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        printf("%d %llu %llu\n", pid, (unsigned long long)stops[i].start, (unsigned long long)stops[i].end);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "target") == 0)
        return target(atof(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    if (argc == 4 && strcmp(argv[1], "spin") == 0)
        return spin_only(atof(argv[2]), atoi(argv[3]));
    if (argc == 5 && strcmp(argv[1], "naive") == 0)
        return naive(atoi(argv[2]), atof(argv[3]), atof(argv[4]));
    fputs("usage: pause target SECONDS CPU THREADS DEPTH | spin SECONDS CPU | naive PID HZ SECONDS\n", stderr);
    return 2;
}
