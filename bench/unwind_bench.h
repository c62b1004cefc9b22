/*
 * The speed of unwinding. Each part prints lines "NAME VALUE…" for bench/unwind.py, which knows what is to be expected;
 * returns 0 or a negative errno. Times are CPU time of the measuring thread, system calls included: what else runs on
 * the machine counts less. A walk that gives other frames than it should is -EPROTO: a fast wrong answer is none.
 */
#ifndef BENCH_UNWIND_BENCH_H
#define BENCH_UNWIND_BENCH_H

#include "unwind/unwind.h"

#include <stddef.h>
#include <sys/types.h>

/* One stopped thread and its snapshot, by five unwinders in turn: us a stack. */
int bench_warm(pid_t pid, size_t rounds);

/* Different stacks of one working program, kept in memory and walked again: us a stack, in the first pass and later. */
int bench_varied(char **program, size_t stacks);

/*
 * A library of `functions` functions of `stride` bytes, which all begin with push %rbx, seen for the first time: us to
 * the first frame, and the memory that is held after 1,000 of its functions.
 */
int bench_cold(const char *path, size_t functions, size_t stride);

void bench_print_counters(const char *name, struct unwind_counters counters);

#endif
