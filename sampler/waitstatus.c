#include "sampler/waitstatus.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static bool is_stop_signal(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

static struct wait_event classify_stop(int status)
{
    /* Bits 0 to 7 are the signal, the bits above the ptrace event. */
    int signal = status & 0xff;
    int event = status >> 8;
    if (event == PTRACE_EVENT_STOP && is_stop_signal(signal))
        return (struct wait_event){.kind = WAIT_GROUP_STOP, .signal = signal};
    if (event == PTRACE_EVENT_STOP)
        return (struct wait_event){.kind = WAIT_INTERRUPT_STOP};
    if (event != 0 || signal == (SIGTRAP | 0x80))
        return (struct wait_event){.kind = WAIT_EVENT_STOP};
    if (signal < 1 || signal > SIGRTMAX)
        return (struct wait_event){.kind = WAIT_UNKNOWN};
    return (struct wait_event){.kind = WAIT_SIGNAL_STOP, .signal = signal};
}

struct wait_event wait_classify(int code, int status)
{
    switch (code) {
    case CLD_EXITED:
        return (struct wait_event){.kind = WAIT_EXIT, .status = status};
    case CLD_KILLED:
    case CLD_DUMPED:
        return (struct wait_event){.kind = WAIT_EXIT, .signal = status};
    case CLD_TRAPPED:
    case CLD_STOPPED:
        return classify_stop(status);
    case CLD_CONTINUED:
        return (struct wait_event){.kind = WAIT_CONTINUED};
    default:
        return (struct wait_event){.kind = WAIT_UNKNOWN};
    }
}

int wait_detach_signal(const struct wait_event *event)
{
    return event->kind == WAIT_SIGNAL_STOP ? event->signal : 0;
}

int wait_exit_status(const struct wait_event *event)
{
    return event->signal ? 128 + event->signal : event->status;
}
