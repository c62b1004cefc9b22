/*
 * What the test programs share. A program prints one line "ready pid=N key=value…" when it is set up, then works until
 * it is killed or its time is over. Stacks are exact: functions marked EXACT are neither inlined, cloned nor merged,
 * and no call is a tail call (-fno-optimize-sibling-calls); a loop that spins calls nothing.
 */
#ifndef TESTPROG_H
#define TESTPROG_H

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_attribute) && __has_attribute(noipa)
#define EXACT __attribute__((noipa))
#else
#define EXACT __attribute__((noinline))
#endif

#define UNUSED __attribute__((unused))

/* Set when the time is over: every spinning loop looks at it. */
static volatile sig_atomic_t stop UNUSED;

/* The body of a leaf function that spins: one loop on a variable of its own stack frame. */
#define SPIN()                                                                                                         \
    do {                                                                                                               \
        for (volatile unsigned long turns_ = 0; !stop; turns_++)                                                       \
            ;                                                                                                          \
    } while (0)

UNUSED static void stop_on_signal(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

/* Sets `stop` after so many seconds, by SIGALRM. */
UNUSED static void stop_after(double seconds)
{
    struct sigaction action;
    sigemptyset(&action.sa_mask);
    action.sa_handler = stop_on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer;
    timer.it_interval.tv_sec = timer.it_interval.tv_usec = 0;
    timer.it_value.tv_sec = (time_t)seconds;
    timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Argument number `index` as a number, or `otherwise` when there is none. */
UNUSED static double number_argument(int argc, char **argv, int index, double otherwise)
{
    return argc > index ? strtod(argv[index], NULL) : otherwise;
}

UNUSED static void ready(const char *format, ...)
{
    char more[512] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    printf("ready pid=%d %s\n", (int)getpid(), more);
    fflush(stdout);
}

UNUSED static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

UNUSED static void sleep_ns(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&pause, &pause) != 0)
        ;
}

UNUSED static void fail(const char *what)
{
    perror(what);
    exit(99);
}

#endif
