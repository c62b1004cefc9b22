/* Whether a process can be sampled, and in one line why not and what to do. */
#ifndef SAMPLER_ATTACH_H
#define SAMPLER_ATTACH_H

#include "common/strbuf.h"

#include <stdbool.h>
#include <sys/types.h>

struct attached {
    pid_t pid;
    int proc_fd; /* /proc/PID as a directory: bound to this process */
    int pid_fd;  /* readable when it has ended */
};

/*
 * Opens the process and asks everything that can be asked without stopping it: does it exist, is it a zombie, a kernel
 * thread, traced already, 32-bit, ours to read. Returns 0 and *ret_attached (the caller closes both), or a negative
 * errno and one line in `ret_error`.
 */
int attach_open(pid_t pid, struct attached *ret_attached, struct strbuf *ret_error);

/* A process that may not be read or stopped; pid 0: none. */
struct refusal {
    pid_t pid;
    uid_t real_uid; /* of that moment */
    uid_t effective_uid;
};

/* Notes who it is, if it is the first; later it may have ended. `proc_fd` is its directory. */
void refusal_note(struct refusal *refusal, pid_t pid, int proc_fd);

/* Why: uid, ptrace_scope, non-dumpable; and what to do. Appends to `ret_text`. */
void refusal_explain(const struct refusal *refusal, struct strbuf *ret_text);

/* True when the process's program is a 32-bit one. */
bool attach_is_foreign(int proc_fd);

#endif
