/*
 * dying HOW MILLISECONDS THREADS [STATUS]: main and THREADS more threads spin in dying_spin, and after that time
 *   group    one of the threads calls exit_group(STATUS);
 *   fault    one of them writes to address 0, which nothing handles;
 *   leader   main ends alone; a second after it one of the threads calls exit_group(STATUS).
 */
#include "testprog.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

static const char *how;
static int status;
static uint64_t end_ns;

EXACT void dying_spin(void)
{
    for (volatile unsigned long turns = 0;; turns++)
        if (turns % 1024 == 0 && clock_ns(CLOCK_MONOTONIC) >= end_ns)
            break;
}

static void *last_main(void *argument)
{
    dying_spin();
    if (strcmp(how, "leader") == 0) {
        end_ns += 1000000000u;
        dying_spin();
    }
    if (strcmp(how, "fault") == 0)
        *(volatile int *)argument = 0;
    syscall(SYS_exit_group, status);
    return NULL;
}

EXACT void endless_spin(void)
{
    SPIN();
}

static void *thread_main(void *argument)
{
    endless_spin();
    return argument;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 99;
    how = argv[1];
    status = (int)number_argument(argc, argv, 4, 0);
    int threads = (int)strtol(argv[3], NULL, 10);
    ready(""); /* before the time begins: nobody waits for a line that does not come */
    end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(strtod(argv[2], NULL) * 1e6);
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, NULL, i ? thread_main : last_main, NULL) != 0)
            fail("pthread_create");
    if (strcmp(how, "leader") != 0)
        endless_spin();
    uint64_t own_end_ns = end_ns;
    while (clock_ns(CLOCK_MONOTONIC) < own_end_ns)
        ;
    pthread_exit(NULL);
}
