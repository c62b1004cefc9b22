/* What the parts of `blockers` share: one thread for each kind of blocking call. */
#ifndef BLOCKERS_H
#define BLOCKERS_H

#include "testprog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { TIMEOUT_MS = 300, FOR_EVER_S = 3600 };
#define TIMEOUT_NS (TIMEOUT_MS * 1000000ull)

struct blocker {
    const char *name;
    bool (*prepare)(struct blocker *); /* by its own thread, first; false: the kernel has no such thing. May be NULL */
    long (*call)(struct blocker *);    /* one call: its result, or a negative errno */
    void (*wake)(struct blocker *);    /* has it return; NULL: it does so by its timeout */
    long expected;                     /* what it returns; -EINTR: a signal is what wakes it */
    int syscall_number;                /* in which a signal is to find it */
    bool restarts;                     /* the signal does not end it */

    /* The call's own. */
    int fd;
    int peer;
    int pair[2];
    pid_t child;
    pid_t tid;
    atomic_int word;
    unsigned turn;
    unsigned long context;
    void *memory;

    /* What happened. `calls`, `handled` and `wakes` are also how waker and thread follow each other. */
    atomic_bool skipped;
    atomic_ulong wakes;
    atomic_ulong calls;
    atomic_ulong handled; /* signals that its handler saw */
    unsigned long eintr;  /* that nobody sent a signal for */
    unsigned long unexpected;
    long last_unexpected;
    atomic_ulong woken_ns; /* when it was woken last */
    long late_ns;          /* the most; of a timed call against its timeout, of a woken one against being woken */
    long early_ns;
    long unqueued_late_ns; /* the most, without the time in which it waited for a CPU: that is other programs' doing */
    long unqueued_sum_ns;
};

/* What libc says as a number, and what the pthread functions return. */
static inline long as_result(long value)
{
    return value < 0 ? -errno : value;
}

extern struct blocker timed_blockers[];
extern struct blocker woken_blockers[];
extern struct blocker signalled_blockers[];
extern const size_t timed_count;
extern const size_t woken_count;
extern const size_t signalled_count;

/* Before there are threads: what is to be forked. */
void woken_fork_children(void);

/* A socket that nobody sends to, with this timeout. */
int quiet_socket(int option, int timeout_ms);

#endif
