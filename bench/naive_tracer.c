/*
 * What simple tracers do to a process, for comparison.
 *
 * naive_tracer seized PID       seizes all threads, new ones too, and lets each go on at once whenever it stops, as it
 * does at every signal. naive_tracer stopper PID HZ   at each tick seizes and interrupts all threads, reads registers
 * and 8 KiB of stack of each, and detaches.
 *
 * Prints "ready" when it has begun, and ends by SIGTERM; "stopper" then prints its number of ticks.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 100000, STACK_BYTES = 8192 };

static volatile sig_atomic_t ended;

static void end(int signal_number)
{
    (void)signal_number;
    ended = 1;
}

static size_t list_threads(pid_t pid, pid_t *ret_tids)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && count < THREADS_MAX && (entry = readdir(directory)) != NULL;)
        if (atoi(entry->d_name) > 0)
            ret_tids[count++] = atoi(entry->d_name);
    if (directory)
        closedir(directory);
    return count;
}

/* Goes on as if nothing had been: a signal is delivered, a group stop stays one. */
static void go_on(pid_t tid, int status)
{
    int event = status >> 16, signal_number = WSTOPSIG(status);
    bool is_group_stop = event == PTRACE_EVENT_STOP && signal_number != SIGTRAP;
    if (is_group_stop)
        ptrace(PTRACE_LISTEN, tid, 0, 0);
    else
        ptrace(PTRACE_CONT, tid, 0, event ? 0 : signal_number);
}

static int seized(pid_t pid)
{
    static pid_t tids[THREADS_MAX];
    size_t count = list_threads(pid, tids);
    for (size_t i = 0; i < count; i++)
        if (ptrace(PTRACE_SEIZE, tids[i], 0, PTRACE_O_TRACECLONE) != 0 && errno != ESRCH && errno != EPERM) {
            perror("PTRACE_SEIZE");
            return 1;
        }
    printf("ready\n");
    fflush(stdout);
    while (!ended) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno != EINTR)
            return 0;
        if (tid > 0 && WIFSTOPPED(status))
            go_on(tid, status);
    }
    return 0; /* the kernel lets go of the rest */
}

static void stop_all(const pid_t *tids, size_t count)
{
    static uint8_t stack[STACK_BYTES];
    static bool is_seized[THREADS_MAX];
    for (size_t i = 0; i < count; i++)
        is_seized[i] = ptrace(PTRACE_SEIZE, tids[i], 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, tids[i], 0, 0) == 0;
    for (size_t i = 0; i < count; i++) {
        int status;
        if (!is_seized[i] || waitpid(tids[i], &status, __WALL) != tids[i] || !WIFSTOPPED(status))
            continue;
        struct user_regs_struct registers;
        struct iovec buffer = {&registers, sizeof registers};
        ptrace(PTRACE_GETREGSET, tids[i], NT_PRSTATUS, &buffer);
        struct iovec local = {stack, sizeof stack}, remote = {(void *)registers.rsp, sizeof stack};
        (void)!process_vm_readv(tids[i], &local, 1, &remote, 1, 0);
        int event = status >> 16;
        ptrace(PTRACE_DETACH, tids[i], 0, event ? 0 : WSTOPSIG(status));
    }
}

static int stopper(pid_t pid, double hz)
{
    static pid_t tids[THREADS_MAX];
    struct timespec next;
    unsigned long ticks = 0;
    clock_gettime(CLOCK_MONOTONIC, &next);
    printf("ready\n");
    fflush(stdout);
    for (; !ended && kill(pid, 0) == 0; ticks++) {
        stop_all(tids, list_threads(pid, tids));
        next.tv_nsec += (long)(1e9 / hz);
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    printf("%lu\n", ticks);
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_flags = 0}; /* ends waits */
    action.sa_handler = end;
    sigaction(SIGTERM, &action, NULL);
    if (argc == 3 && strcmp(argv[1], "seized") == 0)
        return seized(atoi(argv[2]));
    if (argc == 4 && strcmp(argv[1], "stopper") == 0 && atof(argv[3]) > 0)
        return stopper(atoi(argv[2]), atof(argv[3]));
    fprintf(stderr, "naive_tracer seized PID | stopper PID HZ\n");
    return 2;
}
