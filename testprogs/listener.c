/*
 * listener COUNT [SECONDS]: spins in listener_spin, counts SIGINT, SIGTERM and SIGHUP, and ends 0.3 s after the COUNTth
 * (a second copy of a signal would be counted in that time) with status 7. Prints {"INT": …, "TERM": …, "HUP": …}.
 */
#include "testprog.h"

static volatile sig_atomic_t interrupts, terminations, hangups, wanted;

static void on_signal(int signal_number)
{
    interrupts = interrupts + (signal_number == SIGINT);
    terminations = terminations + (signal_number == SIGTERM);
    hangups = hangups + (signal_number == SIGHUP);
    if (interrupts + terminations + hangups == wanted)
        stop_after(0.3);
}

EXACT void listener_spin(void)
{
    SPIN();
}

int main(int argc, char **argv)
{
    wanted = (sig_atomic_t)number_argument(argc, argv, 1, 1);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    listener_spin();
    printf("{\"INT\": %d, \"TERM\": %d, \"HUP\": %d}\n", (int)interrupts, (int)terminations, (int)hangups);
    return 7;
}
