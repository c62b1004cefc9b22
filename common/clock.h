/* Clocks and waiting, in nanoseconds. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SEC UINT64_C(1000000000)
#define NS_PER_MS  UINT64_C(1000000)
#define NS_PER_US  UINT64_C(1000)

/* CLOCK_MONOTONIC now. */
uint64_t clock_now_ns(void);

/* Any clock now; 0 when it cannot be read (a foreign process clock whose process is gone). */
uint64_t clock_read_ns(clockid_t clock);

struct timespec clock_timespec(uint64_t ns);

/* Sleeps until CLOCK_MONOTONIC reaches `deadline_ns`. Returns 0, or -EINTR when a signal handler ran first. */
int clock_sleep_until(uint64_t deadline_ns);

#endif
