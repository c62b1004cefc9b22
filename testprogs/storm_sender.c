/*
 * storm_sender PID COUNT: sends the storm: SIGRTMIN with the values 0 … COUNT-1, five a millisecond, and one SIGUSR1 a
 * millisecond. Prints {"queued": …, "usr1": …}.
 */
#include "testprog.h"

#include <errno.h>

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    pid_t pid = (pid_t)strtol(argv[1], NULL, 10);
    int count = (int)strtol(argv[2], NULL, 10), usr1 = 0;
    for (int i = 0; i < count; i++) {
        while (sigqueue(pid, SIGRTMIN, (union sigval){.sival_int = i}) != 0) {
            if (errno != EAGAIN)
                fail("sigqueue");
            sleep_ns(1000000);
        }
        if (i % 5 == 4) {
            if (kill(pid, SIGUSR1) != 0)
                fail("kill");
            usr1++;
            sleep_ns(1000000);
        }
    }
    printf("{\"queued\": %d, \"usr1\": %d}\n", count, usr1);
    return 0;
}
