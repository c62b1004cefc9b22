/*
 * Signals to the sampler itself. All that matter are blocked in every thread and read from a descriptor by the main
 * thread, so that none ends or stops the sampler while a thread of the target stands still. SIGCHLD is blocked too, for
 * the tracer. Called after the program to launch was forked: its dispositions and mask stay what they were.
 */
#ifndef SAMPLER_SIGNALS_H
#define SAMPLER_SIGNALS_H

#include <signal.h>

struct signals {
    int fd;            /* a signalfd, non-blocking */
    int received;      /* SIGINT, SIGTERM and SIGHUP so far */
    sigset_t read_set; /* by fd */
};

int signals_init(struct signals *signals); /* 0 or a negative errno */
void signals_deinit(struct signals *signals);

/* Stops as Ctrl-Z stops any program: by the signal's own action, which the kernel leaves out where nobody could
 * continue us. For SIGTSTP. */
void signals_stop_self(void);

/*
 * SIGQUIT is read as the others are from signals_hold_quit on, which is called before there are other threads; after
 * signals_allow_quit it ends us by its own action again, at once. Unless it is ignored.
 */
int signals_hold_quit(struct signals *signals); /* 0 or a negative errno */
void signals_allow_quit(void);

/* Ends the sampler as the SIGQUIT that was read would have. Does not return. */
_Noreturn void signals_quit(void);

/* The next signal (SIGINT, SIGTERM, SIGHUP, SIGTSTP, a held SIGQUIT), or 0 when there is none. */
int signals_next(struct signals *signals);

#endif
