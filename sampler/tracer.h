/*
 * The tracer: stops threads, copies their registers and stack, and lets them go. All ptrace calls and all waits of the
 * sampler are in tracer.c.
 *
 * A thread is nobody's tracee except during its stop: PTRACE_SEIZE, PTRACE_INTERRUPT, wait, registers, one bulk read,
 * PTRACE_DETACH. A thread that was left seized would stop at every signal until its tracer reacts.
 *
 * Stops are waited for with WNOWAIT: a collecting wait takes a signal-delivery stop's signal out of the thread, and a
 * tracer that is killed before its PTRACE_DETACH would swallow it. Exits are then reaped without WNOWAIT.
 *
 * Nothing waits for one thread: a request is started, and finished when its thread arrives. A thread that runs, or
 * sleeps in an ordinary call, arrives within microseconds; one that waits for a CPU when it gets one, having executed
 * nothing meanwhile; one in uninterruptible sleep later still. Whoever takes longer than a deadline is overdue: its
 * request is finished without a stack, and it is let go as soon as it stops.
 *
 * Threads of ours: one owns the tracer and makes all calls but those marked otherwise (ptrace belongs to a thread, and
 * waits use
 * __WNOTHREAD); it must have no children of its own. SIGCHLD, which the kernel sends to us for each stop, is blocked in
 * all threads. Another thread, which never calls ptrace, serves tracer_watch_fd: execve(2) in the target waits until
 * each traced thread of that process is reaped, while PTRACE_SEIZE of another of its threads waits for that exec, so
 * the owner would sit in SEIZE and never reap.
 */
#ifndef SAMPLER_TRACER_H
#define SAMPLER_TRACER_H

#include "common/clock.h"
#include "common/histogram.h"
#include "sampler/waitstatus.h"
#include "unwind/snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Threads seized at one time, the overdue ones included. */
enum { TRACER_SLOTS = 256 };

/* How long a thread that has arrived may be held: see held_ns_max. Enough for 10 MB and more of stack. */
#define TRACER_HELD_NS_MAX (2 * NS_PER_MS)

enum tracer_outcome {
    TRACER_IN_FLIGHT,
    TRACER_CAPTURED,
    TRACER_VANISHED, /* the thread ended first: nothing to tell */
    TRACER_TIMEOUT,  /* did not stop in time */
    TRACER_FOREIGN,  /* runs 32-bit code */
    TRACER_FAILED    /* another error, in `error` */
};

/* One thread to sample. Lives until it is finished. The buffer is filled between stop and release, so it is there
 * before. */
struct tracer_request {
    pid_t pid;
    pid_t tid;
    uint8_t *buffer;
    size_t buffer_bytes;
    int mem_fd; /* /proc/PID/mem of the memory that the thread is thought to run in; -1: not known */
    /* The mapping in which the stack pointer was last: if it is there again, nothing beyond is read. Both 0: not known.
     */
    uint64_t stack_start_avma;
    uint64_t stack_end_avma;
    uint64_t stack_top_avma; /* above all that is wanted of that mapping (stackcopy_end); 0: not known */
    uint64_t last_sp_avma;   /* where it was in there; 0: not known */
    /*
     * Where on a signal stack the stack pointer of the interrupted code was last (struct stack); 0: not known. If that
     * word is in the copy, the stack that it points to is copied too, as far as there is room. Of a thread that is on a
     * stack not seen before, it is looked for, and filled in.
     */
    uint64_t interrupted_sp_at_avma;
    size_t stack_bytes_max; /* to copy of each stack; 0: what there is room for */
    /* So long after the thread's arrival no further piece of its stacks is copied; 0: no limit. */
    uint64_t held_ns_max;
    /*
     * The registers of the stop after which a system call of this thread was started again, if it may be in that call
     * still and is not to be started again, since its timeout would never be over; else none known.
     */
    struct registers restarted_at;

