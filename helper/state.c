#include "helper/state.h"

#include "helper/rawcall.h"

#include <stddef.h>

static _Atomic(struct helper_shared *) current;
static _Atomic(struct helper_shared *) leaving; /* to be unmapped when nobody uses it */
static _Atomic uint32_t users;

struct helper_shared *state_enter(void)
{
    atomic_fetch_add(&users, 1);
    return atomic_load(&current);
}

/* Who comes after state_take finds nothing in `current`; so once there is no user, there will be none of `leaving`. */
void state_leave(void)
{
    if (atomic_fetch_sub(&users, 1) != 1)
        return;
    struct helper_shared *shared = atomic_exchange(&leaving, NULL);
    if (shared)
        rawcall3(SYS_munmap, (long)shared, sizeof(*shared), 0);
}

bool state_set(struct helper_shared *shared)
{
    struct helper_shared *none = NULL;
    return !atomic_load(&leaving) && atomic_compare_exchange_strong(&current, &none, shared);
}

struct helper_shared *state_take(void)
{
    struct helper_shared *shared = atomic_exchange(&current, NULL);
    if (shared)
        atomic_store(&leaving, shared);
    return shared;
}

void state_forget(void)
{
    struct helper_shared *shared = atomic_exchange(&current, NULL);
    atomic_store(&users, 0);
    atomic_store(&leaving, NULL);
    if (shared)
        rawcall3(SYS_munmap, (long)shared, sizeof(*shared), 0);
}
