/*
 * Signals that the helper handles in a program that may handle them too.
 *
 * The kernel has one handler for a signal. For an owned signal that is ours: it asks `take` first, and what is not ours
 * goes on to the program's own disposition as if we were not there: default, ignored, a plain or an SA_SIGINFO handler,
 * with its flags (SA_RESETHAND, SA_NODEFER, SA_ONSTACK, SA_RESTART), its mask, and the siginfo and context that the
 * kernel gave. The program may change its disposition at any time: its calls of sigaction(2) and its relatives are ours
 * where the helper was preloaded (disposition_calls.c), and it reads back what it has set. A program that asks the
 * kernel itself (raw system calls, or the helper came later) replaces ours: disposition_is_ours says so.
 */
#ifndef HELPER_DISPOSITION_H
#define HELPER_DISPOSITION_H

#include <signal.h>
#include <stdbool.h>
#include <ucontext.h>

/*
 * Is the signal ours? Called in the handler, async-signal-safe; true: it was handled, and the interrupted code goes on
 * with the context as it is then.
 */
typedef bool disposition_take(int signal, siginfo_t *info, ucontext_t *context);

/*
 * Takes over the signal; what the program had for it is kept. `flags`: SA_ONSTACK and SA_RESTART, which ours has even
 * where the program's has not. 0 or a negative errno. Not in a handler.
 */
int disposition_own(int signal, disposition_take *take, int flags);

/*
 * Gives it back: the kernel has the program's own disposition again, unless somebody has replaced ours meanwhile.
 * Async-signal-safe. Handlers that run just then, and late signals, still find the way to the program's.
 */
void disposition_disown(int signal);

/* Does the kernel have our handler for it now? One system call. Async-signal-safe. */
bool disposition_is_ours(int signal);

#endif
