/*
 * What a wait said about a thread, classified once into one word. Everything that reaches the tracer is one of these.
 * Source: ptrace(2), wait(2); the encodings are the kernel's wait_task_stopped and wait_task_zombie (kernel/exit.c).
 */
#ifndef SAMPLER_WAITSTATUS_H
#define SAMPLER_WAITSTATUS_H

enum wait_kind {
    WAIT_INTERRUPT_STOP, /* our PTRACE_INTERRUPT (PTRACE_EVENT_STOP with SIGTRAP) */
    WAIT_GROUP_STOP,     /* the process is stopped by SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU (PTRACE_EVENT_STOP with that
                            signal) */
    WAIT_SIGNAL_STOP,    /* a signal is about to be delivered: it must go on, once, unchanged */
    WAIT_EVENT_STOP,     /* another ptrace event, or a system call stop: never asked for, released as it is */
    WAIT_EXIT,           /* exited or killed */
    WAIT_CONTINUED,      /* SIGCONT of a child; nothing to do */
    WAIT_UNKNOWN
};

struct wait_event {
    enum wait_kind kind;
    int signal; /* of a signal stop or group stop; the killing signal of an exit, else 0 */
    int status; /* exit status of an exit that no signal caused */
};

/* From siginfo_t of waitid: si_code (CLD_...) and si_status. */
struct wait_event wait_classify(int code, int status);

/* The signal to hand to PTRACE_DETACH for this stop: the stopping signal of a signal stop, else 0. */
int wait_detach_signal(const struct wait_event *event);

/* As a shell shows it: the status, or 128 + the signal. */
int wait_exit_status(const struct wait_event *event);

#endif
