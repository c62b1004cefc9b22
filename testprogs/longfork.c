/*
 * longfork MIB: touches so much memory, in pages of 4 KiB, so that a fork has many page tables to copy. For each number
 * on its standard input it forks so many times and prints a line with the time of each fork in microseconds, separated
 * by blanks; a child that does not end well is a negative number.
 */
#include "testprog.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static void touch(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    if (madvise(memory, bytes, MADV_NOHUGEPAGE) != 0)
        perror("madvise"); /* a kernel without huge pages: small they are then, too */
    for (size_t at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
}

EXACT double timed_fork(void)
{
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    double us = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e3;
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        ;
    return status == 0 ? us : -us;
}

int main(int argc, char **argv)
{
    touch((size_t)number_argument(argc, argv, 1, 1024) << 20);
    ready("");
    int count;
    while (scanf("%d", &count) == 1) {
        for (int i = 0; i < count; i++)
            printf("%s%.1f", i ? " " : "", timed_fork());
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
