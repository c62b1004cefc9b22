/*
 * What is asked of a process before it is touched: may a library be loaded into it at all? In one line why not.
 */
#ifndef SAMPLER_INJECTCHECK_H
#define SAMPLER_INJECTCHECK_H

#include "common/strbuf.h"

#include <sys/types.h>

/*
 * `proc_fd` is its /proc directory. Not for: processes that are stopped, ending or traced; with a thread that has a
 * seccomp filter (which may kill for what dlopen does) or a shadow stack (rt_sigreturn wants a token on it). And the
 * file at `library_path`, which begins with '/', must be the same for it as for us. Returns 0 or a negative errno.
 */
int injectcheck(pid_t pid, int proc_fd, const char *library_path, struct strbuf *ret_why);

#endif
