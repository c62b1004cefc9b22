/*
 * Launching a program under the sampler, with its world as it would be without: same signal mask and dispositions,
 * process group, terminal, limits and environment. The child is made early (before threads, signal masks and limits
 * change) and waits at a pipe; it is not traced across its exec. That the exec was done is seen by the end of a
 * close-on-exec pipe.
 */
#ifndef SAMPLER_LAUNCH_H
#define SAMPLER_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

struct launch {
    pid_t pid;
    int pid_fd;     /* readable when the process has ended */
    int go_fd;      /* a byte lets it go on to its exec; closing it makes it exit */
    int outcome_fd; /* end of file: exec done; an errno: exec failed */
};

/*
 * Forks. Called while the process has one thread and untouched signals. `join_stdout`: the program's standard output
 * becomes its standard error. `variables`: "NAME=VALUE", NULL-ended, for the program's environment; NULL: none. Returns
 * 0 or a negative errno.
 */
int launch_prepare(char **argv, bool join_stdout, char *const *variables, struct launch *ret_launch);

/* Lets it exec and waits until that is done. Returns 0, or the negative errno with which exec failed (the child has
 * ended then). */
int launch_go(struct launch *launch);

/* The shell's status for a failed exec: 127 not found, 126 found but not executable (a missing interpreter too). */
int launch_failure_status(const char *program, int error);

/* Closes descriptors; a child that was never let go ends and is reaped. */
void launch_deinit(struct launch *launch);

#endif
