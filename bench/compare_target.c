/*
 * compare_target FILE BUSY DOZING: so many threads that work, and so many that sleep for 50 ms, work for some
 * microseconds and sleep again. The turns of all are counted in FILE (workcounter.h). Prints "ready"; runs until it is
 * killed.
 */
#include "workcounter.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noinline, noclone))

enum { NUMBERS = 512, THREADS_MAX = 2000 };

static uint64_t *counter;

KEEP static uint32_t hash(const unsigned char *bytes, size_t size)
{
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ bytes[i]) * 16777619u;
    return value;
}

KEEP static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

KEEP static uint32_t sort(uint32_t seed)
{
    uint32_t numbers[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = seed = seed * 1664525u + 1013904223u;
    qsort(numbers, NUMBERS, sizeof(numbers[0]), compare_numbers);
    return hash((const unsigned char *)numbers, sizeof(numbers));
}

KEEP static uint32_t search(uint32_t seed, int depth)
{
    unsigned char bytes[256];
    memset(bytes, (int)seed, sizeof(bytes));
    uint32_t value = hash(bytes, sizeof(bytes));
    if (depth > 0)
        value += search(value, depth - 1);
    return value ^ seed;
}

KEEP static uint32_t turn(uint32_t seed)
{
    uint32_t value = sort(seed) + search(seed, (int)(seed % 40));
    workcounter_add(counter);
    return value;
}

KEEP static void *work(void *argument)
{
    volatile uint32_t value = (uint32_t)(uintptr_t)argument;
    for (;;)
        value = turn(value);
    return NULL;
}

KEEP static void *doze(void *argument)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    volatile uint32_t value = (uint32_t)(uintptr_t)argument;
    for (;;) {
        nanosleep(&pause, NULL);
        value = turn(value);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int busy = argc > 2 ? atoi(argv[2]) : 2;
    int dozing = argc > 3 ? atoi(argv[3]) : 0;
    counter = argc > 1 ? workcounter_open(argv[1]) : NULL;
    if (!counter || busy < 0 || dozing < 0 || busy + dozing > THREADS_MAX)
        return 2;
    for (int i = 0; i < busy + dozing; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, i < busy ? work : doze, (void *)(uintptr_t)(i + 1)) != 0)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
