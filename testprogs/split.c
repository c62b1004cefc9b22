/* split [SECONDS]: main;cold_outer;hot_outer;hot_spin, the hot ones in a segment of their own, which the linker puts
 * far away, on a page of the file where another one ends. */
#include "testprog.h"

#define HOT __attribute__((section(".hot"))) EXACT

HOT unsigned long hot_spin(unsigned long x)
{
    SPIN();
    return x;
}

HOT unsigned long hot_outer(unsigned long x)
{
    unsigned long below = hot_spin(x + 1);
    return below ^ x;
}

EXACT unsigned long cold_outer(unsigned long x)
{
    unsigned long below = hot_outer(x + 1);
    return below ^ x;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
    volatile unsigned long result = cold_outer((unsigned long)argc);
    (void)result;
    return 0;
}
