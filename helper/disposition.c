#include "helper/disposition.h"

#include "helper/disposition_entries.h"
#include "helper/rawcall.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

enum { TRIES_MAX = 100, SIGNAL_MAX = 64 };
enum record_state { RECORD_EMPTY, RECORD_BEING_FILLED, RECORD_READY };

/* Flags that each kernel gives back as they were set. Others it may drop, and so do we. */
static const uint64_t lasting_flags =
    SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER | SA_RESETHAND | KERNEL_SA_RESTORER;

/* A disposition that the program had; once ready it stays what it is, since the kernel, a handler that has just begun
 * or another process of vfork(2) may refer to it. */
struct record {
    _Atomic enum record_state state;
    struct kernel_action action;
};

struct owned {
    atomic_int signal; /* 0: free; never another one again */
    _Atomic(disposition_take *) take;
    atomic_int flags;
    atomic_bool active;
    atomic_bool installed;       /* as far as we know */
    atomic_uint_least64_t masks; /* of all records with a function */
    struct record records[DISPOSITION_RECORDS];
};

/* disposition_x86_64.S */
extern const char disposition_entries[] __attribute__((visibility("hidden")));
extern const char disposition_restorer[] __attribute__((visibility("hidden")));
extern const char disposition_guard_restorer[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) uint64_t disposition_dispatch(int signal, siginfo_t *info, ucontext_t *context,
                                                                    unsigned entry);

static struct owned owneds[DISPOSITION_OWNED_MAX];
static atomic_int guard_signal;
static atomic_uint_least64_t guards; /* all that there were */
static atomic_uint_least64_t libc_restorer_avma;

static struct owned *owned_find(int signal)
{
    for (unsigned i = 0; signal > 0 && i < DISPOSITION_OWNED_MAX; i++)
        if (atomic_load(&owneds[i].signal) == signal)
            return &owneds[i];
    return NULL;
}

static struct owned *owned_add(int signal)
{
    struct owned *owned = owned_find(signal);
    for (unsigned i = 0; !owned && i < DISPOSITION_OWNED_MAX; i++) {
        int free_signal = 0;
        if (atomic_compare_exchange_strong(&owneds[i].signal, &free_signal, signal))
            owned = &owneds[i];
    }
    return owned;
}

static uint64_t entry_avma(const struct owned *owned, unsigned record)
{
    unsigned entry = (unsigned)(owned - owneds) * DISPOSITION_RECORDS + record;
    return (uint64_t)disposition_entries + entry * DISPOSITION_ENTRY_BYTES;
}

/* The record that the kernel's action stands for; negative: it is not ours. */
static int record_of(const struct owned *owned, const struct kernel_action *in_kernel)
{
    uint64_t off = in_kernel->handler_avma - entry_avma(owned, 0);
    return off < DISPOSITION_RECORDS * DISPOSITION_ENTRY_BYTES ? (int)(off / DISPOSITION_ENTRY_BYTES) : -1;
}

/* Without a lock: a program may call sigaction(2) in handlers, also in one that has interrupted this. Two of the same
 * do no harm. Negative: there is no room. */
static int record_for(struct owned *owned, const struct kernel_action *action)
{
    for (unsigned i = 0; i < DISPOSITION_RECORDS; i++) {
        struct record *record = &owned->records[i];
        enum record_state state = RECORD_EMPTY;
        if (atomic_compare_exchange_strong(&record->state, &state, RECORD_BEING_FILLED)) {
            record->action = *action;
            if (kernel_action_has_function(action))
                atomic_fetch_or(&owned->masks, action->mask);
            atomic_store(&record->state, RECORD_READY);
            return (int)i;
        }
        if (state == RECORD_READY && kernel_action_equal(&record->action, action))
            return (int)i;
    }
    return -1;
}

uint64_t disposition_restorer_avma(void)
{
    uint64_t avma = atomic_load(&libc_restorer_avma);
    return avma ? avma : (uint64_t)disposition_restorer;
}

bool disposition_add_guard(int signal, struct kernel_action *action)
{
    int guard = atomic_load(&guard_signal);
    if (!guard || guard == signal || !(action->flags & SA_ONSTACK) || !kernel_action_has_function(action) ||
        action->mask & kernel_mask_of(guard))
        return false;
    /* A restorer that is not the C library's belongs to the program, and may be more than it seems. */
    if (action->flags & KERNEL_SA_RESTORER && action->restorer_avma != disposition_restorer_avma())
        return false;
    action->mask |= kernel_mask_of(guard);
    action->flags |= KERNEL_SA_RESTORER;
    action->restorer_avma = (uint64_t)disposition_guard_restorer;
    return true;
}

/* What the kernel is given for a record. The program's flags and mask are the kernel's business: so stack, mask and
 * nesting are as without us. */
