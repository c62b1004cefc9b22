/*
 * clocks [SECONDS]: two threads, "clocks" and "clock-worker", ask for the time again and again: main;read_clock and
 * worker_main;read_clock, mostly within the vDSO.
 */
#include "testprog.h"

#include <pthread.h>

EXACT void read_clock(void)
{
    struct timespec now;
    while (!stop)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

EXACT void *worker_main(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "clock-worker");
    read_clock();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t worker;
    stop_after(number_argument(argc, argv, 1, 60));
    if (pthread_create(&worker, NULL, worker_main, NULL) != 0)
        fail("pthread_create");
    ready("");
    read_clock();
    pthread_join(worker, NULL);
    return 0;
}
