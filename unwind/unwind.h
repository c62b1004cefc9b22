/*
 * Snapshot to stack.
 *
 * In: registers and stack bytes (snapshot.h), the code that was mapped (codemap.h), and a way to read other memory.
 * Out: code addresses and how the walk ended (stack.h). No pid, no procfs, no ptrace here.
 *
 * One unwinder belongs to one thread. It keeps, per image, the index of its unwind tables and the rules that were used,
 * for all address spaces; and per address space which places in anonymous memory are call sites, until the codemap's
 * generation changes. Nothing is shared. Images that it has seen must outlive it.
 */
#ifndef UNWIND_UNWIND_H
#define UNWIND_UNWIND_H

#include "unwind/codemap.h"
#include "unwind/snapshot.h"
#include "unwind/stack.h"

enum unwind_mode {
    UNWIND_AUTO, /* per frame: CFI where it covers the pc, else a frame pointer that can be believed */
    /*
     * Frame pointers; CFI where the chain cannot be believed. An exact frame (innermost, interrupted by a signal) is
     * left by CFI where there is some: at a function's first and last instructions rbp is still or already its
     * caller's.
     */
    UNWIND_FP,
    UNWIND_DWARF /* CFI only */
};

/*
 * Reads `size` bytes of code, before a return address in executable memory without an ELF image (JIT code). Never asked
 * for data: what a stack holds now is not what it held when the thread stood still. Returns false when they cannot be
 * had. May be NULL: then such bytes are not to be had. Called on the unwinder's thread.
 */
struct memory_reader {
    bool (*read)(void *context, uint64_t avma, void *buffer, size_t size);
    void *context;
};

struct unwind_counters {
    uint64_t frames_by[FRAME_BY_COUNT]; /* enum frame_by; the innermost ones are not counted */
    /* Rules from unwind information: found by address; another address in a row that was known; compiled, of which
       some are for addresses that nothing covers, damaged, or left to libunwind; and how often the tables were full,
       so that all had to be compiled again. What is in the tables now, and its size. */
    uint64_t rule_hits;
    uint64_t rule_row_hits;
    uint64_t rules_compiled;
    uint64_t rules_uncovered;
    uint64_t rules_bad;
    uint64_t rules_foreign;
    uint64_t rule_flushes;
    uint64_t rules;
    uint64_t rule_bytes;
};

struct unwinder;
struct unwind_space; /* what the unwinder keeps for one address space */

struct unwinder *unwinder_new(enum unwind_mode mode, size_t max_depth); /* NULL: no memory */
void unwinder_free(struct unwinder *unwinder);                          /* after its spaces */

struct unwind_space *unwind_space_new(struct unwinder *unwinder); /* NULL: no memory */
void unwind_space_free(struct unwind_space *space);

/*
 * Walks one snapshot. `ret_stack` is cleared first; its memory is reused. It has at least the innermost frame on
 * success. Returns 0, or -EINVAL when the snapshot has no pc or no stack pointer, or -ENOMEM. How a walk ended is in
 * ret_stack->end.
 */
int unwind_walk(struct unwinder *unwinder, struct unwind_space *space, const struct codemap *map,
                const struct snapshot *snapshot, const struct memory_reader *reader, struct stack *ret_stack);

struct unwind_counters unwinder_counters(const struct unwinder *unwinder);

#endif
