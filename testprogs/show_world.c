/*
 * show_world: prints all that a program inherits from who started it, one fact a line, nothing that differs from run to
 * run by itself. Started through a launcher that changes nothing, it prints the same.
 */
#include "testprog.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>

extern char **environ;

static void show_status(void)
{
    static const char *const wanted[] = {
        "SigPnd:",     "ShdPnd:",       "SigBlk:",          "SigIgn:",      "SigCgt:",
        "CapInh:",     "CapPrm:",       "CapEff:",          "CapBnd:",      "CapAmb:",
        "NoNewPrivs:", "Seccomp:",      "Seccomp_filters:", "Umask:",       "Groups:",
        "Threads:",    "Cpus_allowed:", "Mems_allowed:",    "THP_enabled:", "Speculation_Store_Bypass:"};
    char line[4096];
    FILE *status = fopen("/proc/self/status", "re");
    if (status == NULL)
        fail("/proc/self/status");
    while (fgets(line, sizeof line, status) != NULL)
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                fputs(line, stdout);
    fclose(status);
}

static long tracer_now(void)
{
    char line[4096];
    long tracer = -1;
    FILE *status = fopen("/proc/self/status", "re");
    if (status == NULL)
        fail("/proc/self/status");
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "TracerPid: %ld", &tracer);
    fclose(status);
    return tracer;
}

/* The tracer that stays. One that holds a thread for a moment is seen too, when the moment is that of the question. */
static void show_tracer(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    long tracer = tracer_now();
    for (int asked = 1; tracer != 0 && asked < 100; asked++) {
        nanosleep(&pause, NULL);
        tracer = tracer_now();
    }
    printf("tracer: %ld\n", tracer);
}

/* A short file, or what a link says. */
static void show_file(const char *path)
{
    char text[4096] = "?";
    ssize_t size = readlink(path, text, sizeof text - 1);
    int fd = size < 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        size = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[size > 0 ? size : 1] = '\0';
    printf("%s: %s\n", path, text);
}

static void show_files(void)
{
    static const char *const paths[] = {
        "/proc/self/oom_score_adj", "/proc/self/coredump_filter", "/proc/self/cgroup",  "/proc/self/loginuid",
        "/proc/self/sessionid",     "/proc/self/autogroup",       "/proc/self/root",    "/proc/self/ns/user",
        "/proc/self/ns/pid",        "/proc/self/ns/mnt",          "/proc/self/ns/net",  "/proc/self/ns/cgroup",
        "/proc/self/ns/ipc",        "/proc/self/ns/uts",          "/proc/self/ns/time", "/proc/self/attr/current",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        show_file(paths[i]);
}

static void show_terminal(void)
{
    struct termios terminal;
    if (tcgetattr(0, &terminal) == 0)
        printf("terminal: %x %x %x %x\n", terminal.c_iflag, terminal.c_oflag, terminal.c_cflag, terminal.c_lflag);
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
    /* struct sched_attr, which glibc 2.36 does not tell of: size, policy, flags, nice, priority, runtime, … */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t times[3];
        uint32_t clamps[2];
    } attributes = {.size = 0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0)
        printf("scheduling: policy %u flags %llu nice %d priority %u runtime %llu clamps %u %u\n", attributes.policy,
               (unsigned long long)attributes.flags, attributes.nice, attributes.priority,
               (unsigned long long)attributes.times[0], attributes.clamps[0], attributes.clamps[1]);
    enum { IOPRIO_WHO_PROCESS = 1 };
    printf("I/O priority: %ld\n", syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0));
    int memory_policy = -1;
    syscall(SYS_get_mempolicy, &memory_policy, NULL, 0, NULL, 0);
    printf("memory policy: %d\n", memory_policy);
}

int main(int argc, char **argv)
{
    int death_signal = -1;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    show_status();
    show_tracer();
    show_files();
    show_terminal();
    show_descriptors();
    printf("process group: %d\nsession: %d\nforeground group: %d\n", (int)getpgrp(), (int)getsid(0), (int)tcgetpgrp(0));
    show_limits();
    show_scheduling();
    printf("death signal: %d\ndumpable: %d\npersonality: %d\nsubreaper: ", death_signal, prctl(PR_GET_DUMPABLE),
           personality(0xffffffff));
    int subreaper = -1;
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    int tsc = -1;
    prctl(PR_GET_TSC, &tsc);
    printf("%d\nsecurebits: %d\nkeeps capabilities: %d\nhuge pages off: %d\ntsc: %d\nsecure mode: %lu\n", subreaper,
           prctl(PR_GET_SECUREBITS), prctl(PR_GET_KEEPCAPS), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), tsc,
           getauxval(AT_SECURE));
    printf("uid: %d %d\ngid: %d %d\n", (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid());
    char directory[4096];
    printf("directory: %s\n", getcwd(directory, sizeof directory) != NULL ? directory : "?");
    struct itimerval timer;
    for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
        if (getitimer((__itimer_which_t)which, &timer) == 0)
            printf("timer %d: %ld\n", which, (long)timer.it_value.tv_sec);
    printf("file: %s\n", (const char *)getauxval(AT_EXECFN));
    for (int i = 0; i < argc; i++)
        printf("argument: %zu bytes %s\n", strlen(argv[i]), argv[i]);
    for (char **variable = environ; *variable != NULL; variable++)
        printf("environment: %zu bytes %s\n", strlen(*variable), *variable);
    return 0;
}
