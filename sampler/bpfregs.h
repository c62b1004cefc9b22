/*
 * The registers of a sleeping thread without a stop, from the kernel itself: a BPF task iterator reads those with which
 * the thread entered it, the ones that a call preserves included, which /proc/PID/task/TID/syscall does not tell.
 *
 * Needs libbpf and a clang with BPF at build time, CAP_BPF and CAP_PERFMON (or root), a kernel that has its type
 * information (/sys/kernel/btf/vmlinux) and task iterators for one thread (Linux 6.1). Where anything of that is
 * missing it is off, and nothing else changes.
 */
#ifndef SAMPLER_BPFREGS_H
#define SAMPLER_BPFREGS_H

#include "unwind/snapshot.h"

#include <stdbool.h>
#include <sys/types.h>

struct bpfregs;

/* Loads the program, some 20 ms. NULL: not built, not permitted or not supported. */
struct bpfregs *bpfregs_new(void);
void bpfregs_free(struct bpfregs *bpfregs);

/*
 * The registers with which a thread entered the kernel, all but rax. They are those of now if it has not left it since,
 * which the caller has to know. false: the thread is gone, runs 32-bit code, or the kernel says no.
 */
bool bpfregs_read(struct bpfregs *bpfregs, pid_t tid, struct registers *ret);

#endif