static struct kernel_action action_for_kernel(const struct owned *owned, unsigned record)
{
    struct kernel_action action = owned->records[record].action;
    bool guarded = disposition_add_guard(atomic_load(&owned->signal), &action);
    action.flags &= ~(uint64_t)SA_RESETHAND;
    action.flags |= SA_SIGINFO | (uint64_t)atomic_load(&owned->flags);
    if (!kernel_action_has_function(&action)) {
        /* No code of the program runs. Ours runs also where a stack is used up, and no call ends early by it. */
        action.flags |= SA_ONSTACK | SA_RESTART;
        action.flags &= ~(uint64_t)SA_NODEFER;
        /* And no other handler of the program's comes between, which might jump out of ours. Faults must stay. */
        action.mask = ~(kernel_mask_of(SIGSEGV) | kernel_mask_of(SIGBUS) | kernel_mask_of(SIGILL) |
                        kernel_mask_of(SIGFPE) | kernel_mask_of(SIGTRAP) | kernel_mask_of(SIGSYS));
    }
    if (!(action.flags & KERNEL_SA_RESTORER)) {
        action.flags |= KERNEL_SA_RESTORER;
        action.restorer_avma = disposition_restorer_avma();
    }
    if (!guarded && action.restorer_avma == (uint64_t)disposition_guard_restorer)
        action.restorer_avma = disposition_restorer_avma();
    action.handler_avma = entry_avma(owned, record);
    return action;
}

static int install(struct owned *owned, unsigned record, struct kernel_action *ret_old)
{
    struct kernel_action action = action_for_kernel(owned, record);
    int error = kernel_action_exchange(atomic_load(&owned->signal), &action, ret_old);
    if (!error)
        atomic_store(&owned->installed, true);
    return error;
}

/* Lets the C library install `action` once, and looks where it has handlers return to. false: that replaced something
 * else than `old`, which is there again. */
static bool learn_restorer(int signal, const struct kernel_action *action, const struct kernel_action *old)
{
    int (*libc_sigaction)(int, const struct sigaction *, struct sigaction *) = NULL;
    *(void **)&libc_sigaction = dlsym(RTLD_NEXT, "sigaction");
    struct sigaction set = {.sa_flags = (int)(action->flags & ~(uint64_t)KERNEL_SA_RESTORER)};
    struct sigaction replaced;
    set.sa_handler = (void (*)(int))action->handler_avma; // NOLINT
    __builtin_memcpy(&set.sa_mask, &action->mask, sizeof action->mask);
    if (!libc_sigaction || libc_sigaction(signal, &set, &replaced) != 0)
        return true; /* ours serves as well */
    if ((uint64_t)replaced.sa_handler != old->handler_avma) {
        libc_sigaction(signal, &replaced, NULL);
        return false;
    }
    struct kernel_action in_kernel;
    if (kernel_action_exchange(signal, NULL, &in_kernel) == 0 && in_kernel.handler_avma == action->handler_avma &&
        in_kernel.flags & KERNEL_SA_RESTORER)
        atomic_store(&libc_restorer_avma, in_kernel.restorer_avma);
    return true;
}

/* Puts ours in the place of what the kernel has, `old`, or of what somebody has set meanwhile. */
static int take_over(struct owned *owned, struct kernel_action old)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        if (record_of(owned, &old) >= 0)
            return install(owned, (unsigned)record_of(owned, &old), NULL);
        struct kernel_action as_set = old;
        disposition_as_set(atomic_load(&owned->signal), &as_set);
        int record = record_for(owned, &as_set);
        if (record < 0)
            return -ENOSPC;
        if (!atomic_load(&libc_restorer_avma)) {
            struct kernel_action action = action_for_kernel(owned, (unsigned)record);
            if (!learn_restorer(atomic_load(&owned->signal), &action, &old)) {
                kernel_action_exchange(atomic_load(&owned->signal), NULL, &old);
                continue;
            }
        }
        struct kernel_action replaced;
        int error = install(owned, (unsigned)record, &replaced);
        if (error || record_of(owned, &replaced) >= 0 || kernel_action_equal(&replaced, &old))
            return error;
        old = replaced;
    }
    return -EAGAIN;
}

int disposition_own(int signal, disposition_take *take, int flags)
{
    const uint64_t no = kernel_mask_of(SIGKILL) | kernel_mask_of(SIGSTOP) | kernel_mask_of(SIGTSTP) |
                        kernel_mask_of(SIGTTIN) | kernel_mask_of(SIGTTOU) | kernel_mask_of(SIGCONT);
    if (signal < 1 || signal > SIGNAL_MAX || no & kernel_mask_of(signal) || flags & ~(SA_ONSTACK | SA_RESTART))
        return -EINVAL;
    struct kernel_action old;
    int error = kernel_action_exchange(signal, NULL, &old);
    if (error)
        return error;
    struct owned *owned = owned_add(signal);
    if (!owned)
        return -ENOSPC;
    atomic_store(&owned->take, take);
    atomic_store(&owned->flags, flags);
    atomic_store(&owned->active, true);
    error = take_over(owned, old);
    if (error)
        atomic_store(&owned->active, false);
    return error;
}

