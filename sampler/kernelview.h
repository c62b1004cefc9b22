/*
 * What the kernel tells of many threads at once (bpflook.h), as the rest of the sampler has it. Where that is not to be
 * had, nothing is told, and each thread is asked through its own files. The capture thread's.
 */
#ifndef SAMPLER_KERNELVIEW_H
#define SAMPLER_KERNELVIEW_H

#include "sampler/bpflook.h"
#include "sampler/procfs.h"
#include "sampler/targets.h"
#include "unwind/snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERNELVIEW_BATCH = BPF_LOOK_SLOTS };

struct kernelview {
    /* Set by the owner. */
    bool is_wanted;
    uint64_t delay_ns; /* from the first tick to the loading of the program */

    uint64_t first_tick_ns;
    struct bpflook *bpflook; /* owned; NULL: not yet, or not any more */

    /* The last look: its tick, and who is in each slot still, as it was then. */
    uint64_t looked_ns;
    const struct thread *looked_at[KERNELVIEW_BATCH];
};

/* Of whom registers and stack are to be told too, if they are on no CPU: it is likely that they will be read. */
enum kernelview_reads {
    KERNELVIEW_READS_NOBODY,
    KERNELVIEW_READS_RUNNABLE,
    KERNELVIEW_READS_MOVED, /* and those that have no kept sample */
};

/* When the CPU of a thread was asked for, and from when to when it was about the thread; CLOCK_MONOTONIC. */
struct interruption {
    uint64_t asked_ns;
    uint64_t began_ns;
    uint64_t ended_ns;
};

/* A thread, and its registers and stack if it did not run while they were read. */
struct told {
    bool is_known; /* else nothing was told of it */
    bool is_on_cpu;
    bool has_registers;
    struct procfs_stat stat; /* but for ppid */
    struct procfs_schedstat counters;
    struct registers registers; /* all but rax */
    int64_t call;               /* its number; -1: in none */
    bool is_in_handler;         /* on the stack that a signal handler of it had, as far as is known: no copy then */
    bool is_where_it_was;       /* on the stack of its last sample */
    const uint8_t *stack;       /* from here on valid until the next look or read */
    size_t stack_bytes;         /* 0: none, or too many */
    uint64_t stack_avma;
    struct interruption interruption; /* all 0: it was on no CPU */
};

/* Loads the program now, if it is wanted, and waits until that is over, but no longer than this. */
void kernelview_open(struct kernelview *view, uint64_t patience_ns);

void kernelview_begin_tick(struct kernelview *view, uint64_t now_ns); /* else it is loaded while ticks are taken */
void kernelview_deinit(struct kernelview *view);

uint64_t kernelview_load_ns(const struct kernelview *view); /* CPU time of loading the program, so far */

bool kernelview_is_open(const struct kernelview *view); /* something is told; false for NULL */

/*
 * Counters and state of these threads, for their next look at the tick of `now_ns`: `fresh` and `told_stat`. Who is
 * gone is left without.
 */
void kernelview_look(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns,
                     enum kernelview_reads reads);

/*
 * Of at most KERNELVIEW_BATCH threads; those that run are interrupted for it. `ret` has as many. Of whom the last look
 * told registers and stack, these are of then, once.
 */
void kernelview_read(struct kernelview *view, struct thread *const *threads, size_t count, struct told *ret);

#endif
