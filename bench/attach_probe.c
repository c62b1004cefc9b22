/*
 * attach_probe PID COUNT PERIOD_MS: attaches COUNT times to all threads of a process, as `strace -f` does (PTRACE_SEIZE
 * of each thread), and lets go of them at once, at random moments PERIOD_MS apart on average. Prints as JSON the
 * attaches of which some thread refused ("refused"), and the threads ("seizes", "seizes_refused").
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct counts {
    long seizes;
    long refused;
};

/* The end of a tracer releases its threads; a detach would have to stop them first. */
static void attach_and_end(const char *tasks, int result_fd)
{
    struct counts counts = {0, 0};
    DIR *directory = opendir(tasks);
    const struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid == 0)
            continue;
        counts.seizes++;
        if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 && errno == EPERM)
            counts.refused++;
    }
    _exit(write(result_fd, &counts, sizeof(counts)) != (ssize_t)sizeof(counts));
}

static void sleep_about(long period_ms)
{
    long us = (long)(drand48() * 2000 * (double)period_ms);
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    char tasks[64];
    snprintf(tasks, sizeof(tasks), "/proc/%ld/task", strtol(argv[1], NULL, 10));
    long count = strtol(argv[2], NULL, 10);
    long period_ms = strtol(argv[3], NULL, 10);
    long attaches_refused = 0;
    struct counts total = {0, 0};
    srand48(getpid());
    for (long i = 0; i < count; i++) {
        int fds[2];
        struct counts counts;
        sleep_about(period_ms);
        if (pipe(fds) < 0)
            return 1;
        pid_t pid = fork();
        if (pid == 0)
            attach_and_end(tasks, fds[1]);
        if (pid < 0 || read(fds[0], &counts, sizeof(counts)) != (ssize_t)sizeof(counts) || waitpid(pid, NULL, 0) != pid)
            return 1;
        close(fds[0]);
        close(fds[1]);
        total.seizes += counts.seizes;
        total.refused += counts.refused;
        attaches_refused += counts.refused > 0;
    }
    printf("{\"attaches\": %ld, \"refused\": %ld, \"seizes\": %ld, \"seizes_refused\": %ld}\n", count, attaches_refused,
           total.seizes, total.refused);
    return 0;
}
