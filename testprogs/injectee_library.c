/* What is loaded into an injectee. It leaves nothing as it was of what a function may change. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t calls;

int64_t injected_plus_one(uint64_t argument)
{
    char *block = malloc(100000);
    if (block)
        memset(block, (int)argument, 100000);
    free(block);
    calls++;
    errno = 5;
    __asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm7, %%xmm7; pxor %%xmm15, %%xmm15; fninit; fld1" ::
                         : "xmm0", "xmm7", "xmm15", "st");
    __asm__ volatile("fninit");
    return (int64_t)argument + 1;
}

int64_t injected_calls(uint64_t argument)
{
    (void)argument;
    return (int64_t)calls;
}

int64_t injected_sleep_ms(uint64_t argument)
{
    struct timespec pause = {(time_t)(argument / 1000), (long)(argument % 1000 * 1000000)};
    nanosleep(&pause, NULL);
    return 7;
}
