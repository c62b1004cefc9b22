/*
 * The program of bench/accuracy.py: work of a known shape, of which it measures by the threads' own CPU clocks how much
 * it did.
 *
 * clocked KIND SECONDS
 *
 * split      one thread: three quarters of its time in work_0, one in work_1
 * pair       two threads, one with three times the CPU time of the other
 * shared     four equal threads on one CPU
 * bursts     1 ms of work every 10 ms
 * lockstep   1 ms of work every 1/99 s, exactly in step with a profiler at 99 Hz
 * parallel   the same as bursts on two CPUs, at the same moments
 * shortlived threads that live for 3 ms of work, one after the other; three in four in work_0
 * busy       eight busy threads on two CPUs
 * often      a thousand threads, each 1 ms every 100 ms, as far as there are CPUs for it
 * many       threads that end at once, as many as there is time for, eight at a time
 *
 * Ends with {"work_ns": {"work_0": NS, ...}, "cpu_ns": NS, "threads": N}: the second of getrusage, all of the process;
 * the third only of `many`.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WORKS = 8 };

static _Atomic uint64_t worked_ns[WORKS];
static uint64_t end_ns;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
        ;
}

/* So much CPU time of the calling thread. The clock is read every few ten microseconds. */
#define WORK(n)                                                                                                        \
    __attribute__((noipa)) static void work_##n(uint64_t ns)                                                           \
    {                                                                                                                  \
        uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);                                                         \
        uint64_t now_ns = start_ns;                                                                                    \
        while (now_ns - start_ns < ns) {                                                                               \
            for (volatile int i = 0; i < 20000; i++)                                                                   \
                ;                                                                                                      \
            now_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);                                                                \
        }                                                                                                              \
        worked_ns[n] += now_ns - start_ns;                                                                             \
    }
WORK(0)
WORK(1)
WORK(2)
WORK(3)
WORK(4)
WORK(5)
WORK(6)
WORK(7)

static void (*const works[WORKS])(uint64_t ns) = {work_0, work_1, work_2, work_3, work_4, work_5, work_6, work_7};

static int is_over(void)
{
    return clock_ns(CLOCK_MONOTONIC) >= end_ns;
}

static void use_cpus(int count)
{
    cpu_set_t all;
    cpu_set_t few;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&few);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < count; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &few);
    sched_setaffinity(0, sizeof(few), &few);
}

struct worker {
    pthread_t thread;
    int work;
    uint64_t work_ns;   /* in one go, */
    uint64_t period_ns; /* so often; 0: again and again */
    uint64_t start_ns;
};

static void *work(void *argument)
{
    const struct worker *worker = argument;
    for (uint64_t turn = 1; !is_over(); turn++) {
        works[worker->work](worker->work_ns);
        if (worker->period_ns)
            sleep_until(worker->start_ns + turn * worker->period_ns);
    }
    return NULL;
}

static void run(struct worker *workers, int count)
{
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC) + 1000000;
    for (int i = 0; i < count; i++) {
        workers[i].start_ns = start_ns;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            exit(1);
    }
    for (int i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

static void *live_shortly(void *argument)
{
    works[(int)(intptr_t)argument](3000000);
    return NULL;
}

static void run_shortlived(void)
{
    for (int turn = 0; !is_over(); turn++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live_shortly, (void *)(intptr_t)(turn % 4 == 3)))
            exit(1);
        pthread_join(thread, NULL);
    }
}

enum { OFTEN = 1000 };

static void run_often(void)
{
    static struct worker workers[OFTEN];
    for (int i = 0; i < OFTEN; i++)
        workers[i] = (struct worker){.work = i % 4 == 3, .work_ns = 1000000, .period_ns = 100000000};
    run(workers, OFTEN);
}

static void *end_at_once(void *argument)
{
    return argument;
}

static uint64_t run_many(void)
{
    uint64_t count = 0;
    while (!is_over()) {
        pthread_t threads[WORKS];
        for (int i = 0; i < WORKS; i++)
            if (pthread_create(&threads[i], NULL, end_at_once, NULL))
                exit(1);
        for (int i = 0; i < WORKS; i++)
            pthread_join(threads[i], NULL);
        count += WORKS;
    }
    return count;
}

static uint64_t threads_made;

static void run_kind(const char *kind)
{
    struct worker workers[WORKS];
    for (int i = 0; i < WORKS; i++)
        workers[i] = (struct worker){.work = i, .work_ns = 1000000};
    if (!strcmp(kind, "split")) {
        while (!is_over()) {
            work_0(3000000);
            work_1(1000000);
        }
    } else if (!strcmp(kind, "pair")) {
        workers[0].work_ns = 6000000;
        workers[1].work_ns = 2000000;
        workers[0].period_ns = workers[1].period_ns = 8700000;
        run(workers, 2);
    } else if (!strcmp(kind, "shared")) {
        use_cpus(1);
        run(workers, 4);
    } else if (!strcmp(kind, "bursts") || !strcmp(kind, "parallel")) {
        workers[0].period_ns = workers[1].period_ns = 10000000;
        run(workers, kind[0] == 'p' ? 2 : 1);
    } else if (!strcmp(kind, "lockstep")) {
        workers[0].period_ns = 1000000000 / 99;
        run(workers, 1);
    } else if (!strcmp(kind, "shortlived")) {
        run_shortlived();
    } else if (!strcmp(kind, "often")) {
        run_often();
    } else if (!strcmp(kind, "many")) {
        threads_made = run_many();
    } else if (!strcmp(kind, "busy")) {
        use_cpus(2);
        run(workers, WORKS);
    } else {
        exit(2);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(strtod(argv[2], NULL) * 1e9);
    run_kind(argv[1]);
    printf("{\"work_ns\": {");
    for (int i = 0, first = 1; i < WORKS; i++) {
        if (worked_ns[i])
            printf("%s\"work_%d\": %llu", first ? "" : ", ", i, (unsigned long long)worked_ns[i]);
        first = first && !worked_ns[i];
    }
    fflush(stdout);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    printf("}, \"cpu_ns\": %llu, \"threads\": %llu}\n", (unsigned long long)us * 1000,
           (unsigned long long)threads_made);
    return 0;
}
