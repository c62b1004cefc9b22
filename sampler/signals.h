/*
 * Signals to the sampler itself. All that matter are blocked in every thread and read from a descriptor by the main
 * thread, so that none ends or stops the sampler while a thread of the target stands still. SIGCHLD is blocked too, for
 * the tracer. The descriptor is a pipe from a thread that waits for the signals: who polls a signalfd is woken by every
 * signal to the process, and each stop of a thread makes a SIGCHLD. Called after the program to launch was forked: its
 * dispositions and mask stay what they were.
 */
#ifndef SAMPLER_SIGNALS_H
#define SAMPLER_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct signals {
    int fd;       /* to poll; non-blocking */
    int received; /* SIGINT, SIGTERM and SIGHUP so far */
    int write_fd; /* the rest is the thread's */
    sigset_t read_set;
    pthread_t thread;
    bool has_thread;
};

/*
 * Not to be moved until signals_deinit. Returns 0 or a negative errno. `hold_quit`: SIGQUIT is read as the others are;
 * after signals_allow_quit it ends us by its own action again, at once. Unless it is ignored.
 */
int signals_init(struct signals *signals, bool hold_quit);
void signals_deinit(struct signals *signals);

/* Stops as Ctrl-Z stops any program: by the signal's own action, which the kernel leaves out where nobody could
 * continue us. For SIGTSTP. */
void signals_stop_self(void);

void signals_allow_quit(void);

/* Ends the sampler as the SIGQUIT that was read would have. Does not return. */
_Noreturn void signals_quit(void);

/* The next signal (SIGINT, SIGTERM, SIGHUP, SIGTSTP, a held SIGQUIT), or 0 when there is none. */
int signals_next(struct signals *signals);

#endif
