/*
 * storm: takes signals in every way, and counts.
 *   - main spins; SIGRTMIN with values 0, 1, 2, … (by sigqueue) must come in order and each once; SIGUSR1 any number of
 * times;
 *   - one thread executes int3 1,000 times, one reads address 0 1,000 times, both handled;
 *   - one starts 200 short children and reaps each; SIGCHLD comes in between.
 * SIGTERM ends it, once the threads are done. Prints the counts as JSON and exits with 0.
 */
#include "testprog.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { TRAPS = 1000, FAULTS = 1000, CHILDREN = 200 };

static volatile sig_atomic_t queued, disordered, foreign, usr1, chld, traps, faults, reaped, interrupted;

static void on_queued(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    if (info->si_code != SI_QUEUE)
        foreign = foreign + 1;
    else if (info->si_value.sival_int != queued)
        disordered = disordered + 1;
    queued = queued + 1;
}

static void on_usr1(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    if (info->si_code != SI_USER)
        foreign = foreign + 1;
    usr1 = usr1 + 1;
}

static void on_chld(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)info, (void)context;
    chld = chld + 1;
}

static void on_trap(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    if (info->si_code != SI_KERNEL && info->si_code != TRAP_BRKPT)
        foreign = foreign + 1;
    traps = traps + 1;
}

/* The faulting instruction is three bytes long. */
static void on_segv(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    if (info->si_code != SEGV_MAPERR || info->si_addr != NULL)
        foreign = foreign + 1;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 3;
    faults = faults + 1;
}

static void *trap_main(void *argument)
{
    for (int i = 0; i < TRAPS; i++) {
        __asm__ volatile("int3");
        sleep_ns(500000);
    }
    return argument;
}

static void *fault_main(void *argument)
{
    for (int i = 0; i < FAULTS; i++) {
        __asm__ volatile(".byte 0xc6, 0x00, 0x00" : : "a"(0) : "memory"); /* movb $0, (%rax) */
        sleep_ns(500000);
    }
    return argument;
}

static void *children_main(void *argument)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(7);
        int status;
        pid_t got;
        while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
            interrupted = interrupted + 1;
        if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7)
            reaped = reaped + 1;
        sleep_ns(2000000);
    }
    return argument;
}

EXACT void storm_spin(void)
{
    SPIN();
}

static void handle(int signal_number, void (*function)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = function, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(signal_number, &action, NULL);
}

int main(void)
{
    handle(SIGRTMIN, on_queued);
    handle(SIGUSR1, on_usr1);
    handle(SIGCHLD, on_chld);
    handle(SIGTRAP, on_trap);
    handle(SIGSEGV, on_segv);
    struct sigaction end = {.sa_handler = stop_on_signal};
    sigaction(SIGTERM, &end, NULL);

    /* Only main takes what comes from outside, so that "in order" has a meaning. */
    sigset_t outside, before;
    sigemptyset(&outside);
    sigaddset(&outside, SIGRTMIN);
    sigaddset(&outside, SIGUSR1);
    sigaddset(&outside, SIGCHLD);
    sigaddset(&outside, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &outside, &before);
    void *(*const functions[])(void *) = {trap_main, fault_main, children_main};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, functions[i], NULL) != 0)
            fail("pthread_create");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ready("rtmin=%d", SIGRTMIN);
    storm_spin();
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("{\"queued\": %d, \"disordered\": %d, \"foreign\": %d, \"usr1\": %d, \"chld\": %d, \"traps\": %d, "
           "\"faults\": %d, "
           "\"reaped\": %d, \"interrupted\": %d}\n",
           (int)queued, (int)disordered, (int)foreign, (int)usr1, (int)chld, (int)traps, (int)faults, (int)reaped,
           (int)interrupted);
    return 0;
}
