#include "sampler/keeper.h"

#include "sampler/pinning.h"
#include "sampler/slice.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* CPUs that have one, at most. */
enum { KEEPERS_MAX = 64 };

/* Instead of a time: there is none, or the thread is to end. */
enum { UNTIL_TOLD = 0, UNTIL_END = 1 };

struct keeper {
    int cpu;
    pthread_t thread;
    atomic_bool is_ready;      /* is where it belongs, and gives way to everybody */
    atomic_uint rings;         /* futex: so often was it woken */
    _Atomic uint64_t until_ns; /* CLOCK_MONOTONIC, or one of these */
};

struct keepers {
    struct keeper *all[KEEPERS_MAX]; /* owned */
    size_t count;
    bool is_failed;  /* a thread could not be had: none is asked for again */
    bool keeps_some; /* since the last keepers_end */
};

int keepers_new(struct keepers **ret_keepers)
{
    struct keepers *keepers = calloc(1, sizeof(*keepers));
    if (!keepers)
        return -ENOMEM;
    *ret_keepers = keepers;
    return 0;
}

static void ring(struct keeper *keeper)
{
    keeper->rings++;
    syscall(SYS_futex, &keeper->rings, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* First the policy: with the one that it was born with it must never be where the target runs. */
static bool settle(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    return slice_give_way() == 0 && sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* Where the target gets the CPU back the thread is left in the middle of its loop; it goes to sleep when it is let in
 * next, or has been given another time by then. */
static void *keep(void *context)
{
    struct keeper *keeper = context;
    pthread_setname_np(pthread_self(), "keeper");
    keeper->is_ready = settle(keeper->cpu);
    for (;;) {
        unsigned rings = keeper->rings;
        while (clock_now_ns() < keeper->until_ns)
            __builtin_ia32_pause();
        if (keeper->until_ns == UNTIL_END)
            return NULL;
        syscall(SYS_futex, &keeper->rings, FUTEX_WAIT_PRIVATE, rings, NULL, NULL, 0);
    }
}

static struct keeper *find(struct keepers *keepers, int cpu)
{
    for (size_t i = 0; i < keepers->count; i++)
        if (keepers->all[i]->cpu == cpu)
            return keepers->all[i];
    if (keepers->is_failed || keepers->count == KEEPERS_MAX)
        return NULL;
    struct keeper *keeper = calloc(1, sizeof(*keeper));
    if (!keeper)
        return NULL;
    keeper->cpu = cpu;
    if (pthread_create(&keeper->thread, NULL, keep, keeper)) {
        keepers->is_failed = true;
        free(keeper);
        return NULL;
    }
    keepers->all[keepers->count++] = keeper;
    return keeper;
}

bool keepers_begin(struct keepers *keepers, int cpu)
{
    if (cpu == sched_getcpu() || !pinning_may_use(cpu))
        return false;
    struct keeper *keeper = find(keepers, cpu);
    if (!keeper || !keeper->is_ready)
        return false;
    keeper->until_ns = clock_now_ns() + KEEPER_NS_MAX;
    ring(keeper);
    keepers->keeps_some = true;
    return true;
}

void keepers_end(struct keepers *keepers)
{
    for (size_t i = 0; i < keepers->count && keepers->keeps_some; i++)
        keepers->all[i]->until_ns = UNTIL_TOLD;
    keepers->keeps_some = false;
}

void keepers_free(struct keepers *keepers)
{
    if (!keepers)
        return;
    for (size_t i = 0; i < keepers->count; i++) {
        struct keeper *keeper = keepers->all[i];
        keeper->until_ns = UNTIL_END;
        ring(keeper);
        /* Where permitted: it is not waited for longer than an ordinary thread. */
        pthread_setschedparam(keeper->thread, SCHED_OTHER, &(struct sched_param){0});
        pthread_join(keeper->thread, NULL);
        free(keeper);
    }
    free(keepers);
}
