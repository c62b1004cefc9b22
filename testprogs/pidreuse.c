/*
 * pidreuse PROGRAM ARG -- PROGRAM ARG: starts the first program and, at a line on standard input, kills and reaps it
 * and starts the second one under the same process id; kills that one at the next line. Says "started pid=N", and
 * "reused pid=N". Choosing a process id needs root.
 */
#include "testprog.h"

#include <linux/sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static pid_t start(char **command, pid_t wanted)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    if (wanted) {
        arguments.set_tid = (uintptr_t)&wanted;
        arguments.set_tid_size = 1;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid < 0)
        fail("clone3");
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) != NULL)
            execv(command[0], command);
        _exit(99);
    }
    return pid;
}

static int read_line(void)
{
    int character;
    while ((character = getchar()) != EOF && character != '\n')
        ;
    return character;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 6 || strcmp(argv[3], "--") != 0)
        return 99;
    argv[3] = NULL;
    pid_t pid = start(argv + 1, 0);
    ready("target=%d", (int)pid);
    int character = read_line();
    end(pid);
    if (character == EOF)
        return 0;
    pid = start(argv + 4, pid);
    printf("reused pid=%d\n", (int)pid);
    fflush(stdout);
    read_line();
    end(pid);
    return 0;
}
