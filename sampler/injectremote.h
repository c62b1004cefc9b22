/*
 * A thread that is held: system calls in its name, and its way into the stub (injectstub.h) and out of it.
 *
 * At every moment it could be let go, and be right. That matters because the kernel lets it go as it is when we are
 * killed. So before its registers are changed, a signal frame with all of its state is written below its stack's red
 * zone, where any handler's would be, and its stack pointer is set to it; it runs `syscall; ret` of the C library, and
 * `ret` leads to the C library's rt_sigreturn, which puts everything back. Normally it never gets there: the bytes
 * below its stack and its registers are restored while it is held.
 *
 * Used by one thread, which is the tracer; it traces nothing else (waits are for the one thread that it holds), and its
 * end lets all go. A thread is traced only while it is held.
 */
#ifndef SAMPLER_INJECTREMOTE_H
#define SAMPLER_INJECTREMOTE_H

#include "sampler/injectlibc.h"
#include "sampler/injectstub.h"
#include "unwind/snapshot.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct inject_held {
    pid_t tid;
    uint64_t since_ns;            /* when it was seen to stand still */
    uint64_t stopped_ns;          /* when it was let go: how long it was held */
    struct user_regs_struct regs; /* with which it goes on: a system call that we interrupted is made again */
    struct registers registers;   /* the same for an unwinder */
    bool is_waiting;              /* it was asleep in a system call */
    bool can_change;              /* false: it is in a call that could not be made again */
    uint64_t mask;                /* from here on: after injectremote_begin */
    int kept_signal;
    uint64_t frame_avma;
    size_t frame_bytes;
    struct inject_frame frame;
    struct inject_frame below; /* what was there */
};

/* Where the thread's stack may be written below its stack pointer: its mapping, half-open. */
struct inject_stack {
    uint64_t start_avma;
    uint64_t end_avma;
};

/*
 * Stops the thread. Returns 0 and *ret; -EAGAIN: it cannot be used as it is just now (a signal arrived, its process is
 * stopped), and was let go as it was; -ESRCH; -EPERM: another has it; -ENOEXEC: it runs 32-bit code; -ETIMEDOUT: it
 * did not stop, and is let go with the calling thread's end at the latest.
 */
int injectremote_hold(pid_t tid, uint64_t limit_ns, struct inject_held *ret);

/* Lets go of a thread that was not changed. */
void injectremote_release(struct inject_held *held);

/* A restartable sequence (rseq(2)) may be running, which a change of registers would break. */
bool injectremote_is_in_sequence(const struct inject_held *held);

/*
 * Makes the thread ready for system calls: its frame is written, its signals are blocked. Returns 0; or a negative
 * errno, with nothing changed, and the thread held as before: -ENOSPC (no room on its stack), -ENOTSUP (vector state
 * that a frame cannot have, or a call that cannot be made again).
 */
int injectremote_begin(struct inject_held *held, const struct inject_libc *libc, const struct inject_stack *stack);

/* The kernel's result of a system call, or -EIO when the thread went away (*ret_gone). */
int64_t injectremote_call(struct inject_held *held, const struct inject_libc *libc, long number,
                          const uint64_t *arguments, bool *ret_gone);

/* Puts everything back and lets go. */
void injectremote_end(struct inject_held *held);

/*
 * Writes stub and data into a region that was mapped for them, and lets the thread go into the stub. `data` has all but
 * what is the thread's own. Returns 0, or a negative errno: then injectremote_end is to be called.
 */
int injectremote_enter_stub(struct inject_held *held, uint64_t region_avma, struct inject_data *data);

#endif
