/*
 * drap [SECONDS]: parent_fn;drap_fn;burn below the start-up code. drap_fn has a frame that is aligned anew and of a
 * size only known at run time, so its CFA must be read from memory; main is not there, since it jumps to parent_fn.
 */
#include "testprog.h"

#include <string.h>

EXACT int burn(char *bytes)
{
    SPIN();
    return bytes[0];
}

EXACT int drap_fn(int size)
{
    int aligned[8] __attribute__((aligned(32)));
    char *bytes = __builtin_alloca((size_t)size);
    memset(aligned, size, sizeof aligned);
    memset(bytes, size, (size_t)size);
    __asm__ volatile("" : : "r"(aligned) : "memory");
    int result = burn(bytes);
    return result + aligned[size & 7];
}

EXACT int parent_fn(int size)
{
    return drap_fn(size + 100) + 1;
}

/* Apart from main, which could not jump while something points to its locals. */
EXACT void set_up(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
}

int main(int argc, char **argv)
{
    set_up(argc, argv);
    return parent_fn(argc);
}
