/*
 * Stacks out of what `perf script -F comm,tid,ip,sym,dso` prints, as our own collapsed stacks are. A sample is
 *
 *   spin-0  8281
 *           7f00000015ed spin_loop (/usr/bin/spinners)
 *           ffffffff8100 do_syscall_64 ([kernel.kallsyms])
 *
 * and ends with an empty line, the innermost frame first. Frames of the kernel are left out. The names of functions are
 * the target's: nothing here is believed.
 */
#ifndef SAMPLER_PERFSCRIPT_H
#define SAMPLER_PERFSCRIPT_H

#include "common/strbuf.h"
#include "sampler/stackcounts.h"

#include <stddef.h>

/*
 * Adds a count for each sample in `text`. One without a frame outside the kernel is "thread;[failed]"; these are in
 * *ret_failed. Lines that are nothing of the above are counted in `left_out`. Returns 0 or -ENOMEM.
 */
int perfscript_read(struct stackcounts *counts, struct strings *stacks, const char *text, size_t size,
                    uint64_t *ret_failed);

/*
 * Appends a stack of ours as perf would tell it: without inlined functions ("_[i]"), which it was told not to look for,
 * without marks at JIT code ("_[j]") and at a compiler's copies of C++ functions (" [clone .isra.0]"), without frames
 * of the kernel and "[truncated]".
 */
void perfscript_likewise(const char *stack, struct strbuf *to);

#endif
