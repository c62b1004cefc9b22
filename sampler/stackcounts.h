/*
 * How often each stack was seen, read from collapsed text. Stacks are numbers of a `struct strings` that all counts
 * which are compared share, so that equal stacks have equal numbers. The text comes from a file: nothing in it is
 * believed.
 */
#ifndef SAMPLER_STACKCOUNTS_H
#define SAMPLER_STACKCOUNTS_H

#include "common/strings.h"

#include <stddef.h>
#include <stdint.h>

/* Stacks beyond that many different ones are left out, and counted. */
enum { STACKS_MAX = 1 << 20, STACK_DEPTH_MAX = 1 << 16 };

struct stackcount {
    uint32_t stack;
    uint64_t count;
};

/* All zero is empty. A stack may stand there more than once. */
struct stackcounts {
    struct stackcount *items; /* owned */
    size_t count;
    size_t capacity;
    uint64_t total;
    uint64_t left_out; /* lines that could not be taken: not "stack COUNT", or too many stacks */
};

void stackcounts_deinit(struct stackcounts *counts);

/* `stack` is one line's text, thread's name first. Returns 0 or -ENOMEM. */
int stackcounts_add(struct stackcounts *counts, struct strings *stacks, const char *stack, uint64_t count);

/*
 * Adds each line of `text`, of which the last may lack its newline: `thread;outermost;...;innermost COUNT`. Returns 0
 * or -ENOMEM; lines that are something else are counted in `left_out`.
 */
int stackcounts_read(struct stackcounts *counts, struct strings *stacks, const char *text, size_t size);

/* Frames of a stack's text: neither the thread's name nor a mark like "[truncated]" behind it; 0 for "[failed]". */
size_t stackcounts_depth(const char *stack);

#endif
