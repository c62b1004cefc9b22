/*
 * Holds one thread still. The sampler's own tracer lets a thread go as soon as its stack is copied; here it stands
 * until three unwinders are done with it. It comes out as it went in: a signal that was about to be delivered is
 * delivered, a stopped process stays stopped.
 */
#ifndef ORACLE_STOP_H
#define ORACLE_STOP_H

#include "sampler/waitstatus.h"
#include "unwind/snapshot.h"

#include <sys/types.h>

struct stop {
    pid_t tid;
    struct wait_event event;
    struct registers registers;
};

/* Returns 0; -ESRCH: it has ended; -EPERM: not ours to trace; -ENOEXEC: 32-bit code (let go again); -ETIMEDOUT: it did
 * not stop in 5 s and stays seized, so that it is let go when we end. */
int stop_take(pid_t tid, struct stop *ret_stop);
void stop_release(const struct stop *stop);

#endif
