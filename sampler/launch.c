#include "sampler/launch.h"

#include "common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* In the child, with one thread: only what exec needs. */
_Noreturn static void run_child(char **argv, bool join_stdout, char *const *variables, int go_fd, int outcome_fd)
{
    char byte;
    ssize_t got;
    do {
        got = read(go_fd, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1)
        _exit(0); /* the sampler gave up before */
    if (join_stdout)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    for (; variables && *variables; variables++)
        putenv(*variables);
    execvp(argv[0], argv);
    int error = errno;
    fileio_write(outcome_fd, &error, sizeof(error));
    _exit(127);
}

/* Descriptors 0 to 2 may be closed when we begin: ours must not land there, where the program would find them. */
static int pipe_above_standard(int fds[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC) < 0)
        return -errno;
    fds[0] = fcntl(low[0], F_DUPFD_CLOEXEC, 3);
    fds[1] = fcntl(low[1], F_DUPFD_CLOEXEC, 3);
    int error = fds[0] < 0 || fds[1] < 0 ? -errno : 0;
    close(low[0]);
    close(low[1]);
    return error;
}

int launch_prepare(char **argv, bool join_stdout, char *const *variables, struct launch *ret_launch)
{
    int go[2];
    int outcome[2];
    *ret_launch = (struct launch){.pid = -1, .pid_fd = -1, .go_fd = -1, .outcome_fd = -1};
    int error = pipe_above_standard(go);
    if (error)
        return error;
    error = pipe_above_standard(outcome);
    if (error) {
        close(go[0]);
        close(go[1]);
        return error;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(go[1]);
        close(outcome[0]);
        run_child(argv, join_stdout, variables, go[0], outcome[1]);
    }
    error = -errno;
    close(go[0]);
    close(outcome[1]);
    ret_launch->go_fd = go[1];
    ret_launch->outcome_fd = outcome[0];
    if (pid < 0) {
        launch_deinit(ret_launch);
        return error;
    }
    ret_launch->pid = pid;
    ret_launch->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (ret_launch->pid_fd < 0) {
        error = -errno;
        launch_deinit(ret_launch);
        return error;
    }
    return 0;
}

int launch_go(struct launch *launch)
{
    int error = fileio_write(launch->go_fd, "x", 1);
    close_fd(&launch->go_fd);
    if (error)
        return error;
    int child_error = 0;
    ssize_t got;
    do {
        got = read(launch->outcome_fd, &child_error, sizeof(child_error));
    } while (got < 0 && errno == EINTR);
    close_fd(&launch->outcome_fd);
    return got == sizeof(child_error) ? -child_error : 0;
}

/* Is there a file of that name where exec looks for it? */
static bool exists(const char *program)
{
    struct stat st;
    if (strchr(program, '/'))
        return stat(program, &st) == 0;
    if (!*program)
        return false;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/bin:/usr/bin";; at++) {
        size_t size = strcspn(at, ":");
        char file[PATH_MAX];
        /* An empty part is the working directory. */
        if (snprintf(file, sizeof(file), "%.*s%s%s", (int)size, at, size ? "/" : "", program) < (int)sizeof(file) &&
            stat(file, &st) == 0)
            return true;
        at += size;
        if (!*at)
            return false;
    }
}

int launch_failure_status(const char *program, int error)
{
    if (error == -ENOENT)
        return exists(program) ? 126 : 127; /* it is there: what is missing is its interpreter */
    return error == -ENOTDIR ? 127 : 126;
}

void launch_deinit(struct launch *launch)
{
    bool waits = launch->go_fd >= 0;
    close_fd(&launch->go_fd);
    if (waits && launch->pid > 0)
        waitpid(launch->pid, NULL, 0);
    close_fd(&launch->outcome_fd);
    close_fd(&launch->pid_fd);
}
