/*
 * shares KIND [SECONDS]: work that is shared in known parts, measured by the threads' own CPU clocks.
 *
 * pinned  two threads, each on a CPU of its own, in t_one and t_two, the same work in each
 * onecpu  the same two on one CPU
 * ratio   t_one has three times the CPU time of t_two, which sleeps meanwhile; on CPUs of their own
 * bursts  serial_part in one thread, then parallel_part in two at once, 7 ms of CPU time in each, in turn
 * short   short_work in threads that live for 3 ms of CPU time, and as much of steady_work in main, in turn
 *
 * shares KIND SECONDS HZ: the same, and a setitimer(2) of its own (ITIMER_PROF) at that rate, whose signals are counted
 * in the function that they come in: "setitimer": {FUNCTION: SIGNALS…}.
 *
 * Ends with {"work_ns": {FUNCTION: NS…}, "cpu_ns": of the process, "threads": how many there were}.
 */
#include "testprog.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

enum { CHUNK_TURNS = 10000, CHUNKS = 100 };

static const uint64_t BURST_NS = 7000000, SHORT_NS = 3000000, SLICE_NS = 2000000;
static uint64_t end_ns;
static unsigned long thread_count;

static bool is_over(void)
{
    return clock_ns(CLOCK_MONOTONIC) >= end_ns;
}

EXACT static void turn(void)
{
    for (volatile int i = 0; i < CHUNK_TURNS; i++)
        ;
}

/* In which of them the thread is; and the signals that came there. */
enum part {
    NO_PART,
    PART_t_one,
    PART_t_two,
    PART_serial_part,
    PART_parallel_part,
    PART_short_work,
    PART_steady_work,
    PARTS
};
static _Thread_local volatile sig_atomic_t part;
static atomic_ulong signals[PARTS];

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals[part], 1);
}

static void start_timer(double hz)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct timeval period = {.tv_usec = (suseconds_t)(1e6 / hz)};
    struct itimerval timer = {.it_interval = period, .it_value = period};
    if (sigaction(SIGPROF, &action, NULL) != 0 || setitimer(ITIMER_PROF, &timer, NULL) != 0)
        fail("setitimer");
}

/* Functions of a name: of so much work, and of so much CPU time. The clock is read every few ten microseconds. */
#define WORK(function)                                                                                                 \
    static atomic_ullong function##_ns;                                                                                \
    EXACT void function(int chunks, uint64_t ns)                                                                       \
    {                                                                                                                  \
        uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), now_ns = start_ns;                                      \
        part = PART_##function;                                                                                        \
        for (int i = 0; i < chunks || now_ns - start_ns < ns; i++) {                                                   \
            turn();                                                                                                    \
            if (ns)                                                                                                    \
                now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);                                                            \
        }                                                                                                              \
        part = NO_PART;                                                                                                \
        atomic_fetch_add(&function##_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns);                                \
    }
WORK(t_one)
WORK(t_two)
WORK(serial_part)
WORK(parallel_part)
WORK(short_work)
WORK(steady_work)

/* The calling thread's only CPU: the `index`-th of those that it may use, or the last one. */
static void use_cpu(int index)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && index >= 0; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        index--;
    }
    sched_setaffinity(0, sizeof one, &one);
}

static pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        fail("pthread_create");
    thread_count++;
    return thread;
}

static pthread_barrier_t both;

struct pair_member {
    void (*work)(int chunks, uint64_t ns);
    int cpu;
    uint64_t slice_ns; /* of CPU time, between two meetings with the other; 0: work is counted, and they meet once */
};

/* Who is over first waits at the barrier; whether time is over, one says for both. */
static bool meet(void)
{
    static atomic_bool is_end;
    if (pthread_barrier_wait(&both) == PTHREAD_BARRIER_SERIAL_THREAD)
        is_end = is_over();
    pthread_barrier_wait(&both);
    return !is_end;
}

static void *pair_main(void *argument)
{
    const struct pair_member *self = argument;
    use_cpu(self->cpu);
    while (meet())
        self->work(self->slice_ns ? 0 : CHUNKS, self->slice_ns);
    return NULL;
}

static void run_pair(const char *kind)
{
    bool is_ratio = strcmp(kind, "ratio") == 0;
    struct pair_member members[2] = {{t_one, 0, is_ratio ? 3 * SLICE_NS : 0},
                                     {t_two, strcmp(kind, "onecpu") != 0, is_ratio ? SLICE_NS : 0}};
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++)
        threads[i] = start(pair_main, &members[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* Both are here in each phase; the first alone works in the serial one. */
static void *bursts_main(void *first)
{
    while (meet()) {
        if (first)
            serial_part(0, BURST_NS);
        pthread_barrier_wait(&both);
        parallel_part(0, BURST_NS / 2);
    }
    return NULL;
}

static void run_bursts(void)
{
    pthread_barrier_init(&both, NULL, 2);
    pthread_t threads[2] = {start(bursts_main, &both), start(bursts_main, NULL)};
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void *short_main(void *argument)
{
    short_work(0, SHORT_NS);
    return argument;
}

static void run_short(void)
{
    while (!is_over()) {
        pthread_join(start(short_main, NULL), NULL);
        steady_work(0, SHORT_NS);
    }
}

static void print_results(void)
{
    const struct {
        const char *name;
        uint64_t ns;
    } works[] = {{"t_one", t_one_ns},
                 {"t_two", t_two_ns},
                 {"serial_part", serial_part_ns},
                 {"parallel_part", parallel_part_ns},
                 {"short_work", short_work_ns},
                 {"steady_work", steady_work_ns}};
    const char *separator = "";
    printf("{\"work_ns\": {");
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        if (works[i].ns == 0)
            continue;
        printf("%s\"%s\": %llu", separator, works[i].name, (unsigned long long)works[i].ns);
        separator = ", ";
    }
    printf("}, \"setitimer\": {");
    separator = "";
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        printf("%s\"%s\": %lu", separator, works[i].name, (unsigned long)signals[i + 1]);
        separator = ", ";
    }
    printf("}, \"signals\": %lu", (unsigned long)signals[NO_PART]);
    fflush(stdout);
    printf(", \"cpu_ns\": %llu, \"threads\": %lu}\n", (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID),
           thread_count);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "pinned";
    ready("");
    end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(number_argument(argc, argv, 2, 5) * 1e9);
    double hz = number_argument(argc, argv, 3, 0);
    if (hz > 0)
        start_timer(hz);
    if (strcmp(kind, "bursts") == 0)
        run_bursts();
    else if (strcmp(kind, "short") == 0)
        run_short();
    else if (strcmp(kind, "pinned") == 0 || strcmp(kind, "onecpu") == 0 || strcmp(kind, "ratio") == 0)
        run_pair(kind);
    else
        return 99;
    print_results();
    return 0;
}