void disposition_disown(int signal)
{
    struct owned *owned = owned_find(signal);
    struct kernel_action old;
    if (!owned || kernel_action_exchange(signal, NULL, &old) != 0)
        return;
    atomic_store(&owned->active, false);
    atomic_store(&owned->installed, false);
    /* Who changes it meanwhile is right: what was replaced is put back then. */
    for (int i = 0; i < TRIES_MAX && record_of(owned, &old) >= 0; i++) {
        struct kernel_action before = old;
        disposition_as_set(signal, &before);
        struct kernel_action replaced;
        if (kernel_action_exchange(signal, &before, &replaced) != 0 || replaced.handler_avma == old.handler_avma)
            return;
        old = replaced;
        if (record_of(owned, &old) < 0)
            kernel_action_exchange(signal, &old, NULL);
    }
}

bool disposition_is_ours(int signal)
{
    const struct owned *owned = owned_find(signal);
    struct kernel_action in_kernel;
    return owned && kernel_action_exchange(signal, NULL, &in_kernel) == 0 && record_of(owned, &in_kernel) >= 0;
}

bool disposition_seems_ours(int signal)
{
    const struct owned *owned = owned_find(signal);
    return owned && atomic_load(&owned->installed);
}

bool disposition_may_block(int signal)
{
    uint64_t masks = 0;
    for (unsigned i = 0; i < DISPOSITION_OWNED_MAX; i++) {
        int own = atomic_load(&owneds[i].signal);
        if (own != SIGSEGV && own != SIGBUS)
            masks |= atomic_load(&owneds[i].masks);
    }
    return masks & kernel_mask_of(signal);
}

bool disposition_owns(int signal)
{
    const struct owned *owned = owned_find(signal);
    return owned && atomic_load(&owned->active);
}

/* Changes */

static bool default_is_ignore(int signal)
{
    return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH;
}

void disposition_as_set(int signal, struct kernel_action *action)
{
    const struct owned *owned = owned_find(signal);
    int record = owned ? record_of(owned, action) : -1;
    if (record >= 0) {
        uint64_t flags = action->flags | lasting_flags;
        *action = owned->records[record].action;
        action->flags &= flags;
        return;
    }
    if (action->restorer_avma != (uint64_t)disposition_guard_restorer)
        return;
    action->restorer_avma = disposition_restorer_avma();
    action->mask &= ~atomic_load(&guards);
}

/* To ignore a signal discards it where it is pending, which the kernel does when it is told so. */
static bool is_pending(int signal)
{
    uint64_t pending;
    return rawcall3(SYS_rt_sigpending, (long)&pending, sizeof pending, 0) == 0 && pending & kernel_mask_of(signal);
}

static int set_virtually(struct owned *owned, int signal, const struct kernel_action *action,
                         struct kernel_action *ret_old)
{
    int record = record_for(owned, action);
    if (record < 0) {
        /* Rather without us than wrong. */
        atomic_store(&owned->installed, false);
        return kernel_action_exchange(signal, action, ret_old);
    }
    bool ignored = action->handler_avma == KERNEL_HANDLER_IGNORE ||
                   (action->handler_avma == KERNEL_HANDLER_DEFAULT && default_is_ignore(signal));
    if (ignored && is_pending(signal)) {
        struct kernel_action ignore = {.handler_avma = KERNEL_HANDLER_IGNORE};
        int error = kernel_action_exchange(signal, &ignore, ret_old);
        return error ? error : install(owned, (unsigned)record, NULL);
    }
    return install(owned, (unsigned)record, ret_old);
}

int disposition_exchange(int signal, const struct kernel_action *action, struct kernel_action *ret_old)
{
    struct owned *owned = owned_find(signal);
    if (!owned)
        return -EINVAL;
    struct kernel_action old;
    int error;
    if (action) {
        struct kernel_action allowed = *action;
        allowed.mask &= ~(kernel_mask_of(SIGKILL) | kernel_mask_of(SIGSTOP));
        error = set_virtually(owned, signal, &allowed, &old);
    } else {
        error = kernel_action_exchange(signal, NULL, &old);
    }
    if (error)
        return error;
    disposition_as_set(signal, &old);
    if (ret_old)
        *ret_old = old;
    return 0;
}

/* The mask in the kernel of what the program has for `other`, with the guard's signal or, if it is to go, without. Who
 * sets something else meanwhile is right. */
