/*
 * Signals to the sampler itself. All that matter are blocked in every thread and read from a descriptor by the main
 * thread, so that none ends or stops the sampler while a thread of the target stands still. SIGCHLD is blocked too, for
 * the tracer. Called after the program to launch was forked: its dispositions and mask stay what they were.
 */
#ifndef SAMPLER_SIGNALS_H
#define SAMPLER_SIGNALS_H

struct signals {
    int fd;       /* a signalfd, non-blocking */
    int received; /* SIGINT, SIGTERM and SIGHUP so far */
};

int signals_init(struct signals *signals); /* 0 or a negative errno */
void signals_deinit(struct signals *signals);

/* Stops as Ctrl-Z stops any program: by the signal's own action, which the kernel leaves out where nobody could
 * continue us. For SIGTSTP. */
void signals_stop_self(void);

/* The next signal (SIGINT, SIGTERM, SIGHUP, SIGTSTP), or 0 when there is none. */
int signals_next(struct signals *signals);

#endif
