/*
 * sighandler raise [SECONDS]: main;raise_signal;…raise…;handler;handler_spin.
 * sighandler async [SECONDS]: main;interrupted_work;…;handler;handler_spin: the signal hits anywhere in a loop.
 * sighandler altstack [SECONDS]: as async, but the handler runs on a stack of its own.
 */
#include "testprog.h"

#include <string.h>

static volatile sig_atomic_t handled;

EXACT void handler_spin(void)
{
    SPIN();
}

EXACT void handler(int signal_number)
{
    (void)signal_number;
    ready("");
    handler_spin();
    handled = 1;
}

EXACT void raise_signal(void)
{
    raise(SIGUSR1);
    handled = 1;
}

EXACT void interrupted_work(void)
{
    for (volatile unsigned long turns = 0; !handled; turns++)
        ;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "raise";
    struct sigaction action = {.sa_handler = handler};
    if (strcmp(mode, "altstack") == 0) {
        static char memory[65536];
        stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
        sigaltstack(&stack, NULL);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGUSR1, &action, NULL);
    stop_after(number_argument(argc, argv, 2, 60));
    if (strcmp(mode, "raise") == 0) {
        raise_signal();
        return 0;
    }
    /* A timer signals the process some milliseconds later, in the middle of the loop. */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec when = {.it_value = {.tv_nsec = 20000000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0)
        fail("timer");
    interrupted_work();
    return 0;
}
