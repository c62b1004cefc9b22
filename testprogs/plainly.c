/* plainly PROGRAM [ARG]…: starts a program by fork and exec, changes nothing, and ends as it does. */
#include "testprog.h"

#include <sys/wait.h>

int main(int argc, char **argv)
{
    int status;
    if (argc < 2)
        return 99;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, it would lose the status */
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        fail("plainly");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
