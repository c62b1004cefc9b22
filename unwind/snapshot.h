/*
 * What was copied from a stopped thread: its registers and the bytes of its stack. Plain data, no process behind it:
 * an unwinder test builds one from an array of words.
 */
#ifndef UNWIND_SNAPSHOT_H
#define UNWIND_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * DWARF register numbers of x86-64 (System V ABI AMD64 supplement, figure 3.36). 16 is the return address: the pc. Not
 * named REG_RAX etc., which <signal.h> defines with other values.
 */
enum {
    REGISTER_RAX,
    REGISTER_RDX,
    REGISTER_RCX,
    REGISTER_RBX,
    REGISTER_RSI,
    REGISTER_RDI,
    REGISTER_RBP,
    REGISTER_RSP,
    REGISTER_R8,
    REGISTER_R9,
    REGISTER_R10,
    REGISTER_R11,
    REGISTER_R12,
    REGISTER_R13,
    REGISTER_R14,
    REGISTER_R15,
    REGISTER_PC,
    REGISTER_COUNT
};

/* struct registers, known: all of them. */
enum { REGISTERS_ALL = (1U << REGISTER_COUNT) - 1 };

struct registers {
    uint64_t value[REGISTER_COUNT];
    uint32_t known; /* bit n: value[n] is what the thread had; a register that is not known is never read */
};

static inline bool registers_known(const struct registers *registers, unsigned reg)
{
    return registers->known >> reg & 1U;
}

/* Bytes that were at `avma` when the thread stood still. */
struct memory_range {
    uint64_t avma;
    const uint8_t *bytes; /* borrowed */
    size_t size;
    uint64_t mapping_end_avma; /* of the mapping that it is from, for other ranges than the first; 0: not known */
};

enum { SNAPSHOT_RANGES = 4 };

struct snapshot {
    struct registers registers;
    /* The mapping that holds the stack pointer, half-open; frame records must lie in it. Both 0: not known. */
    uint64_t stack_start_avma;
    uint64_t stack_end_avma;
    /* The first is the one from the stack pointer upward; others are of stacks that signal handlers interrupted. */
    struct memory_range ranges[SNAPSHOT_RANGES];
    size_t range_count;
};

/* Copies `size` bytes; false unless one range holds them all. */
bool snapshot_read(const struct snapshot *snapshot, uint64_t avma, void *buffer, size_t size);

/* The range whose copy would have had `avma` if it were larger: it lies in the stack's mapping above the copied bytes.
 * SNAPSHOT_RANGES for none. */
size_t snapshot_cut_range(const struct snapshot *snapshot, uint64_t avma);

static inline bool snapshot_is_cut(const struct snapshot *snapshot, uint64_t avma)
{
    return snapshot_cut_range(snapshot, avma) != SNAPSHOT_RANGES;
}

#endif
