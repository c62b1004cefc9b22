/*
 * tables [SECONDS]: main;outer_fn;aligned_fn;burn, always. aligned_fn has a frame that is aligned anew and of a size
 * only known at run time, so its CFA stands in memory and nothing but its unwind table says where. Built in many ways.
 */
#include "testprog.h"

#include <string.h>

EXACT int burn(const char *bytes)
{
    SPIN();
    return bytes[0];
}

EXACT int aligned_fn(int size)
{
    int aligned[8] __attribute__((aligned(32)));
    char *bytes = __builtin_alloca((size_t)size);
    memset(bytes, size, (size_t)size);
    memset(aligned, size, sizeof(aligned));
    __asm__ volatile("" : : "r"(aligned) : "memory");
    return burn(bytes) + aligned[size & 7];
}

EXACT int outer_fn(int size)
{
    return aligned_fn(size + 100) + size;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
    return outer_fn(argc) == 12345;
}
