/* recurse DEPTH [SECONDS]: main;recurse × DEPTH;recurse_leaf. */
#include "testprog.h"

static volatile unsigned long sink;

EXACT void recurse_leaf(void)
{
    SPIN();
}

EXACT void recurse(unsigned long depth)
{
    if (depth > 1)
        recurse(depth - 1);
    else
        recurse_leaf();
    sink = sink + depth;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    recurse((unsigned long)number_argument(argc, argv, 1, 100));
    return 0;
}
