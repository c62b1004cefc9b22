/*
 * System calls without the C library: no errno, no cancellation point, nothing that another library could have put
 * itself before. For handlers.
 */
#ifndef HELPER_RAWCALL_H
#define HELPER_RAWCALL_H

#include <stdint.h>
#include <sys/syscall.h>

/* The kernel's result: negative errno on failure. */
static inline long rawcall6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long rawcall4(long number, long a, long b, long c, long d)
{
    return rawcall6(number, a, b, c, d, 0, 0);
}

static inline long rawcall3(long number, long a, long b, long c)
{
    return rawcall6(number, a, b, c, 0, 0, 0);
}

/* The calling thread, as its own pid namespace numbers it. */
static inline int32_t rawcall_tid(void)
{
    return (int32_t)rawcall3(SYS_gettid, 0, 0, 0);
}

#endif
