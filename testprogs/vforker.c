/*
 * vforker spin|sleep [SECONDS]: a child of vfork works in its parent's memory and on its parent's stack:
 * main;vfork_outer;do_vfork;child_spin, or …;child_sleep;<libc>. The ready line has the child's pid.
 */
#include "testprog.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static volatile int zero;

EXACT void child_spin(void)
{
    SPIN();
}

EXACT void child_sleep(void)
{
    while (!stop)
        pause();
}

EXACT void do_vfork(const char *kind)
{
    pid_t pid = vfork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* Timers are not inherited. */
        alarm(60);
        ready("");
        if (strcmp(kind, "spin") == 0)
            child_spin();
        else
            child_sleep();
        _exit(0);
    }
    if (pid < 0)
        fail("vfork");
    waitpid(pid, NULL, 0);
    zero = 0;
}

EXACT void vfork_outer(const char *kind)
{
    do_vfork(kind);
    zero = 0;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 2, 60));
    vfork_outer(argc > 1 ? argv[1] : "spin");
    return 0;
}
