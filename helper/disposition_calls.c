/*
 * The program's calls that set dispositions, where the helper stands before the C library. All of the C library's set
 * them by its own sigaction(2), which nobody can come before; so each is here. For signals that are not ours they go on
 * to the next library, but for what disposition_set_guard asks for.
 */
#include "helper/disposition.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#define EXPORTED __attribute__((visibility("default")))

enum { SIGNAL_MAX = 64, SIGCANCEL = 32, SIGSETXID = 33, SYSV_SA_INTERRUPT = 0x20000000 };

typedef void handler_function(int);

/* Not all are declared, depending on the standard that was asked for. */
EXPORTED int __sigaction(int signal, const struct sigaction *action, struct sigaction *old);
EXPORTED handler_function *bsd_signal(int signal, handler_function *handler);
EXPORTED handler_function *ssignal(int signal, handler_function *handler);
EXPORTED handler_function *sysv_signal(int signal, handler_function *handler);
EXPORTED handler_function *__sysv_signal(int signal, handler_function *handler);
EXPORTED handler_function *sigset(int signal, handler_function *handler);
EXPORTED int sigignore(int signal);
EXPORTED int siginterrupt(int signal, int interrupt);

static _Atomic(void *) next_sigaction, next_signal, next_sysv_signal, next_sigset, next_sigignore, next_siginterrupt;
static atomic_uint_least64_t interrupting; /* owned signals that siginterrupt(3) was called for */
static atomic_bool is_resolving;

/* A program's own allocator may set handlers when dlsym(3) calls it: NULL then. */
static void *next(_Atomic(void *) *symbol, const char *name)
{
    void *found = atomic_load_explicit(symbol, memory_order_acquire);
    if (found || atomic_exchange(&is_resolving, true))
        return found;
    found = dlsym(RTLD_NEXT, name);
    atomic_store(&is_resolving, false);
    atomic_store_explicit(symbol, found, memory_order_release);
    return found;
}

__attribute__((constructor)) static void resolve_all(void)
{
    next(&next_sigaction, "sigaction");
    next(&next_signal, "signal");
    next(&next_sysv_signal, "__sysv_signal");
    next(&next_sigset, "sigset");
    next(&next_sigignore, "sigignore");
    next(&next_siginterrupt, "siginterrupt");
}

static handler_function *wrong_handler(void)
{
    errno = EINVAL;
    return SIG_ERR;
}

static int result_of(int error)
{
    if (!error)
        return 0;
    errno = -error;
    return -1;
}

static bool is_valid(int signal)
{
    return signal >= 1 && signal <= SIGNAL_MAX;
}

static struct kernel_action to_kernel(const struct sigaction *action)
{
    struct kernel_action converted = {
        .handler_avma = (uint64_t)action->sa_handler,
        .flags = (uint64_t)(int64_t)action->sa_flags | KERNEL_SA_RESTORER,
        .restorer_avma = disposition_restorer_avma(),
    };
    __builtin_memcpy(&converted.mask, &action->sa_mask, sizeof converted.mask);
    return converted;
}

static void from_kernel(const struct kernel_action *action, struct sigaction *ret_action)
{
    __builtin_memset(ret_action, 0, sizeof *ret_action);
    ret_action->sa_handler = (handler_function *)action->handler_avma; // NOLINT
    ret_action->sa_flags = (int)action->flags;
    ret_action->sa_restorer = (void (*)(void))action->restorer_avma; // NOLINT
    __builtin_memcpy(&ret_action->sa_mask, &action->mask, sizeof action->mask);
}

/* Signals that are not ours. */
static int sigaction_of_others(int signal, const struct sigaction *action, struct sigaction *old)
{
    int (*real)(int, const struct sigaction *, struct sigaction *) = NULL;
    *(void **)&real = next(&next_sigaction, "sigaction");
    bool reserved = !is_valid(signal) || signal == SIGCANCEL || signal == SIGSETXID;
    struct kernel_action set, before;
    if (action)
        set = to_kernel(action);
    if (reserved && !real)
        return result_of(-EINVAL);
    if (reserved || (real && !(action && disposition_add_guard(signal, &set)))) {
        int result = real(signal, action, old);
        if (result == 0 && old) {
            before = to_kernel(old);
            before.flags = (uint64_t)(int64_t)old->sa_flags;
            before.restorer_avma = (uint64_t)old->sa_restorer;
            struct kernel_action as_set = before;
            disposition_as_set(signal, &as_set);
            if (!kernel_action_equal(&as_set, &before))
                from_kernel(&as_set, old);
        }
        return result;
    }
    if (action && !real)
        disposition_add_guard(signal, &set);
    int error = kernel_action_exchange(signal, action ? &set : NULL, &before);
    if (error)
        return result_of(error);
    disposition_as_set(signal, &before);
    if (old)
        from_kernel(&before, old);
    return 0;
}

static int set_action(int signal, const struct sigaction *action, struct sigaction *old)
{
    if (!is_valid(signal) || !disposition_owns(signal))
        return sigaction_of_others(signal, action, old);
    struct kernel_action set, before;
    if (action)
        set = to_kernel(action);
    int error = disposition_exchange(signal, action ? &set : NULL, &before);
    if (error)
        return result_of(error);
    if (old)
        from_kernel(&before, old);
    return 0;
}

