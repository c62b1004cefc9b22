/*
 * callkiller all|tracing NUMBER PROGRAM [ARG]...: traces the program with all its threads (not its children), and kills
 * it at the stop of that number, counted from 0: each system call has one before and one after it. With "tracing" only
 * those of ptrace, waitid and process_vm_readv count. Prints
 *   {"stops": COUNT, "killed": 0|1, "call": NUMBER OF THE SYSTEM CALL, "after": 0|1, "status": ITS EXIT STATUS}
 */
#include "testprog.h"

#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { SYSCALL_STOP = SIGTRAP | 0x80 };

static long wanted, stops;
static int tracing_only, killed, after;
static unsigned long long call;

static int counts(unsigned long long number)
{
    return !tracing_only || number == SYS_ptrace || number == SYS_waitid || number == SYS_process_vm_readv;
}

static void count_stop(pid_t child, pid_t tid)
{
    struct user_regs_struct registers;
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) != 0 || !counts(registers.orig_rax) || stops++ != wanted)
        return;
    killed = 1;
    call = registers.orig_rax;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) > 0)
        after = info.op == PTRACE_SYSCALL_INFO_EXIT;
    kill(child, SIGKILL);
}

static void go_on(pid_t child, pid_t tid, int status)
{
    int stop_signal = WSTOPSIG(status), event = status >> 16, forwarded = 0;
    if (stop_signal == SYSCALL_STOP)
        count_stop(child, tid);
    else if (event == 0)
        forwarded = stop_signal;
    ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)forwarded);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 99;
    tracing_only = strcmp(argv[1], "tracing") == 0;
    wanted = strtol(argv[2], NULL, 10);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        execvp(argv[3], argv + 3);
        _exit(99);
    }
    int status, last = 0;
    waitpid(child, &status, WUNTRACED);
    if (ptrace(PTRACE_SEIZE, child, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) != 0)
        fail("PTRACE_SEIZE");
    kill(child, SIGCONT);
    for (pid_t tid; (tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
        if (tid > 0 && WIFSTOPPED(status))
            go_on(child, tid, status);
        else if (tid == child)
            last = status;
    }
    printf("{\"stops\": %ld, \"killed\": %d, \"call\": %llu, \"after\": %d, \"status\": %d}\n", stops, killed, call,
           after, WIFEXITED(last) ? WEXITSTATUS(last) : 128 + WTERMSIG(last));
    return 0;
}
