#include "sampler/helpercost.h"

#include "common/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

enum { TRIALS = 101, WARM_UP = 20 };
#define FIRST_MEASURE_NS NS_PER_MS

/* Long enough for the clock's own grain not to matter any more. */
#define UPDATE_NS (100 * NS_PER_MS)

uint64_t helpercost_now_tsc(void)
{
    return __rdtsc();
}

uint64_t helpercost_ns(const struct helpercost *cost, uint64_t tsc)
{
    return (uint64_t)((double)tsc / cost->tsc_per_ns);
}

uint64_t helpercost_tsc(const struct helpercost *cost, uint64_t ns)
{
    return (uint64_t)((double)ns * cost->tsc_per_ns);
}

static void do_nothing(int signal)
{
    (void)signal;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Calls of tgkill with that signal, sorted by what they take; 0 sends none, and tells what the call alone takes. */
static void measure_ns(const struct helpercost *cost, int signal, uint64_t took_ns[TRIALS])
{
    long pid = getpid();
    long tid = syscall(SYS_gettid);
    for (int i = -WARM_UP; i < TRIALS; i++) {
        uint64_t before = __rdtsc();
        syscall(SYS_tgkill, pid, tid, signal);
        if (i >= 0)
            took_ns[i] = helpercost_ns(cost, __rdtsc() - before);
    }
    qsort(took_ns, TRIALS, sizeof(took_ns[0]), compare);
}

static void measure_delivery(struct helpercost *cost)
{
    uint64_t with_ns[TRIALS];
    uint64_t without_ns[TRIALS];
    struct sigaction before;
    struct sigaction ours = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    if (sigaction(SIGURG, &ours, &before) < 0)
        return;
    measure_ns(cost, SIGURG, with_ns);
    measure_ns(cost, 0, without_ns);
    sigaction(SIGURG, &before, NULL);
    for (int i = 0; i < TRIALS; i++) {
        uint64_t call_ns = without_ns[TRIALS / 2];
        histogram_add(&cost->delivery_ns, with_ns[i] > call_ns ? with_ns[i] - call_ns : 0);
    }
}

static void set_rate(struct helpercost *cost, uint64_t now_ns)
{
    if (now_ns > cost->began_ns)
        cost->tsc_per_ns = (double)(__rdtsc() - cost->began_tsc) / (double)(now_ns - cost->began_ns);
    if (!(cost->tsc_per_ns > 0))
        cost->tsc_per_ns = 1;
}

void helpercost_begin(struct helpercost *cost)
{
    uint64_t now_ns;
    cost->began_tsc = __rdtsc();
    cost->began_ns = clock_now_ns();
    do
        now_ns = clock_now_ns();
    while (now_ns - cost->began_ns < FIRST_MEASURE_NS);
    set_rate(cost, now_ns);
    measure_delivery(cost);
}

void helpercost_update(struct helpercost *cost, uint64_t now_ns)
{
    if (now_ns - cost->began_ns > UPDATE_NS)
        set_rate(cost, now_ns);
}