EXPORTED int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    return set_action(signal, action, old);
}

int __sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    return set_action(signal, action, old);
}

/* 0, or -1 with errno. (The handler before may be SIG_ERR, where one has set that.) */
static int set_handler(int signal, handler_function *handler, int flags, uint64_t mask, handler_function **ret_before)
{
    struct sigaction action = {.sa_flags = flags};
    struct sigaction old;
    action.sa_handler = handler;
    __builtin_memcpy(&action.sa_mask, &mask, sizeof mask);
    if (set_action(signal, &action, &old) != 0)
        return -1;
    *ret_before = old.sa_handler;
    return 0;
}

/* A signal that is not ours is for the next library: true, with its answer. */
static bool is_for_next(_Atomic(void *) *symbol, const char *name, int signal, handler_function *handler,
                        handler_function **ret_answer)
{
    if (is_valid(signal) && disposition_owns(signal))
        return false;
    handler_function *(*real)(int, handler_function *) = NULL;
    *(void **)&real = next(symbol, name);
    if (!real && is_valid(signal))
        return false;
    *ret_answer = real ? real(signal, handler) : SIG_ERR;
    return true;
}

static handler_function *set_bsd(int signal, handler_function *handler)
{
    handler_function *before;
    if (is_for_next(&next_signal, "signal", signal, handler, &before))
        return before;
    if (handler == SIG_ERR)
        return wrong_handler();
    uint64_t own = kernel_mask_of(signal);
    int flags = atomic_load(&interrupting) & own ? 0 : SA_RESTART;
    return set_handler(signal, handler, flags, own, &before) == 0 ? before : SIG_ERR;
}

EXPORTED handler_function *signal(int number, handler_function *handler)
{
    return set_bsd(number, handler);
}

handler_function *bsd_signal(int signal, handler_function *handler)
{
    return set_bsd(signal, handler);
}

handler_function *ssignal(int signal, handler_function *handler)
{
    return set_bsd(signal, handler);
}

static handler_function *set_sysv(int signal, handler_function *handler)
{
    handler_function *before;
    if (is_for_next(&next_sysv_signal, "__sysv_signal", signal, handler, &before))
        return before;
    if (handler == SIG_ERR)
        return wrong_handler();
    int flags = (int)(SA_RESETHAND | SA_NODEFER | SYSV_SA_INTERRUPT);
    return set_handler(signal, handler, flags, 0, &before) == 0 ? before : SIG_ERR;
}

handler_function *sysv_signal(int signal, handler_function *handler)
{
    return set_sysv(signal, handler);
}

handler_function *__sysv_signal(int signal, handler_function *handler)
{
    return set_sysv(signal, handler);
}

static int change_mask(int how, uint64_t mask, uint64_t *ret_old)
{
    return result_of((int)rawcall4(SYS_rt_sigprocmask, how, (long)&mask, (long)ret_old, sizeof mask));
}

/* SIG_HOLD blocks the signal and leaves its disposition; everything else unblocks it. */
handler_function *sigset(int signal, handler_function *handler)
{
    handler_function *before;
    if (is_for_next(&next_sigset, "sigset", signal, handler, &before))
        return before;
    uint64_t own = kernel_mask_of(signal);
    uint64_t blocked;
    if (handler == SIG_HOLD) {
        struct sigaction now;
        if (change_mask(SIG_BLOCK, own, &blocked) != 0)
            return SIG_ERR;
        if (blocked & own)
            return SIG_HOLD;
        return set_action(signal, NULL, &now) == 0 ? now.sa_handler : SIG_ERR;
    }
    if (set_handler(signal, handler, 0, 0, &before) != 0 || change_mask(SIG_UNBLOCK, own, &blocked) != 0)
        return SIG_ERR;
    return blocked & own ? SIG_HOLD : before;
}

int sigignore(int signal)
{
    int (*real)(int) = NULL;
    if (!is_valid(signal) || !disposition_owns(signal)) {
        *(void **)&real = next(&next_sigignore, "sigignore");
        if (real || !is_valid(signal))
            return real ? real(signal) : -1;
    }
    handler_function *before;
    return set_handler(signal, SIG_IGN, 0, 0, &before);
}

/* Also of later calls of signal(3). The C library's own keeps note of what is not ours. */
int siginterrupt(int signal, int interrupt)
{
    int (*real)(int, int) = NULL;
    struct sigaction action;
    if (set_action(signal, NULL, &action) != 0)
        return -1;
    action.sa_flags = interrupt ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    if (!disposition_owns(signal)) {
        *(void **)&real = next(&next_siginterrupt, "siginterrupt");
        if (real && real(signal, interrupt) != 0)
            return -1;
    } else if (interrupt) {
        atomic_fetch_or(&interrupting, kernel_mask_of(signal));
    } else {
        atomic_fetch_and(&interrupting, ~kernel_mask_of(signal));
    }
    return set_action(signal, &action, NULL);
}
