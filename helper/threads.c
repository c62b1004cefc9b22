#include "helper/threads.h"

#include "helper/rawcall.h"
#include "helper/state.h"
#include "helper/timers.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

typedef int create_function(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                            void *argument);

static create_function *real_create;
static pthread_key_t end_key;
static bool is_following;

/*
 * What a thread begins with, from its creator to itself. Not from malloc: to free it there would make an arena for each
 * thread that never allocates, of 64 MiB of addresses and two mappings for each fork to copy.
 */
enum { STARTS = 1024 };
static struct start {
    _Atomic bool is_taken;
    void *(*function)(void *);
    void *argument;
} starts[STARTS];
static _Atomic uint32_t next_start;

/* NULL: so many threads have been created and have not begun. */
static struct start *take_start(void)
{
    uint32_t first = atomic_load_explicit(&next_start, memory_order_relaxed);
    for (uint32_t i = 0; i < STARTS; i++) {
        struct start *start = &starts[(first + i) % STARTS];
        if (!atomic_exchange(&start->is_taken, true)) {
            atomic_store_explicit(&next_start, first + i + 1, memory_order_relaxed);
            return start;
        }
    }
    return NULL;
}

static void give_back(struct start *start)
{
    atomic_store(&start->is_taken, false);
}

/* It would only pile up, or go to who waits for signals. */
static bool is_blocked(int signal)
{
    uint64_t blocked = 0;
    rawcall4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&blocked, sizeof(blocked));
    return blocked >> (signal - 1) & 1U;
}

static void begin_thread(void *(*function)(void *))
{
    struct helper_shared *shared = state_enter();
    if (shared && !(atomic_load(&shared->settings.limits) & HELPER_NO_CALLS)) {
        uint32_t slot = timers_slot(shared, rawcall_tid());
        if (slot == HELPER_SLOTS) {
            atomic_fetch_add(&shared->report.timers_failed, 1);
        } else {
            shared->slots[slot].start_avma = (uint64_t)function;
            if (is_blocked((int)shared->settings.signal))
                timers_note_blocked(shared, slot);
            else
                timers_arm(shared, slot);
            pthread_setspecific(end_key, &shared->slots[slot]); /* so that end_thread is called */
        }
    }
    state_leave();
}

static void end_slot(struct helper_shared *shared, uint32_t slot)
{
    if (!(atomic_load(&shared->settings.limits) & HELPER_NO_CALLS) &&
        atomic_load(&shared->slots[slot].tid) == rawcall_tid())
        timers_end_thread(shared, slot);
}

/* The destructor of end_key: at each end of a thread but that of the process. */
static void end_thread(void *slot)
{
    struct helper_shared *shared = state_enter();
    uint64_t off = (uint64_t)slot - (uint64_t)(shared ? shared->slots : NULL);
    if (shared && off < sizeof(shared->slots)) /* it may be other memory by now than when the thread began */
        end_slot(shared, (uint32_t)(off / sizeof(shared->slots[0])));
    state_leave();
}

/* The call at the end is a jump, so no frame of ours is on the thread's stack. */
__attribute__((optimize("optimize-sibling-calls"))) static void *run_thread(void *context)
{
    struct start *start = context;
    void *(*function)(void *) = start->function;
    void *argument = start->argument;
    give_back(start);
    begin_thread(function);
    return function(argument);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*function)(void *), void *argument)
{
    create_function *create = real_create;
    if (!create)
        create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = is_following ? take_start() : NULL;
    if (!start)
        return create(thread, attributes, function, argument);
    start->function = function;
    start->argument = argument;
    int error = create(thread, attributes, run_thread, start);
    if (error)
        give_back(start);
    return error;
}

void threads_follow(void)
{
    real_create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
    is_following = real_create && pthread_key_create(&end_key, end_thread) == 0;
}

bool threads_are_followed(void)
{
    return is_following;
}
