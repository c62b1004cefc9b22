/*
 * What the kernel tells of many threads at once (bpflook.h), as the rest of the sampler has it. Where that is not to be
 * had, nothing is told, and each thread is asked through its own files. The capture thread's.
 */
#ifndef SAMPLER_KERNELVIEW_H
#define SAMPLER_KERNELVIEW_H

#include "sampler/bpflook.h"
#include "sampler/cpuworkers.h"
#include "sampler/procfs.h"
#include "sampler/targets.h"
#include "unwind/snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERNELVIEW_BATCH = BPF_LOOK_BATCH };

struct kernelview {
    /* Set by the owner. */
    bool is_wanted;
    bool spins;        /* who waits for a worker looks all the time */
    uint64_t delay_ns; /* from the first tick to the loading of the program */

    uint64_t first_tick_ns;
    uint64_t looked_ns;         /* the tick of the last look */
    struct bpflook *bpflook;    /* owned; NULL: not yet, or not any more */
    struct cpuworkers *workers; /* owned; NULL: not yet */
};

/* A thread, and its registers and stack if it was on no CPU all the time in which they were read. */
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
    struct cpuworkers_times times; /* of its displacement; all 0: it was off its CPU by itself */
};

void kernelview_begin_tick(struct kernelview *view, uint64_t now_ns);
void kernelview_deinit(struct kernelview *view);

uint64_t
kernelview_load_ns(const struct kernelview *view); /* CPU time of loading the program, as soon as that is over */

bool kernelview_is_open(const struct kernelview *view); /* something is told; false for NULL */

/*
 * Counters and state of these threads, for their next look at the tick of `now_ns`: `fresh` and `told_stat`. Who is
 * gone is left without.
 */
void kernelview_look(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns);

/* Of at most KERNELVIEW_BATCH threads; those that run are displaced for it (cpuworkers.h). `ret` has as many. */
void kernelview_read(struct kernelview *view, struct thread *const *threads, size_t count, struct told *ret);

#endif
