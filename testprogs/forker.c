/*
 * forker PROGRAM [SECONDS]: again and again, main spins 0.1 s in parent_spin, then starts a child that spins 0.2 s in
 * child_spin and one that executes PROGRAM with the argument 0.2, and waits for both. Prints {"children": N} at the
 * end; ends with status 1 if a child did not end well.
 */
#include "testprog.h"

#include <sys/wait.h>

/* Not ended by `stop`: a round is always whole. */
#define SPIN_FOR(ns)                                                                                                   \
    for (uint64_t end_ns_ = clock_ns(CLOCK_MONOTONIC) + (ns); clock_ns(CLOCK_MONOTONIC) < end_ns_;)                    \
        for (volatile int i_ = 0; i_ < 100000; i_++)                                                                   \
            ;

EXACT void parent_spin(void){SPIN_FOR(100000000)}

EXACT void child_spin(void)
{
    SPIN_FOR(200000000)
}

static int child_ended_well(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    int children = 0, bad = 0;
    while (!stop) {
        parent_spin();
        pid_t forked = fork();
        if (forked == 0) {
            child_spin();
            _exit(0);
        }
        pid_t executed = fork();
        if (executed == 0) {
            freopen("/dev/null", "w", stdout);
            execl(argv[1], argv[1], "0.2", (char *)NULL);
            _exit(99);
        }
        bad += !child_ended_well(forked);
        bad += !child_ended_well(executed);
        children += 2;
    }
    printf("{\"children\": %d}\n", children);
    return bad > 0;
}
