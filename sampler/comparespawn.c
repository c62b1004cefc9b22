#include "sampler/comparespawn.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int comparespawn_start(const char *const *argv, const sigset_t *mask, int out_fd, int error_fd, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return -error;
    error = posix_spawnattr_init(&attributes);
    if (error) {
        posix_spawn_file_actions_destroy(&actions);
        return -error;
    }
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    if (!error && error_fd != STDERR_FILENO)
        error = posix_spawn_file_actions_adddup2(&actions, error_fd, STDERR_FILENO);
    if (!error)
        error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    if (!error)
        error = posix_spawnattr_setpgroup(&attributes, 0);
    if (!error)
        error = posix_spawnattr_setsigmask(&attributes, mask);
    if (!error)
        error = posix_spawnp(ret_pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -error;
}

static bool has_ended(pid_t pid, int pid_fd, uint64_t deadline_ns)
{
    struct pollfd pollfd = {.fd = pid_fd, .events = POLLIN};
    for (;;) {
        siginfo_t info = {0};
        uint64_t now_ns = clock_now_ns();
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == pid)
            return true;
        if (now_ns >= deadline_ns)
            return false;
        uint64_t left_ns = deadline_ns - now_ns;
        poll(&pollfd, 1, left_ns > NS_PER_SEC ? 1000 : (int)(left_ns / NS_PER_MS) + 1);
    }
}

int comparespawn_wait(pid_t pid, uint64_t deadline_ns, int *ret_status, struct rusage *ret_usage)
{
    struct rusage usage;
    int status = 0;
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0); /* without one it is looked at once a second */
    bool ended = has_ended(pid, pid_fd, deadline_ns);
    if (pid_fd >= 0)
        close(pid_fd);
    if (!ended)
        kill(-pid, SIGKILL);
    pid_t got;
    do {
        got = wait4(pid, &status, 0, &usage);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    *ret_status = status;
    if (ret_usage)
        *ret_usage = usage;
    return ended ? 0 : -ETIME;
}

double comparespawn_cpu_ns(const struct rusage *usage)
{
    return ((double)usage->ru_utime.tv_sec + (double)usage->ru_stime.tv_sec) * 1e9 +
           ((double)usage->ru_utime.tv_usec + (double)usage->ru_stime.tv_usec) * 1e3;
}
