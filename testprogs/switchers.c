/*
 * switchers THREADS SECONDS: the threads "switch-N" sleep, each first in first_wait and from its own moment on, once
 * and for good, in second_wait; in between they run for microseconds. One more, "spin", is in spin_main. Ends after
 * SECONDS, and prints for each how long it slept in either, in ns:
 * {"first": [...], "second": [...]}.
 */
#include "testprog.h"

#include <pthread.h>

enum { THREADS_MAX = 256 };

static uint64_t start_ns, end_ns, switched_ns[THREADS_MAX], ended_ns[THREADS_MAX];
static int thread_count;

static void sleep_until(uint64_t time_ns)
{
    struct timespec time = {.tv_sec = (time_t)(time_ns / 1000000000), .tv_nsec = (long)(time_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

EXACT void first_wait(uint64_t time_ns)
{
    sleep_until(time_ns);
}

EXACT void second_wait(uint64_t time_ns)
{
    sleep_until(time_ns);
}

EXACT void switch_main(int number)
{
    uint64_t whole_ns = end_ns - start_ns;
    first_wait(start_ns + whole_ns * (uint64_t)(number + 1) / (uint64_t)(thread_count + 1));
    switched_ns[number] = clock_ns(CLOCK_MONOTONIC);
    second_wait(end_ns);
    ended_ns[number] = clock_ns(CLOCK_MONOTONIC);
}

EXACT void spin_main(void)
{
    SPIN();
}

static void *begin(void *argument)
{
    char name[16];
    int number = (int)(intptr_t)argument;
    snprintf(name, sizeof(name), number < 0 ? "spin" : "switch-%d", number);
    pthread_setname_np(pthread_self(), name);
    if (number < 0)
        spin_main();
    else
        switch_main(number);
    return NULL;
}

static void print(const char *name, const uint64_t *from, const uint64_t *to, uint64_t start)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < thread_count; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)(to[i] - (from ? from[i] : start)));
    printf("]");
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX + 1];
    thread_count = (int)number_argument(argc, argv, 1, 40);
    if (thread_count > THREADS_MAX)
        return 2;
    start_ns = clock_ns(CLOCK_MONOTONIC);
    end_ns = start_ns + (uint64_t)(number_argument(argc, argv, 2, 2) * 1e9);
    for (int i = 0; i <= thread_count; i++)
        pthread_create(&threads[i], NULL, begin, (void *)(intptr_t)(i - 1));
    ready("threads=%d", thread_count);
    for (int i = 1; i <= thread_count; i++)
        pthread_join(threads[i], NULL);
    stop = 1;
    pthread_join(threads[0], NULL);
    printf("{");
    print("first", NULL, switched_ns, start_ns);
    printf(", ");
    print("second", switched_ns, ended_ns, 0);
    printf("}\n");
    return 0;
}
