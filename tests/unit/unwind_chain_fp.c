/* Compiled with -fno-omit-frame-pointer. */
#include "unwind_chain.h"

__attribute__((noinline)) void chain_fp(unsigned depth, chain_end *end, void *context)
{
    if (depth > 0)
        chain_fp(depth - 1, end, context);
    else
        end(context);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}