static void renew_mask(int other)
{
    struct owned *owned = owned_find(other);
    struct kernel_action old, replaced;
    if (kernel_action_exchange(other, NULL, &old) != 0)
        return;
    for (int i = 0; i < TRIES_MAX; i++) {
        struct kernel_action action = old;
        int record = owned ? record_of(owned, &old) : -1;
        if (record >= 0) {
            action = action_for_kernel(owned, (unsigned)record);
        } else {
            disposition_as_set(other, &action);
            disposition_add_guard(other, &action);
        }
        if (kernel_action_equal(&action, &old) || kernel_action_exchange(other, &action, &replaced) != 0 ||
            kernel_action_equal(&replaced, &old))
            return;
        kernel_action_exchange(other, &replaced, NULL);
        old = replaced;
    }
}

void disposition_set_guard(int signal)
{
    if (signal)
        atomic_fetch_or(&guards, kernel_mask_of(signal));
    atomic_store(&guard_signal, signal);
    for (int other = 1; other <= SIGNAL_MAX; other++)
        renew_mask(other);
}

/* In the handler */

/* What the kernel forces on the thread: a signal for what it has just done, which cannot be ignored. */
static bool is_forced(int signal, const siginfo_t *info)
{
    if (info->si_code <= 0 || (signal == SIGBUS && info->si_code == BUS_MCEERR_AO))
        return false;
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGTRAP ||
           signal == SIGSYS;
}

/* The instruction is still to be done, and will fault as before. (SI_KERNEL may also be a frame that could not be
 * written, or was wrong.) */
static bool is_fault_again(int signal, const siginfo_t *info)
{
    return (signal == SIGSEGV && (info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR)) ||
           (signal == SIGBUS && (info->si_code == BUS_ADRALN || info->si_code == BUS_ADRERR));
}

/*
 * The default action, which kills. A fault happens again when we return, so that the kernel's log has its line, too.
 * Any other signal is sent again, as it was, to this thread: it comes when we return, at the place where the thread
 * was. (Its mask may have it blocked, if it came in sigsuspend(2); it is to come all the same.)
 */
static void die(struct owned *owned, int signal, siginfo_t *info, ucontext_t *context)
{
    struct kernel_action action = {.handler_avma = KERNEL_HANDLER_DEFAULT};
    atomic_store(&owned->installed, false);
    kernel_action_exchange(signal, &action, NULL);
    if (is_fault_again(signal, info))
        return;
    uint64_t blocked;
    __builtin_memcpy(&blocked, &context->uc_sigmask, sizeof blocked);
    blocked &= ~kernel_mask_of(signal);
    __builtin_memcpy(&context->uc_sigmask, &blocked, sizeof blocked);
    long pid = rawcall3(SYS_getpid, 0, 0, 0);
    long tid = rawcall3(SYS_gettid, 0, 0, 0);
    if (rawcall4(SYS_rt_tgsigqueueinfo, pid, tid, signal, (long)info) != 0 &&
        rawcall3(SYS_tgkill, pid, tid, signal) != 0)
        rawcall3(SYS_exit_group, 128 + signal, 0, 0);
}

/* SA_RESETHAND: of threads that get here at once, one has the handler; the others find the default. */
static bool reset_to_default(struct owned *owned, unsigned record)
{
    struct kernel_action action = owned->records[record].action;
    int signal = atomic_load(&owned->signal);
    action.handler_avma = KERNEL_HANDLER_DEFAULT;
    int reset = record_for(owned, &action);
    struct kernel_action replaced;
    int error =
        reset < 0 ? kernel_action_exchange(signal, &action, &replaced) : install(owned, (unsigned)reset, &replaced);
    if (error || record_of(owned, &replaced) == (int)record)
        return true;
    if (record_of(owned, &replaced) == reset)
        return false;
    kernel_action_exchange(signal, &replaced, NULL); /* set since this signal came */
    return true;
}

/* The function that is to be jumped to; 0: none. */
uint64_t disposition_dispatch(int signal, siginfo_t *info, ucontext_t *context, unsigned entry)
{
    struct owned *owned = &owneds[entry / DISPOSITION_RECORDS];
    unsigned record = entry % DISPOSITION_RECORDS;
    disposition_take *take = atomic_load(&owned->take);
    if (take && take(signal, info, context))
        return 0;
    struct kernel_action action = owned->records[record].action;
    if (kernel_action_has_function(&action) && (!(action.flags & SA_RESETHAND) || reset_to_default(owned, record)))
        return action.handler_avma;
    bool ignored = action.handler_avma == KERNEL_HANDLER_IGNORE ||
                   (action.handler_avma == KERNEL_HANDLER_DEFAULT && default_is_ignore(signal));
    if (!ignored || is_forced(signal, info))
        die(owned, signal, info, context);
    return 0;
}
