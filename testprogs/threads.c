/*
 * threads churn [SECONDS]: the thread "steady" spins in steady_spin; the thread "churner" starts and joins 2,000
 * threads a second, named "short-N", each 0.2 ms in shortlived. Prints {"steady_cpu_ns": …, "started": …} at the end.
 * threads main_exited [SECONDS]: main ends by pthread_exit, the thread "worker" goes on in worker_spin.
 */
#include "testprog.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

static pid_t steady_tid;
static uint64_t steady_cpu_ns;
static unsigned long started;

EXACT void steady_spin(void)
{
    SPIN();
}

static void *steady_main(void *argument)
{
    pthread_setname_np(pthread_self(), "steady");
    steady_tid = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(argument);
    steady_spin();
    steady_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

EXACT void shortlived(void)
{
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + 200000;
    while (clock_ns(CLOCK_MONOTONIC) < end_ns)
        ;
}

static void *short_main(void *argument)
{
    pthread_setname_np(pthread_self(), argument);
    shortlived();
    return NULL;
}

static void *churner_main(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "churner");
    uint64_t next_ns = clock_ns(CLOCK_MONOTONIC);
    while (!stop) {
        char name[16];
        snprintf(name, sizeof name, "short-%lu", started % 100);
        pthread_t thread;
        if (pthread_create(&thread, NULL, short_main, name) != 0)
            fail("pthread_create");
        pthread_join(thread, NULL);
        started++;
        next_ns += 500000;
        uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        if (now_ns < next_ns)
            sleep_ns(next_ns - now_ns);
        else
            next_ns = now_ns;
    }
    return NULL;
}

static int churn(void)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t steady, churner;
    int error = pthread_create(&steady, NULL, steady_main, &barrier);
    error |= pthread_create(&churner, NULL, churner_main, NULL);
    if (error != 0)
        fail("pthread_create");
    pthread_barrier_wait(&barrier);
    ready("steady=%d", (int)steady_tid);
    pthread_join(steady, NULL);
    pthread_join(churner, NULL);
    printf("{\"steady_cpu_ns\": %llu, \"started\": %lu}\n", (unsigned long long)steady_cpu_ns, started);
    return 0;
}

EXACT void worker_spin(void)
{
    SPIN();
}

static void *worker_main(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "worker");
    ready("worker=%d", (int)syscall(SYS_gettid));
    worker_spin();
    exit(0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "churn";
    stop_after(number_argument(argc, argv, 2, 60));
    if (strcmp(mode, "main_exited") != 0)
        return churn();
    pthread_t worker;
    if (pthread_create(&worker, NULL, worker_main, NULL) != 0)
        fail("pthread_create");
    pthread_exit(NULL);
}
