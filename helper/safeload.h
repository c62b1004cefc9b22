/*
 * Loads that may fault. A bad address gives "no value"; no handler of the program sees anything of it.
 *
 * Two ways. By instruction: one known load and one known copy (safeload_x86_64.S); the handler of SIGSEGV and SIGBUS
 * knows their addresses and resumes at their continuations. It costs nothing and calls nothing, but these signals have
 * to be ours (safeload_own) and not blocked: blocked, a fault kills. By system call: process_vm_readv(2) on oneself,
 * which cannot fault, but which a seccomp filter may forbid.
 *
 * All async-signal-safe, errno untouched.
 */
#ifndef HELPER_SAFELOAD_H
#define HELPER_SAFELOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

enum safeload_way { SAFELOAD_INSTRUCTION, SAFELOAD_CALL };

/* Takes over SIGSEGV and SIGBUS for the first way. 0 or a negative errno. Not in a handler. */
int safeload_own(void);
void safeload_disown(void);

/* Can the first way be used now, in a handler that interrupted `context`? Both signals are ours and not blocked.
 * `may_call`: system calls are allowed, so the kernel is asked; else what is known has to do. */
bool safeload_may_use_instruction(const ucontext_t *context, bool may_call);

/* The 8 bytes at `avma`. false: they cannot be read. */
bool safe_load(enum safeload_way way, uint64_t avma, uint64_t *ret_value);

/* As many bytes from `avma` on as can be read, at most `size`; how many. */
size_t safe_copy(enum safeload_way way, void *buffer, uint64_t avma, size_t size);

/* Loads and copies of the first way that met a bad address, since the start. */
uint64_t safeload_faults(void);

#endif
