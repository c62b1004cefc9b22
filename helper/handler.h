/*
 * What a signal of ours does: looks at the interrupted stack and leaves a record. Async-signal-safe; calls nothing but
 * what stands here, takes no lock, allocates nothing, and needs less than HANDLER_STACK_BYTES of the stack that it is
 * on. errno is not touched, since no system call goes through the C library; registers and the signal mask are the
 * kernel's to restore.
 */
#ifndef HELPER_HANDLER_H
#define HELPER_HANDLER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

/* As disposition_take has it. */
bool handler_take(int signal, siginfo_t *info, ucontext_t *context);

/* So much the kernel may put on a stack to deliver a signal (AT_MINSIGSTKSZ). Before any signal. */
void handler_set_frame_bytes(size_t bytes);

/* Lets go of everything: timers, signals, shared memory. Also not in a handler. */
void handler_withdraw(void);

#endif
