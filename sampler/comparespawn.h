/*
 * Programs that a comparison starts: the sampler itself, perf, a command of the user. Each is in a process group of its
 * own, so that the terminal's Ctrl-C comes to us alone and a program can be ended with what it has started.
 */
#ifndef SAMPLER_COMPARESPAWN_H
#define SAMPLER_COMPARESPAWN_H

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/*
 * argv[0] is looked for in PATH. Standard input is /dev/null; `out_fd` and `error_fd` become standard output and
 * standard error. Returns 0 or a negative errno.
 */
int comparespawn_start(const char *const *argv, const sigset_t *mask, int out_fd, int error_fd, pid_t *ret_pid);

/*
 * Waits for its end and reaps it; at the deadline (CLOCK_MONOTONIC) its group is killed, and -ETIME is the result.
 * `ret_usage` may be NULL. Returns 0 or a negative errno.
 */
int comparespawn_wait(pid_t pid, uint64_t deadline_ns, int *ret_status, struct rusage *ret_usage);

/* CPU time, in user and kernel mode together. */
double comparespawn_cpu_ns(const struct rusage *usage);

#endif
