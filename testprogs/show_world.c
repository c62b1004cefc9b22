/*
 * show_world: prints all that a program inherits from who started it, one fact a line, nothing that differs from run to
 * run by itself. Started through a launcher that changes nothing, it prints the same.
 */
#include "testprog.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>

extern char **environ;

static void show_status(void)
{
    static const char *const wanted[] = {"SigPnd:", "ShdPnd:", "SigBlk:",     "SigIgn:",  "SigCgt:",    "CapInh:",
                                         "CapPrm:", "CapEff:", "NoNewPrivs:", "Seccomp:", "TracerPid:", "Umask:"};
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    if (status == NULL)
        fail("/proc/self/status");
    while (fgets(line, sizeof line, status) != NULL)
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                fputs(line, stdout);
    fclose(status);
}

static void show_descriptors(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], link[512];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length < 0)
            continue;
        link[length] = '\0';
        printf("fd %d: %s status 0%o isatty %d\n", fd, link, (unsigned)fcntl(fd, F_GETFL), isatty(fd));
    }
}

static void show_limits(void)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)i, &limit) == 0)
            printf("rlimit %d: %llu %llu\n", i, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
}

static void show_scheduling(void)
{
    cpu_set_t cpus;
    printf("nice: %d\npolicy: %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &cpus))
                printf("cpu: %d\n", i);
    printf("timer slack: %d\n", prctl(PR_GET_TIMERSLACK));
}

int main(int argc, char **argv)
{
    int death_signal = -1;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    show_status();
    show_descriptors();
    printf("process group: %d\nsession: %d\nforeground group: %d\n", (int)getpgrp(), (int)getsid(0), (int)tcgetpgrp(0));
    show_limits();
    show_scheduling();
    printf("death signal: %d\ndumpable: %d\npersonality: %d\nsubreaper: ", death_signal, prctl(PR_GET_DUMPABLE),
           personality(0xffffffff));
    int subreaper = -1;
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    printf("%d\nuid: %d %d\ngid: %d %d\n", subreaper, (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid());
    char directory[4096];
    printf("directory: %s\n", getcwd(directory, sizeof directory) != NULL ? directory : "?");
    struct itimerval timer;
    for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
        if (getitimer((__itimer_which_t)which, &timer) == 0)
            printf("timer %d: %ld\n", which, (long)timer.it_value.tv_sec);
    for (int i = 0; i < argc; i++)
        printf("argument: %s\n", argv[i]);
    for (char **variable = environ; *variable != NULL; variable++)
        printf("environment: %s\n", *variable);
    return 0;
}
