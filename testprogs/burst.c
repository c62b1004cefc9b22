/* burst [SECONDS]: 1 ms in burst_spin, 9 ms asleep, and so on. Prints {"cpu_ns": …, "wall_ns": …} at the end. */
#include "testprog.h"

EXACT void burst_spin(void)
{
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + 1000000;
    while (clock_ns(CLOCK_MONOTONIC) < end_ns)
        ;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    while (!stop) {
        burst_spin();
        sleep_ns(9000000);
    }
    /* What it waited for a CPU: other programs' doing. */
    unsigned long long waited_ns = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (!file || fscanf(file, "%*u %llu", &waited_ns) != 1)
        fail("/proc/self/schedstat");
    printf("{\"cpu_ns\": %llu, \"waited_ns\": %llu, \"wall_ns\": %llu}\n",
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID), waited_ns,
           (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - start_ns));
    return 0;
}
