/*
 * Loads a library into a running process and calls a function of it, once, in one of its threads.
 *
 * 1. Refused without touching it: a process that is stopped, traced, 32-bit, with a seccomp filter or a shadow stack,
 *    without glibc, or that sees another file at the library's path (injectcheck.h, injectlibc.h).
 * 2. A thread is chosen whose whole stack is known and free of the allocator, the loader and their kind
 *    (injectplace.h), on a CPU rather than asleep, and asleep without a timeout rather than with one: a relative
 *    timeout starts over, three times at most. If none is there it is tried again.
 * 3. While it is held, two system calls in its name map a region, where a stub and its data are written; it is let go
 *    into the stub, untraced. That calls dlopen, dlsym and the function on a stack of its own, with signals blocked,
 *    and goes back by rt_sigreturn(2): registers, vector state, signal mask and place, all at once. errno stays, too.
 * 4. When it is back, it is held once more, to unmap the region. Where that does not come to pass in time, the region
 *    (some 12 KB in memory) stays.
 *
 * If we are killed, at whatever moment, the thread finishes what it is at and goes back by itself (injectremote.h);
 * only a call that a stop ends with EINTR (epoll_wait) does so if we are killed in the microseconds before that is
 * hidden.
 * The process sees of it: what the library does; the address of a string that dlerror(3) has kept for that thread is
 * void; signals to that thread wait until it is back.
 *
 * Synchronous. Runs on a thread of its own, which traces: any thread may call this, also one that traces others.
 * SIGCHLD comes for its stops.
 */
#ifndef SAMPLER_INJECT_H
#define SAMPLER_INJECT_H

#include "common/strbuf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct inject_request {
    pid_t pid;
    int proc_fd;              /* its /proc directory, borrowed */
    const char *library_path; /* absolute */
    const char *function;     /* int64_t function(uint64_t argument) */
    uint64_t argument;
    uint64_t timeout_ns; /* for all of it */
};

struct inject_result {
    int64_t value;  /* what the function returned */
    pid_t tid;      /* of the thread that was taken */
    unsigned stops; /* of any thread */
    uint64_t longest_stop_ns;
    uint64_t call_ns; /* from the thread's start into dlopen to its end, as seen from here */
    bool is_unmapped;
};

/*
 * Returns 0 and *ret_result, or a negative errno and in one line why not and what to do; then the process is as it was,
 * but for -EINPROGRESS: time is over and the thread is still in dlopen or the function; it goes on by itself.
 *   -ESRCH it has ended; -EPERM not permitted; -EBUSY it is stopped; -EAGAIN no thread came to a good place in time;
 *   -EOPNOTSUPP, -ENOEXEC its kind of program cannot; -ENOENT the library's path; -ELIBBAD dlopen or dlsym failed.
 */
int inject_call(const struct inject_request *request, struct inject_result *ret_result, struct strbuf *ret_why);

#endif
