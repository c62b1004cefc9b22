/* How much the target has done by now: a number that grows, of which differences are compared. */
#ifndef SAMPLER_COMPAREWORK_H
#define SAMPLER_COMPAREWORK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first number of a text like " 1234.5\n"; false when it does not begin with one. Nothing is read at `text + size`
 * or beyond. */
bool comparework_parse(const char *text, size_t size, double *ret_value);

/*
 * Runs a shell command and reads the number that it prints. It gets the signal mask `mask` and SAMPLER_PID in its
 * environment, and 5 seconds. *ret_ns is the moment between its start and its end. Returns 0 or a negative errno:
 * -EINVAL no number, -ETIME no end, -ECHILD a status that is not 0.
 */
int comparework_ask(const char *command, const sigset_t *mask, double *ret_value, uint64_t *ret_ns);

/* Calls that read or write which the process has made: a sign of the work of many servers. Returns 0 or a negative
 * errno. `proc_fd` is its directory in /proc. */
int comparework_calls(int proc_fd, double *ret_calls);

#endif