    /* Filled in. */
    bool in_wait; /* the stop has interrupted its system call: it slept, or was about to */
    enum tracer_outcome outcome;
    int error;
    struct registers registers;
    bool memory_gone;    /* mem_fd is of an image that exec has replaced: the snapshot is of another one */
    uint64_t bytes_avma; /* where buffer[0] was */
    size_t bytes;
    const uint8_t *other; /* the interrupted stack, in the buffer too */
    uint64_t other_avma;
    size_t other_bytes;        /* 0: there is no other stack */
    bool is_cut;               /* there was more to copy than there was time for */
    bool restarted;            /* the system call that the stop has ended was started again */
    bool is_endless;           /* and that one has no timeout */
    bool may_lose_timeout;     /* or one that a stop can rob it of (capture_arch.h) */
    uint64_t restarted_slices; /* then: how often the thread had been on a CPU */
    /*
     * CLOCK_MONOTONIC of a thread that was stopped; all 0 of one that was not. From the interrupt to its arrival it
     * waits for a CPU, if there is none for it; from then to the release it stands still for us alone. Of its arrival
     * is known when we were woken by it, or when we had last looked and it had not arrived: never later than it was.
     */
    uint64_t interrupted_ns;
    uint64_t arrived_ns;
    uint64_t released_ns;        /* when its release began, which takes some microseconds */
    struct tracer_request *next; /* the tracer's */
};

struct tracer_counters {
    uint64_t stops;
    uint64_t signals_forwarded;
    uint64_t group_stops; /* stops that met a stopped process, which stays so */
    uint64_t timeouts;
    uint64_t copies_cut;      /* stacks that were not copied whole for lack of time */
    uint64_t eintr_restarted; /* system calls that our stops would have ended with EINTR */
    struct histogram stop_ns; /* from the interrupt to the release */
    struct histogram held_ns; /* from the arrival to the release */
};

struct tracer;

/*
 * Whether this process may stop and copy at all, asked without touching anybody: 0, or the negative errno that every
 * request for it gets (a seccomp filter, as containers have).
 */
int tracer_check_allowed(void);

/* SIGCHLD is blocked in the calling thread. Returns 0 or a negative errno. */
int tracer_new(void (*exited)(void *context, pid_t pid, const struct wait_event *event), void *context,
               struct tracer **ret_tracer);

/* After tracer_release. */
void tracer_free(struct tracer *tracer);

/* Whom to tell of finished requests; before the first tracer_start. On the owner, from tracer_collect and
 * tracer_release, when no thread that has arrived is still stopped; may start others. */
void tracer_set_sink(struct tracer *tracer, void (*finished)(void *context, struct tracer_request *request),
                     void *context);

/*
 * Interrupts a thread. Returns 0: the request is in flight and will be finished; or a negative errno, and nothing
 * happened: -ESRCH, -EPERM (another tracer, no right, or a thread that is ending), -EBUSY (no slot is free, or the
 * thread is overdue from an earlier request).
 */
int tracer_start(struct tracer *tracer, struct tracer_request *request);

/* Handles everything that has arrived, and requests past their deadline. Never blocks. */
void tracer_collect(struct tracer *tracer);

/* The same if anybody is held, for between two steps of other work: who was asked earlier may have arrived. */
void tracer_serve(struct tracer *tracer);

/*
 * Collects until CLOCK_MONOTONIC reaches `deadline_ns` or `wake_fd` is readable (-1: none). With `until_idle` also
 * until no request is in flight. Returns whether wake_fd is readable.
 */
bool tracer_wait(struct tracer *tracer, int wake_fd, uint64_t deadline_ns, bool until_idle);

/* Looks for arrivals all the time until no request is in flight or CLOCK_MONOTONIC reaches `until_ns`: spares the
 * thread the time that it takes to wake us. */
void tracer_spin(struct tracer *tracer, uint64_t until_ns);

size_t tracer_in_flight(const struct tracer *tracer); /* requests not finished */
bool tracer_holds_any(const struct tracer *tracer);   /* threads are seized: those, and the overdue */

/*
 * The end: waits at most `timeout_ns` for all threads, so that they are released in the state they were in, and for
 * those that only wait for a CPU up to 5 s longer; requests
 * still in flight are then finished as TRACER_TIMEOUT. (Threads that still do not stop are released by the kernel when
 * the owner thread ends.)
 */
void tracer_release(struct tracer *tracer, uint64_t timeout_ns);

/* After some tracer_start calls: the other thread, which watches over them, need not any more. */
void tracer_watch_end(struct tracer *tracer);

/* Readable when tracer_watch is to be called, by a thread that is not the owner. */
int tracer_watch_fd(const struct tracer *tracer);
void tracer_watch(struct tracer *tracer);

/* Owner, or after its end. Borrowed. */
const struct tracer_counters *tracer_counters(const struct tracer *tracer);

/*
 * Reaps a child that is not traced, without waiting: 0 and *ret_event, -EAGAIN when it has not ended, -ECHILD when it
 * is no child or was reaped by another thread (then `exited` was told). Any thread but the owner.
 */
int tracer_reap_child(pid_t pid, struct wait_event *ret_event);

#endif
