/*
 * Threads that wait for signals as such, and for ours among them, are not told of ours: the program's calls of
 * sigwait(3) and its kin come here where the helper was loaded before it. (Who reads them from a signalfd(2) is told;
 * but a thread that has our signal blocked, as it has to for that, gets no timer.)
 */
#include "helper/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int wait_function(const sigset_t *set, siginfo_t *info, const struct timespec *timeout);
static wait_function *real_wait;

__attribute__((constructor(101))) static void load(void)
{
    real_wait = (wait_function *)dlsym(RTLD_NEXT, "sigtimedwait");
}

static struct timespec now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

/* What is left of `timeout` since `start`, not below 0. */
static struct timespec left_of(const struct timespec *timeout, const struct timespec *start)
{
    struct timespec time = now();
    struct timespec left = {.tv_sec = timeout->tv_sec - (time.tv_sec - start->tv_sec),
                            .tv_nsec = timeout->tv_nsec - (time.tv_nsec - start->tv_nsec)};
    for (; left.tv_nsec < 0; left.tv_nsec += 1000000000)
        left.tv_sec--;
    for (; left.tv_nsec >= 1000000000; left.tv_nsec -= 1000000000)
        left.tv_sec++;
    return left.tv_sec < 0 ? (struct timespec){0} : left;
}

static int wait_for(const sigset_t *set, siginfo_t *ret_info, const struct timespec *timeout)
{
    siginfo_t info;
    struct timespec start = {0};
    struct timespec left = {0};
    if (!real_wait)
        load();
    if (timeout) {
        start = now();
        left = *timeout;
    }
    int signal;
    while ((signal = real_wait(set, &info, timeout ? &left : NULL)) > 0 && state_knows(&info))
        if (timeout)
            left = left_of(timeout, &start);
    if (signal > 0 && ret_info)
        *ret_info = info;
    return signal;
}

EXPORTED int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info,
                          const struct timespec *restrict timeout)
{
    return wait_for(set, info, timeout);
}

EXPORTED int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict info)
{
    return wait_for(set, info, NULL);
}

EXPORTED int sigwait(const sigset_t *restrict set, int *restrict ret_signal)
{
    int before = errno;
    int signal;
    do
        signal = wait_for(set, NULL, NULL);
    while (signal < 0 && errno == EINTR);
    int error = signal < 0 ? errno : 0;
    errno = before;
    if (!error)
        *ret_signal = signal;
    return error;
}
