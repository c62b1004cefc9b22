/* chain [SECONDS]: main;level_1;…;level_20;leaf_spin, always. Built in many ways (see CMakeLists.txt). */
#include "testprog.h"

#ifndef LIFE_SECONDS
#define LIFE_SECONDS 60
#endif

EXACT unsigned long leaf_spin(unsigned long x)
{
    SPIN();
    return x;
}

/* `x` is needed after the call, so the frame stays while the call runs. */
#define LEVEL(n, next)                                                                                                 \
    EXACT unsigned long level_##n(unsigned long x)                                                                     \
    {                                                                                                                  \
        unsigned long below = next(x + n);                                                                             \
        return below ^ x;                                                                                              \
    }

LEVEL(20, leaf_spin)
LEVEL(19, level_20)
LEVEL(18, level_19)
LEVEL(17, level_18)
LEVEL(16, level_17)
LEVEL(15, level_16)
LEVEL(14, level_15)
LEVEL(13, level_14)
LEVEL(12, level_13)
LEVEL(11, level_12)
LEVEL(10, level_11)
LEVEL(9, level_10)
LEVEL(8, level_9)
LEVEL(7, level_8)
LEVEL(6, level_7)
LEVEL(5, level_6)
LEVEL(4, level_5)
LEVEL(3, level_4)
LEVEL(2, level_3)
LEVEL(1, level_2)

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, LIFE_SECONDS));
    ready("");
    volatile unsigned long result = level_1((unsigned long)argc);
    (void)result;
    return 0;
}
