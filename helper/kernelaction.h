/*
 * What the kernel keeps of a signal's disposition, as rt_sigaction(2) takes and gives it. The C library's struct
 * sigaction has the same parts in another order and with room for more signals.
 */
#ifndef HELPER_KERNELACTION_H
#define HELPER_KERNELACTION_H

#include "helper/rawcall.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERNEL_SA_RESTORER = 0x04000000 };
enum { KERNEL_HANDLER_DEFAULT = 0, KERNEL_HANDLER_IGNORE = 1 };

struct kernel_action {
    uint64_t handler_avma; /* or one of KERNEL_HANDLER_… */
    uint64_t flags;
    uint64_t restorer_avma;
    uint64_t mask;
};

static inline uint64_t kernel_mask_of(int signal)
{
    return 1ull << (unsigned)(signal - 1);
}

/* Both may be NULL. 0 or a negative errno. */
static inline int kernel_action_exchange(int signal, const struct kernel_action *action, struct kernel_action *ret_old)
{
    return (int)rawcall4(SYS_rt_sigaction, signal, (long)action, (long)ret_old, sizeof(uint64_t));
}

static inline bool kernel_action_has_function(const struct kernel_action *action)
{
    return action->handler_avma > KERNEL_HANDLER_IGNORE;
}

static inline bool kernel_action_equal(const struct kernel_action *a, const struct kernel_action *b)
{
    return a->handler_avma == b->handler_avma && a->flags == b->flags && a->restorer_avma == b->restorer_avma &&
           a->mask == b->mask;
}

#endif
