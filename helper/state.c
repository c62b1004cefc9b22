#include "helper/state.h"

#include "helper/rawcall.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* In `word`: who is in, and above that what becomes of the memory. */
#define USERS    ((UINT64_C(1) << 32) - 1)
#define LEAVING  (UINT64_C(1) << 32) /* nobody gets it any more */
#define UNMAPPED (UINT64_C(1) << 33) /* the last one has left and unmaps it */

struct state {
    _Atomic uint64_t word;
    _Atomic(struct helper_shared *) current;
};

enum { PAGE_BYTES = 4096, COOKIES = 16 };

static struct state *state;
static _Atomic uint32_t cookies[COOKIES]; /* of this turn and earlier ones */
static _Atomic uint32_t next_cookie;
/*
 * What a forked child is told, for which the page above is empty. Only written where something is new: a write after
 * each fork would be a page to copy each time.
 */
static struct helper_shared *_Atomic mapped;
static _Atomic bool is_mute;       /* HELPER_NO_CALLS */
static _Atomic uint32_t last_fork; /* WAS_USED, and above it a count of those that were */
#define WAS_USED 1U
#define LATER    2U

int state_init(void)
{
    if (state)
        return 0;
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) < 0) {
        int error = -errno;
        munmap(page, PAGE_BYTES);
        return error;
    }
    state = page;
    return 0;
}

struct helper_shared *state_enter(void)
{
    if (!state)
        return NULL;
    uint64_t before = atomic_fetch_add(&state->word, 1);
    return before & LEAVING ? NULL : atomic_load(&state->current);
}

static void unmap(void)
{
    struct helper_shared *shared = atomic_exchange(&state->current, NULL);
    atomic_store(&mapped, NULL);
    if (shared)
        rawcall3(SYS_munmap, (long)shared, sizeof(*shared), 0);
    atomic_fetch_and(&state->word, ~(LEAVING | UNMAPPED));
}

void state_leave(void)
{
    if (!state)
        return;
    uint64_t word = atomic_load(&state->word);
    do {
        if (!(word & USERS)) /* in a child, whose parent had entered */
            return;
    } while (!atomic_compare_exchange_weak(&state->word, &word, word - 1));
    uint64_t empty = LEAVING;
    if (word - 1 == LEAVING && atomic_compare_exchange_strong(&state->word, &empty, LEAVING | UNMAPPED))
        unmap();
}

bool state_is_used(void)
{
    return state && (atomic_load(&state->word) & USERS);
}

bool state_set(struct helper_shared *shared)
{
    struct helper_shared *none = NULL;
    if (!state || atomic_load(&state->word) & LEAVING ||
        !atomic_compare_exchange_strong(&state->current, &none, shared))
        return false;
    atomic_store(&mapped, shared);
    atomic_store(&cookies[atomic_fetch_add(&next_cookie, 1) % COOKIES], shared->settings.cookie);
    return true;
}

struct helper_shared *state_take(void)
{
    struct helper_shared *shared = atomic_load(&state->current);
    return shared && !(atomic_fetch_or(&state->word, LEAVING) & LEAVING) ? shared : NULL;
}

/*
 * A thread that forks in a handler that has interrupted ours is in, and stays so: who finds nobody in and says that
 * later than such a thread said the opposite has to look again.
 */
static void note_users(void)
{
    uint32_t before = atomic_load(&last_fork);
    uint32_t now;
    do {
        bool is_used = state_is_used();
        if (!is_used && !(before & WAS_USED))
            return;
        now = ((before + LATER) & ~WAS_USED) | (is_used ? WAS_USED : 0);
    } while (!atomic_compare_exchange_weak(&last_fork, &before, now));
}

void state_before_fork(void)
{
    if (!atomic_load(&mapped))
        return;
    if (!atomic_load(&state->current)) { /* it was our parent's */
        atomic_store(&mapped, NULL);
        return;
    }
    note_users();
    struct helper_shared *shared = state_enter();
    bool must_not_call = shared && atomic_load(&shared->settings.limits) & HELPER_NO_CALLS;
    if (shared && atomic_load(&is_mute) != must_not_call)
        atomic_store(&is_mute, must_not_call);
    state_leave();
}

void state_in_child(void)
{
    struct helper_shared *shared = atomic_load(&mapped);
    if (shared && !(atomic_load(&last_fork) & WAS_USED) && !atomic_load(&is_mute))
        rawcall3(SYS_munmap, (long)shared, sizeof(*shared), 0);
}

bool state_knows(const siginfo_t *info)
{
    uint32_t cookie = (uint32_t)((uint64_t)info->si_value.sival_ptr >> 32);
    if ((info->si_code != SI_TIMER && info->si_code != SI_QUEUE) || !cookie)
        return false;
    for (unsigned i = 0; i < COOKIES; i++)
        if (atomic_load_explicit(&cookies[i], memory_order_relaxed) == cookie)
            return true;
    return false;
}
