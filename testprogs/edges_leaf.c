/* The leaf of edges.c: its locals lie below the stack pointer, it pushes nothing. */
#include "testprog.h"

EXACT unsigned leaf_in_c(unsigned turns, unsigned odd)
{
    volatile unsigned sum = odd;
    for (unsigned i = 0; i < turns; i++)
        sum = sum + i;
    return sum;
}
