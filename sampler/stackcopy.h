/*
 * One copy of a thread's stack, of a thread that is stopped, or that does not run. By process_vm_readv(2); but what is
 * small and has a known end, as most stacks are, through a descriptor of the memory: that asks nobody for permission,
 * and tells at once whether the memory is gone. (It reads guard pages too, so the end must be known.)
 */
#ifndef SAMPLER_STACKCOPY_H
#define SAMPLER_STACKCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stackcopy {
    pid_t tid;
    int mem_fd;        /* /proc/PID/mem of the memory that the stack is in; -1: not known */
    uint64_t until_ns; /* CLOCK_MONOTONIC: then no more pieces of 128 KB are begun; the first is, always */

    bool has_end; /* the copy's own */

    /* Filled in. */
    bool is_cut;      /* the rest was left for lack of time */
    bool has_memory;  /* read through mem_fd, so that is the thread's memory, or was just now */
    bool memory_gone; /* mem_fd is of memory that nobody has any more (exec, exit): nothing was read */
};

/*
 * Where a copy may end of a stack in a mapping that ends at `end_avma`, when nothing at or above `top_avma` was needed
 * so far (0: not known): a little above that.
 */
uint64_t stackcopy_end(uint64_t sp, uint64_t top_avma, uint64_t end_avma);

/*
 * Copies from the red zone below `sp` upward, `size` bytes at most and to `limit_avma` at most (0: no limit). The page
 * below the stack pointer's may be a guard page, which would fail the whole read; and how a read that meets a hole is
 * cut is the kernel's affair, so it is cut at pages by us when it was short. Returns how many bytes, from *ret_start.
 */
size_t stackcopy_read(struct stackcopy *copy, uint64_t sp, uint64_t limit_avma, uint8_t *buffer, size_t size,
                      uint64_t *ret_start);

#endif
