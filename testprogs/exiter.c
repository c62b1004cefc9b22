/* exiter exit STATUS [SECONDS] | exiter signal NUMBER [SECONDS]: spins in exiter_spin, then ends that way. */
#include "testprog.h"

#include <string.h>
#include <sys/resource.h>

EXACT void exiter_spin(void)
{
    SPIN();
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    int number = (int)strtol(argv[2], NULL, 10);
    double seconds = number_argument(argc, argv, 3, 0);
    ready("");
    if (seconds > 0) {
        stop_after(seconds);
        exiter_spin();
    }
    if (strcmp(argv[1], "exit") == 0)
        return number;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(number, SIG_DFL);
    raise(number);
    return 99;
}
