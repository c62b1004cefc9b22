/*
 * churn LIBRARY [ROUNDS]: everything that news are about, again and again. Each round starts 20 threads that end at
 * once; loads the library and calls into it for 50 ms (library_outer;library_spin) in the thread "loader-N", and
 * unloads it; leaves a grandchild "orphan-N" behind, whose parent ends at once, and that spins 0.3 s in orphan_spin;
 * and has a child execute this program, which spins 0.1 s in executed_spin as "executed". Prints {"rounds": N} at the
 * end.
 */
#include "testprog.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const char *library_path;
static int round_number;

#define SPIN_FOR(ns)                                                                                                   \
    for (uint64_t end_ns_ = clock_ns(CLOCK_MONOTONIC) + (ns); clock_ns(CLOCK_MONOTONIC) < end_ns_;)                    \
        for (volatile int i_ = 0; i_ < 100000; i_++)                                                                   \
            ;

EXACT void orphan_spin(void){SPIN_FOR(300000000)}

EXACT void executed_spin(void)
{
    SPIN_FOR(100000000)
}

static void set_name(const char *name)
{
    char text[16];
    snprintf(text, sizeof text, "%s-%d", name, round_number);
    prctl(PR_SET_NAME, text);
}

static void *ends_at_once(void *argument)
{
    return argument;
}

static void on_alarm(int signal_number)
{
    *(volatile sig_atomic_t *)&stop = signal_number;
}

static void *load_and_call(void *argument)
{
    set_name("loader");
    void *library = dlopen(library_path, RTLD_NOW);
    void *function = library != NULL ? dlsym(library, "library_outer") : NULL;
    if (function == NULL)
        fail(dlerror());
    signal(SIGALRM, on_alarm);
    struct itimerval timer = {.it_value = {.tv_usec = 50000}};
    stop = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    ((void (*)(volatile sig_atomic_t *))(uintptr_t)function)(&stop);
    dlclose(library);
    return argument;
}

static void run_thread(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0)
        fail("pthread_create");
    pthread_join(thread, NULL);
}

static void leave_orphan(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            set_name("orphan");
            orphan_spin();
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void execute(const char *self)
{
    pid_t child = fork();
    if (child == 0) {
        execl(self, "executed", (char *)NULL);
        _exit(99);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "executed") == 0) {
        prctl(PR_SET_NAME, "executed");
        executed_spin();
        return 0;
    }
    if (argc < 2)
        return 99;
    library_path = argv[1];
    int rounds = (int)number_argument(argc, argv, 2, 3);
    ready("");
    for (round_number = 0; round_number < rounds; round_number++) {
        for (int i = 0; i < 20; i++)
            run_thread(ends_at_once);
        run_thread(load_and_call);
        leave_orphan();
        execute(argv[0]);
    }
    printf("{\"rounds\": %d}\n", round_number);
    return 0;
}
