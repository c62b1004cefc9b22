#include "stop.h"

#include "common/clock.h"
#include "sampler/capture_arch.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define STOP_LIMIT_NS (5 * NS_PER_SEC)
#define STOP_LOOK_NS  (30 * NS_PER_US)

/* Looks without taking: a wait that takes a signal stop would lose the signal if we were killed next. */
static int wait_stopped(pid_t tid, struct wait_event *ret_event)
{
    uint64_t deadline_ns = clock_now_ns() + STOP_LIMIT_NS;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL) < 0)
            return errno == ECHILD ? -ESRCH : -errno;
        if (info.si_pid == tid) {
            *ret_event = wait_classify(info.si_code, info.si_status);
            return 0;
        }
        uint64_t now_ns = clock_now_ns();
        if (now_ns > deadline_ns)
            return -ETIMEDOUT;
        clock_sleep_until(now_ns + STOP_LOOK_NS);
    }
}

int stop_take(pid_t tid, struct stop *ret_stop)
{
    struct stop stop = {.tid = tid};
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
        return -errno;
    /* ESRCH: it ends already; the wait tells. */
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    int error = wait_stopped(tid, &stop.event);
    if (error)
        return error;
    if (stop.event.kind == WAIT_EXIT) {
        waitid(P_PID, (id_t)tid, &(siginfo_t){0}, WEXITED | WNOHANG | __WALL);
        return -ESRCH;
    }
    bool in_wait;
    error = capture_arch.read_registers(tid, &stop.registers, &in_wait);
    if (error) {
        stop_release(&stop);
        return error;
    }
    *ret_stop = stop;
    return 0;
}

void stop_release(const struct stop *stop)
{
    ptrace(PTRACE_DETACH, stop->tid, NULL, (long)wait_detach_signal(&stop->event));
}
