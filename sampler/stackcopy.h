/* One copy of a thread's stack, by process_vm_readv(2): of a thread that is stopped, or that does not run. */
#ifndef SAMPLER_STACKCOPY_H
#define SAMPLER_STACKCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Copies from the red zone below `sp` upward, `size` bytes at most and to `limit_avma` at most (0: no limit). The page
 * below the stack pointer's may be a guard page, which would fail the whole read; and how a read that meets a hole is
 * cut is the kernel's affair, so it is cut at pages by us when it was short. Returns how many bytes, from *ret_start.
 */
size_t stackcopy_read(pid_t tid, uint64_t sp, uint64_t limit_avma, uint8_t *buffer, size_t size, uint64_t *ret_start);

/*
 * The same of a thread that is stopped, and must not be for long: in pieces of 128 KB, of which no more is begun once
 * CLOCK_MONOTONIC has reached `until_ns` (the first is, always). *ret_cut: the rest was left for lack of time.
 */
size_t stackcopy_read_until(pid_t tid, uint64_t sp, uint64_t limit_avma, uint64_t until_ns, uint8_t *buffer,
                            size_t size, uint64_t *ret_start, bool *ret_cut);

#endif
