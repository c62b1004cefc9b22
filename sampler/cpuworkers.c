#include "sampler/cpuworkers.h"

#include "common/clock.h"
#include "sampler/pinning.h"
#include "sampler/slice.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* It is on its CPU after some ten microseconds, unless something more urgent is there. */
#define BEGIN_NS NS_PER_MS
/* What has begun is over soon, unless the stack is on disk. */
#define DONE_NS (2 * NS_PER_MS)

/* Of a worker, which calls nothing deep. */
enum { STACK_BYTES = 64 << 10 };

/* So long we look for it all the time. */
#define SPIN_NS (100 * NS_PER_US)

enum { CPUS = CPU_SETSIZE, WORKERS_MAX = BPF_LOOK_WORKERS };

enum work { IDLE, ASKED, AT_WORK, DONE, ENDING };

struct worker {
    _Atomic uint32_t work; /* enum work; a futex */
    pthread_t thread;
    struct cpuworkers *all;
    size_t slot;
    uint64_t round; /* in which it was asked last */
    bool is_waited_for;
    bool is_told; /* the kernel's answer */
    struct cpuworkers_times times;
};

struct cpuworkers {
    struct bpflook *bpflook;
    _Atomic uint32_t done; /* counts; a futex */
    atomic_bool is_waiting;
    uint64_t round;
    size_t count;
    struct worker all[WORKERS_MAX];
    struct worker *of_cpu[CPUS]; /* NULL: none yet */
    bool has_none[CPUS];         /* and there can be none */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec timeout = clock_timespec(timeout_ns);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns ? &timeout : NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void do_work(struct worker *worker)
{
    uint32_t expected = ASKED;
    uint64_t began_ns = clock_now_ns();
    if (!atomic_compare_exchange_strong(&worker->work, &expected, AT_WORK))
        return; /* too late */
    worker->times.began_ns = began_ns;
    worker->is_told = bpflook_ask(worker->all->bpflook, worker->slot, 1);
    worker->times.ended_ns = clock_now_ns();
    worker->work = DONE;
    worker->all->done++;
    if (worker->all->is_waiting)
        futex_wake(&worker->all->done);
}

static void *worker_loop(void *context)
{
    struct worker *worker = context;
    pthread_setname_np(pthread_self(), "cpu-worker");
    slice_ask_short(); /* a real-time priority is let in no sooner, and makes changes of context dearer */
    for (;;) {
        uint32_t work = worker->work;
        if (work == ENDING)
            return NULL;
        if (work == ASKED)
            do_work(worker);
        else
            futex_wait(&worker->work, work, 0);
    }
}

struct cpuworkers *cpuworkers_new(struct bpflook *bpflook)
{
    struct cpuworkers *workers = calloc(1, sizeof(*workers));
    if (workers)
        workers->bpflook = bpflook;
    return workers;
}

void cpuworkers_free(struct cpuworkers *workers)
{
    for (size_t i = 0; workers && i < workers->count; i++) {
        struct worker *worker = &workers->all[i];
        uint32_t work = worker->work;
        while (work == AT_WORK || !atomic_compare_exchange_strong(&worker->work, &work, ENDING)) {
            clock_sleep_until(clock_now_ns() + BEGIN_NS);
            work = worker->work;
        }
        futex_wake(&worker->work);
        pthread_join(worker->thread, NULL);
    }
    free(workers);
}

/* A thread that stays on the CPU from its first moment on. */
static int start(struct worker *worker, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
    int error = pthread_create(&worker->thread, &attributes, worker_loop, worker);
    pthread_attr_destroy(&attributes);
    return error;
}

static void add_worker(struct cpuworkers *workers, int cpu)
{
    workers->has_none[cpu] = true;
    if (workers->count == WORKERS_MAX || !pinning_may_use(cpu))
        return;
    struct worker *worker = &workers->all[workers->count];
    *worker = (struct worker){.all = workers, .slot = BPF_LOOK_BATCH + workers->count};
    if (start(worker, cpu))
        return;
    workers->has_none[cpu] = false;
    workers->of_cpu[cpu] = worker;
    workers->count++;
}

void cpuworkers_begin_round(struct cpuworkers *workers)
{
    workers->round++;
}

struct bpf_look *cpuworkers_slot(struct cpuworkers *workers, int cpu, const unsigned char **ret_stack)
{
    if (cpu < 0 || cpu >= CPUS)
        return NULL;
    struct worker *worker = workers->of_cpu[cpu];
    if (!worker && !workers->has_none[cpu])
        add_worker(workers, cpu); /* it is not ready at once */
    if (!worker || worker->round == workers->round || worker->is_waited_for || worker->work == AT_WORK)
        return NULL;
    *ret_stack = bpflook_stack(workers->bpflook, worker->slot);
    return bpflook_slot(workers->bpflook, worker->slot);
}

void cpuworkers_ask(struct cpuworkers *workers, int cpu)
{
    struct worker *worker = workers->of_cpu[cpu];
    worker->times = (struct cpuworkers_times){.asked_ns = clock_now_ns()};
    worker->round = workers->round;
    worker->is_told = false;
    worker->is_waited_for = true;
    worker->work = ASKED;
    futex_wake(&worker->work);
}

/* Those that nobody need wait for any more are not waited for. Returns how many remain. */
static size_t count_waited_for(struct cpuworkers *workers, uint64_t now_ns)
{
    size_t count = 0;
    for (size_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];
        if (!worker->is_waited_for)
            continue;
        uint64_t waited_ns = now_ns - worker->times.asked_ns;
        uint32_t work = worker->work;
        if (work == ASKED && waited_ns >= BEGIN_NS && atomic_compare_exchange_strong(&worker->work, &work, IDLE))
            work = IDLE;
        if (work == IDLE || work == DONE || (work == AT_WORK && waited_ns >= DONE_NS))
            worker->is_waited_for = false;
        count += worker->is_waited_for;
    }
    return count;
}

void cpuworkers_wait(struct cpuworkers *workers, bool spins)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t spin_until_ns = spins ? now_ns + SPIN_NS : 0;
    for (;;) {
        uint32_t done = workers->done;
        workers->is_waiting = now_ns >= spin_until_ns;
        if (!count_waited_for(workers, now_ns))
            break;
        if (workers->is_waiting)
            futex_wait(&workers->done, done, BEGIN_NS);
        now_ns = clock_now_ns();
    }
    workers->is_waiting = false;
}

bool cpuworkers_done(const struct cpuworkers *workers, int cpu, struct cpuworkers_times *ret)
{
    const struct worker *worker = workers->of_cpu[cpu];
    if (!worker || worker->work != DONE || !worker->is_told)
        return false;
    *ret = worker->times;
    return true;
}
