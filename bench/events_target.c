/*
 * events_target threads|fork|switch|maps|sleep SECONDS: waits for a line on its standard input, then does one thing as
 * often as it can and prints "COUNT CPU_NS", CPU time of ended children included. threads: starts a thread and waits
 * for its end; fork: a child likewise; switch: two threads wake each other through pipes (counted both ways); maps:
 * maps a page of a file executable and unmaps it; sleep: nothing.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2], file_fd;
static pthread_t partner;

static double clock_seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID) + (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e6;
}

static void *end_at_once(void *argument)
{
    return argument;
}

static void *answer(void *argument)
{
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return argument;
}

static int do_threads(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) != 0)
        exit(1);
    pthread_join(thread, NULL);
    return 1;
}

static int do_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return waitpid(pid, NULL, 0) == pid;
}

static int do_switch(void)
{
    char byte = 0;
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
        exit(1);
    return 2;
}

static int do_maps(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_fd, 0);
    if (memory == MAP_FAILED)
        exit(1);
    munmap(memory, 4096);
    return 1;
}

static int do_sleep(void)
{
    usleep(10000);
    return 1;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*body)(void);
    } works[] = {
        {"threads", do_threads}, {"fork", do_fork}, {"switch", do_switch}, {"maps", do_maps}, {"sleep", do_sleep}};
    int (*body)(void) = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof(works) / sizeof(works[0]); i++)
        if (strcmp(argv[1], works[i].name) == 0)
            body = works[i].body;
    file_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (!body || file_fd < 0 || pipe(there) < 0 || pipe(back) < 0)
        return 2;
    if (body == do_switch && pthread_create(&partner, NULL, answer, NULL) != 0)
        return 2;
    puts("ready");
    fflush(stdout);
    getchar();
    unsigned long count = 0;
    double end = clock_seconds(CLOCK_MONOTONIC) + strtod(argv[2], NULL);
    double before = cpu_seconds();
    while (clock_seconds(CLOCK_MONOTONIC) < end)
        for (int i = 0; i < 10; i++)
            count += (unsigned long)body();
    printf("%lu %.0f\n", count, (cpu_seconds() - before) * 1e9);
    return 0;
}
