/* What a thread was doing when it was looked at, as far as the kernel tells. */
#ifndef SAMPLER_THREADSTATE_H
#define SAMPLER_THREADSTATE_H

#include <stddef.h>
#include <stdint.h>

/* The numbers stand in snapshot files: new ones go to the end. */
enum thread_state {
    THREAD_STATE_UNKNOWN,
    THREAD_RUNNING,  /* on a CPU */
    THREAD_RUNNABLE, /* waiting for one */
    THREAD_SLEEPING,
    THREAD_DISK_WAIT, /* asleep, and not to be disturbed */
    THREAD_STOPPED,   /* by job control or a tracer */
    THREAD_STATE_COUNT
};

/* Of the letter in /proc/PID/stat. R is THREAD_RUNNABLE: it may be running, too. */
enum thread_state thread_state_of(char letter);

/* A system call's number as samples keep it. -1: none, or one of the x32 ABI, which are large and have no name here. */
int16_t thread_state_call(int64_t number);

/* A thread's name for it in a profile: "running", or the name of the system call that it sleeps in ("epoll_wait"). */
enum { THREAD_STATE_NAME_BYTES = 40 };
void thread_state_name(enum thread_state state, int64_t call, char *ret_name);

#endif
