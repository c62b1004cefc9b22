/*
 * Looks at many threads with one system call: a BPF program reads in the kernel what /proc/PID/task/TID/stat, schedstat
 * and syscall tell, and of threads that are on no CPU all registers and the stack too, whether they sleep or wait for
 * their turn. For a thread that runs, another one interrupts its CPU and reads there what it was about. No thread is
 * stopped for it, or loses its CPU.
 *
 * Needs libbpf and a clang with BPF at build time, CAP_BPF and CAP_PERFMON (or root), a kernel with its type
 * information (/sys/kernel/btf/vmlinux), and Linux 6.14, or 6.2 in the first pid namespace. Where anything of that is
 * missing it is off, and nothing else changes.
 */
#ifndef SAMPLER_BPFLOOK_H
#define SAMPLER_BPFLOOK_H

#include "sampler/bpf/look.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpflook;

/* Begins to load the program, in a thread of its own: that takes some 20 ms. NULL: not built, or no memory. */
struct bpflook *bpflook_start(void);
void bpflook_hurry(
    struct bpflook *bpflook); /* loading has taken long: let it get CPU time before others, if permitted */
void bpflook_free(struct bpflook *bpflook); /* does not wait for the end of loading */

/* Loading has ended: true if with success. Before that nothing may be asked. */
bool bpflook_is_ready(const struct bpflook *bpflook);
bool bpflook_has_failed(const struct bpflook *bpflook);
uint64_t bpflook_load_ns(const struct bpflook *bpflook); /* CPU time of loading so far */

/* Of [0, BPF_LOOK_SLOTS): what to ask, and what was told at the last ask. Borrowed; shared with the program. */
struct bpf_look *bpflook_slot(struct bpflook *bpflook, size_t index);
const unsigned char *bpflook_stack(const struct bpflook *bpflook, size_t index);

/* Asks for those of the first `count` slots that want something. false: the kernel says no; nothing is told. */
bool bpflook_ask(struct bpflook *bpflook, size_t count);

/*
 * Interrupts that CPU for some microseconds, to read the thread that runs there, if it is the slot's (`tid` is its
 * number in the first pid namespace, as `first_tid` told it). The interrupt is the kernel's own kind for work on
 * another CPU (BPF_F_TEST_RUN_ON_CPU of BPF_PROG_TEST_RUN, Linux 5.10). Waits until it is over. false: as above.
 */
bool bpflook_read_running(struct bpflook *bpflook, size_t slot, int cpu);

/* As in /proc/PID/stat: R, S, D, T, t, X, Z, P or I. */
char bpflook_state(const struct bpf_look *look);

#endif
