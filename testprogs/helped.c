/*
 * helped MODE [SECONDS]: what a program may do to a profiler that lives inside it. Spins in helped_spin meanwhile;
 * prints what it saw as JSON at the end.
 *
 * forks   a signal handler forks again and again, wherever it comes, and the children go back through whatever it has
 *         interrupted: {"children": N, "killed": those that did not end well}
 * rawfork a child by the bare system call makes a timer and a thread of its own: {"timer": 0 if it is still there}
 * urgent  has a handler for SIGURG that nobody sends: {"urgent": how often it ran}
 * waiting all threads block all signals, one waits for them: {"waited": how many came that it did not send itself}
 * jumps   a handler jumps out of whatever it comes in: {"jumps": N}
 * unload  LIBRARY OTHER: the two take turns at one address, called through helped_call_a and helped_call_b
 * flood   writes records of its own into the memory that it shares with the profiler, as fast as it can
 * silent  sleeps in helped_sleep: {}
 */
#include "testprog.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

EXACT void helped_spin(void)
{
    for (volatile int i = 0; i < 20000; i++)
        ;
}

/* ---- forks ---- */

static unsigned long children, killed;

static void fork_in_handler(int number)
{
    (void)number;
    int before = errno, status;
    pid_t child = fork();
    if (child == 0) {
        stop = 1; /* it goes back through the handler that was interrupted, and ends in main */
        return;
    }
    children++;
    if (waitpid(child, &status, 0) != child || status != 0)
        killed++;
    errno = before;
}

static int run_forks(void)
{
    pid_t self = getpid(), sender = fork();
    if (sender == 0) {
        while (!stop && getppid() == self) {
            kill(self, SIGUSR1);
            usleep(300);
        }
        _exit(0);
    }
    while (!stop)
        helped_spin();
    if (getpid() != self)
        _exit(0);
    kill(sender, SIGKILL);
    printf("{\"children\": %lu, \"killed\": %lu}\n", children, killed);
    return 0;
}

/* ---- rawfork ---- */

static void *end_at_once(void *argument)
{
    helped_spin();
    return argument;
}

static int run_rawfork(void)
{
    int status = -1;
    pid_t child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        struct sigevent event = {.sigev_notify = SIGEV_NONE};
        struct itimerspec left;
        timer_t timer;
        pthread_t thread;
        int error = timer_create(CLOCK_MONOTONIC, &event, &timer);
        if (!error && pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            pthread_join(thread, NULL);
        for (int i = 0; i < 5000; i++) /* alarms are not inherited */
            helped_spin();
        _exit(error || timer_gettime(timer, &left) != 0);
    }
    while (!stop)
        helped_spin();
    waitpid(child, &status, 0);
    printf("{\"timer\": %d}\n", status);
    return 0;
}

/* ---- urgent, waiting ---- */

static volatile sig_atomic_t urgent;

static void count_urgent(int number)
{
    (void)number;
    urgent++;
}

static int run_urgent(void)
{
    struct sigaction action = {.sa_handler = count_urgent, .sa_flags = SA_RESTART};
    sigaction(SIGURG, &action, NULL);
    while (!stop)
        helped_spin();
    printf("{\"urgent\": %d}\n", (int)urgent);
    return 0;
}

static atomic_bool is_over;

static void *spin_blocked(void *argument)
{
    while (!is_over)
        helped_spin();
    return argument;
}

