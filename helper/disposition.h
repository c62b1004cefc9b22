/*
 * Signals that the helper handles in a program that may handle them too.
 *
 * The kernel has one handler for a signal. For an owned signal that is ours: it asks `take` first, and what is not ours
 * goes on to the program's own disposition as if we were not there: default, ignored, a plain or an SA_SIGINFO handler,
 * with its flags (SA_RESETHAND, SA_NODEFER, SA_ONSTACK, SA_RESTART), its mask, and the siginfo and context that the
 * kernel gave. The program may change its disposition at any time: its calls of sigaction(2) and its relatives are ours
 * where the helper was preloaded (disposition_calls.c), and it reads back what it has set. A program that asks the
 * kernel itself (raw system calls, or the helper came later) replaces ours: disposition_is_ours says so.
 *
 * How: each different disposition of the program gets an entry point of its own (disposition_x86_64.S), and the kernel
 * is given that one together with the program's flags and mask. So the kernel's table is the only state there is: a
 * change is one system call, no thread meets the handler of one disposition with the flags of another, and a child of
 * vfork(2), which has our memory but a table of its own, cannot change its parent's. The entry point jumps to the
 * program's handler, which finds stack and registers as the kernel has made them.
 *
 * Not as without us: who executes another program while the signal is ignored hands it on with its default action; a
 * handler of SIGSEGV that the program's stack has no room for makes a core say SI_KERNEL; and a fault whose default
 * action is to kill is let happen again, so another thread may have repaired its cause by then.
 */
#ifndef HELPER_DISPOSITION_H
#define HELPER_DISPOSITION_H

#include "helper/kernelaction.h"

#include <signal.h>
#include <stdbool.h>
#include <ucontext.h>

/*
 * Is the signal ours? Called in the handler, async-signal-safe; true: it was handled, and the interrupted code goes on
 * with the context as it is then.
 */
typedef bool disposition_take(int signal, siginfo_t *info, ucontext_t *context);

/*
 * Takes over the signal, at most four of them; what the program had for it is kept. `flags`: SA_ONSTACK and SA_RESTART,
 * which ours has even where the program's has not. 0 or a negative errno: EINVAL (also for signals that stop or
 * continue a process), ENOSPC. Not in a handler, and one at a time.
 */
int disposition_own(int signal, disposition_take *take, int flags);

/*
 * Gives it back: the kernel has the program's own disposition again, unless somebody has replaced ours meanwhile.
 * Async-signal-safe. Handlers that run just then, and late signals, still find the way to `take` and to the program's.
 */
void disposition_disown(int signal);

/* Does the kernel have our handler for it now? One system call. Async-signal-safe. */
bool disposition_is_ours(int signal);

/* The same as far as it is known without a system call: a replacement by a raw one goes unseen. */
bool disposition_seems_ours(int signal);

/* Could our handler of an owned signal, other than SIGSEGV and SIGBUS, run with `signal` blocked, by a mask that the
 * program has set for it? As far as is known without a system call, and once yes always yes. */
bool disposition_may_block(int signal);

/*
 * Handlers on an alternate stack (SA_ONSTACK) are not interrupted by `signal`: it is added to their masks in the
 * kernel, since a second frame might not fit a small stack. The program does not read that back. 0: no longer. Counts
 * for handlers that are there and for those that come. Not in a handler.
 */
void disposition_set_guard(int signal);

/* For disposition_calls.c; all async-signal-safe. */

bool disposition_owns(int signal);

/* The program's disposition of an owned signal; `action` NULL: it stays. 0 or a negative errno. `ret_old` may be NULL.
 */
int disposition_exchange(int signal, const struct kernel_action *action, struct kernel_action *ret_old);

/* Of what the kernel says of any signal: what the program has set. */
void disposition_as_set(int signal, struct kernel_action *action);

/* Adds the guard's signal where it belongs. true: the action was changed. */
bool disposition_add_guard(int signal, struct kernel_action *action);

/* Where handlers that were installed by the C library return to. */
uint64_t disposition_restorer_avma(void);

#endif
