/* Compiled with -fomit-frame-pointer. */
#include "unwind_chain.h"

#include <alloca.h>

__attribute__((noinline)) void chain_nofp(unsigned depth, chain_end *end, void *context)
{
    if (depth > 0)
        chain_nofp(depth - 1, end, context);
    else
        end(context);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

__attribute__((noinline)) void realigned_nofp(unsigned depth, chain_end *end, void *context)
{
    _Alignas(64) char aligned[64];
    char *sized = alloca(depth + 1);
    __asm__ volatile("" : : "r"(aligned), "r"(sized) : "memory");
    chain_nofp(depth, end, context);
    __asm__ volatile("" : : "r"(aligned), "r"(sized) : "memory");
}