static int run_waiting(void)
{
    sigset_t all;
    pthread_t thread;
    int number, waited = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_create(&thread, NULL, spin_blocked, NULL);
    for (; sigwait(&all, &number) == 0 && number != SIGALRM;) {
        waited++;
        helped_spin();
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("{\"waited\": %d}\n", waited);
    return 0;
}

/* ---- jumps ---- */

static sigjmp_buf back;
static volatile sig_atomic_t may_jump, jumps;

static void jump(int number)
{
    (void)number;
    if (may_jump)
        siglongjmp(back, 1);
}

static int run_jumps(void)
{
    pid_t self = getpid(), sender = fork();
    if (sender == 0) {
        while (getppid() == self) {
            kill(self, SIGUSR2);
            usleep(100);
        }
        _exit(0);
    }
    if (sigsetjmp(back, 1))
        jumps++;
    may_jump = 1;
    while (!stop)
        helped_spin();
    may_jump = 0;
    kill(sender, SIGKILL);
    printf("{\"jumps\": %d}\n", (int)jumps);
    return 0;
}

/* ---- unload ---- */

typedef void library_function(void (*callback)(void));

EXACT void helped_call_a(library_function *function)
{
    function(helped_spin);
    __asm__ volatile("");
}

EXACT void helped_call_b(library_function *function)
{
    function(helped_spin);
    __asm__ volatile("");
}

static int run_unload(char **libraries)
{
    unsigned long same = 0, turns = 0;
    void *last = NULL;
    for (int turn = 0; !stop; turn = !turn) {
        void *handle = dlopen(libraries[turn], RTLD_NOW);
        library_function *function = (library_function *)dlsym(handle, turn ? "unload_b" : "unload_a");
        if (!function)
            fail("dlsym");
        same += (void *)function == last;
        turns++;
        last = (void *)function;
        for (int i = 0; i < 200 && !stop; i++)
            (turn ? helped_call_b : helped_call_a)(function);
        dlclose(handle);
    }
    printf("{\"turns\": %lu, \"same\": %lu}\n", turns, same);
    return 0;
}

/* ---- flood ---- */

#include "helper/layout.h"

static struct helper_shared *find_shared(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    struct helper_shared *shared = NULL;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:sampler-helper"))
            shared = (struct helper_shared *)strtoul(line, NULL, 16); // NOLINT
    if (maps)
        fclose(maps);
    return shared;
}

static struct helper_record *begin_record(struct helper_shared *shared, uint64_t position, uint32_t kind,
                                          uint32_t bytes)
{
    struct helper_record *record = (struct helper_record *)(void *)(shared->ring.bytes + position % HELPER_RING_BYTES);
    record->size = bytes;
    record->kind = kind;
    return record;
}

static int run_flood(void)
{
    enum { BYTES = 2 * HELPER_RECORD_ALIGN };
    struct helper_shared *shared = find_shared();
    unsigned long written = 0;
    if (!shared)
        fail("no memory is shared");
    uint64_t position = atomic_load(&shared->ring.head);
    if (position % BYTES) {
        atomic_store(&begin_record(shared, position, HELPER_RECORD_PAD, HELPER_RECORD_ALIGN)->commit, ~position);
        position += HELPER_RECORD_ALIGN;
    }
    while (!stop) {
        if (position + BYTES - atomic_load(&shared->ring.tail) > HELPER_RING_BYTES)
            continue;
        struct helper_record *record = begin_record(shared, position, HELPER_RECORD_NO_ROOM, BYTES);
        record->tid = getpid();
        record->slot = 0;
        record->ticks = 1000;
        record->blocked_ticks = 0;
        record->count = 0;
        atomic_store(&record->commit, ~position);
        position += BYTES;
        atomic_store(&shared->ring.head, position);
        written++;
    }
    printf("{\"written\": %lu}\n", written);
    return 0;
}

EXACT void helped_sleep(void)
{
    while (!stop)
        pause();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    double seconds = number_argument(argc, argv, 2, 60);
    struct sigaction forks = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    struct sigaction jumping = {.sa_handler = jump, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &forks, NULL);
    sigaction(SIGUSR2, &jumping, NULL);
    stop_after(seconds);
    ready("");
    if (strcmp(mode, "forks") == 0)
        return run_forks();
    if (strcmp(mode, "rawfork") == 0)
        return run_rawfork();
    if (strcmp(mode, "urgent") == 0)
        return run_urgent();
    if (strcmp(mode, "waiting") == 0)
        return run_waiting();
    if (strcmp(mode, "jumps") == 0)
        return run_jumps();
    if (strcmp(mode, "unload") == 0 && argc > 4)
        return run_unload(argv + 3);
    if (strcmp(mode, "flood") == 0)
        return run_flood();
    helped_sleep();
    printf("{}\n");
    return 0;
}
