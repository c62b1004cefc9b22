/* What the BPF program is asked of a thread, and tells. Both sides include this, so it includes nothing that needs a C
 * library. */
#ifndef SAMPLER_BPF_LOOK_H
#define SAMPLER_BPF_LOOK_H

#include "record.h"

enum {
    BPF_LOOK_SLOTS = 32,             /* threads at a time */
    BPF_LOOK_STACK_BYTES = 64 << 10, /* of a stack, at most */
    BPF_LOOK_HANDLER_BYTES = 64 << 10,
    BPF_LOOK_COMM_BYTES = 16 /* TASK_COMM_LEN */
};

/* Of a thread that is on no CPU, registers and stack too? */
enum bpf_look_wants {
    BPF_LOOK_NOTHING, /* the slot stays as it is */
    BPF_LOOK_COUNTERS,
    BPF_LOOK_REGISTERS,
    BPF_LOOK_REGISTERS_IF_MOVED,   /* if the counters are not the known ones */
    BPF_LOOK_REGISTERS_IF_RUNNABLE /* if it waits for a CPU */
};

struct bpf_look {
    /* Asked. */
    unsigned int tid;   /* in the pid namespace of who asks; of who is interrupted: in the first one */
    unsigned int wants; /* enum bpf_look_wants; once told, nothing */
    unsigned long long known_run_ns, known_slices;
    unsigned long long stack_start_avma; /* where the thread's stack is thought to be; none: 0 and 0 */
    unsigned long long stack_end_avma;
    unsigned long long stack_top_avma;   /* if the stack pointer is below this, */
    unsigned long long stack_limit_avma; /* nothing at or above this is needed */
    unsigned long long
        handler_avma; /* just below this it is in a signal handler, and its stack not wanted; 0: nowhere */
    unsigned int red_zone_bytes;
    unsigned int stack_bytes; /* of it, at most */

    /* Told. The counters were read first. */
    unsigned int is_there;
    unsigned int first_tid; /* in the first pid namespace */
    unsigned int state;     /* __state, exit_state and flags of struct task_struct */
    unsigned int exit_state;
    unsigned int flags;
    unsigned int is_on_cpu;
    unsigned int processor;
    unsigned int threads;                       /* of its process */
    unsigned long long run_ns, wait_ns, slices; /* as /proc/PID/schedstat */
    unsigned long long began_ns;                /* CLOCK_BOOTTIME */
    unsigned long long code_start_avma, code_end_avma, first_stack_avma;
    char comm[BPF_LOOK_COMM_BYTES];
    unsigned long long began_reading_ns, ended_reading_ns; /* of who was interrupted; CLOCK_MONOTONIC */
    /* It did not run from before the registers were read until after the stack was; only then are these told. */
    unsigned int has_registers;
    unsigned int copied_bytes; /* in the entry of the other map; 0: no stack there, or more than has room. Of a stack
                                * pointer elsewhere: what is there from it on, whole pages */
    unsigned long long copied_avma;
    unsigned long long words[BPF_REGISTERS_WORDS];
};

struct bpf_look_stack {
    unsigned char bytes[BPF_LOOK_STACK_BYTES];
};

/* The first program's argument; the second one's is the number of a slot. */
struct bpf_look_request {
    unsigned int count; /* of slots, from the first one on */
};

#endif
