/*
 * blockers [SECONDS]: a thread for each of many kinds of blocking call, which makes that call again and again, with a
 * little work before each so that it is now and then met on its way into it. Timed calls wait for TIMEOUT_MS; others
 * are woken by a peer, or by a signal whose handler is installed with SA_RESTART. Each call should return just once for
 * each time that it is woken, with what it is made for, and never with EINTR unless a signal came.
 *
 * Ends after SECONDS, or by SIGTERM, with one line of JSON: {"blockers": {NAME: {"kind": "timed", "woken" or
 * "signalled", "wakes", "calls", "handled", "eintr", "unexpected", "last_unexpected", "late_us", "early_us",
 * "unqueued_late_us", "unqueued_mean_us"}...}, "skipped": [NAME...]}; what they are stands at struct blocker.
 */
#include "blockers.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

enum { WAKE_ROUND_MS = 323, WORK_NS = 300000, END_LIMIT_MS = 5000 };

static _Thread_local struct blocker *self;
static atomic_int prepared;

static void count_signal(int signal_number)
{
    (void)signal_number;
    if (self)
        atomic_fetch_add(&self->handled, 1);
}

static bool is_signalled(const struct blocker *blocker)
{
    return blocker->syscall_number >= 0 && blocker->wake;
}

EXACT static void work(void)
{
    for (uint64_t end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + WORK_NS; clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns;)
        ;
}

/* How long the calling thread has waited for a CPU, by the kernel's scheduler. */
static uint64_t queued_ns(int schedstat_fd)
{
    char text[96] = "";
    unsigned long long queued = 0;
    if (pread(schedstat_fd, text, sizeof text - 1, 0) > 0)
        sscanf(text, "%*u %llu", &queued);
    return queued;
}

static void note(struct blocker *blocker, long result, uint64_t start_ns, uint64_t end_ns, uint64_t waited_ns)
{
    uint64_t due_ns = blocker->wake ? atomic_load(&blocker->woken_ns) : start_ns + TIMEOUT_NS;
    long late_ns = (long)(end_ns - due_ns);
    if (late_ns > blocker->late_ns)
        blocker->late_ns = late_ns;
    if (-late_ns > blocker->early_ns)
        blocker->early_ns = -late_ns;
    long unqueued_ns = late_ns > (long)waited_ns ? late_ns - (long)waited_ns : 0;
    blocker->unqueued_sum_ns += unqueued_ns;
    if (unqueued_ns > blocker->unqueued_late_ns)
        blocker->unqueued_late_ns = unqueued_ns;
    if (result != blocker->expected) {
        if (result == -EINTR)
            blocker->eintr++;
        else
            blocker->unexpected++;
        blocker->last_unexpected = result;
    }
    atomic_fetch_add(&blocker->calls, 1);
}

EXACT void *blocker_main(void *argument)
{
    struct blocker *blocker = self = argument;
    pthread_setname_np(pthread_self(), blocker->name);
    blocker->tid = (pid_t)syscall(SYS_gettid);
    blocker->skipped = blocker->prepare && !blocker->prepare(blocker);
    if (is_signalled(blocker)) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        if (blocker->syscall_number != SYS_rt_sigsuspend)
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    int schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    atomic_fetch_add(&prepared, 1);
    while (!blocker->skipped) {
        work();
        uint64_t queued_before_ns = queued_ns(schedstat_fd);
        uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        long result = blocker->call(blocker);
        uint64_t end_ns = clock_ns(CLOCK_MONOTONIC);
        note(blocker, result, start_ns, end_ns, queued_ns(schedstat_fd) - queued_before_ns);
    }
    return NULL;
}

/* A signal counts only as one that ends the call if it finds the thread in it. */
static bool is_in_call(const struct blocker *blocker)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)blocker->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (size <= 0 || text[0] < '0' || text[0] > '9') /* it runs */
        return false;
    int number = atoi(text);
    return number == blocker->syscall_number || number == SYS_restart_syscall;
}

static bool has_answered(struct blocker *blocker)
{
    unsigned long wakes = atomic_load(&blocker->wakes);
    if (is_signalled(blocker) && atomic_load(&blocker->handled) != wakes)
        return false;
    return blocker->restarts || atomic_load(&blocker->calls) >= wakes;
}

static void wake(struct blocker *blocker)
{
    if (blocker->skipped || !blocker->wake || !has_answered(blocker) || (is_signalled(blocker) && !is_in_call(blocker)))
        return;
    atomic_store(&blocker->woken_ns, clock_ns(CLOCK_MONOTONIC));
    atomic_fetch_add(&blocker->wakes, 1);
    blocker->wake(blocker);
}

static void *waker_main(void *argument)
{
    const uint64_t step_ns = WAKE_ROUND_MS * 1000000ull / (woken_count + signalled_count);
    uint64_t next_ns = clock_ns(CLOCK_MONOTONIC);
    pthread_setname_np(pthread_self(), "waker");
    for (size_t i = 0; !stop; i = (i + 1) % (woken_count + signalled_count)) {
        wake(i < woken_count ? &woken_blockers[i] : &signalled_blockers[i - woken_count]);
        next_ns += step_ns;
        struct timespec next = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return argument;
}

static void start(struct blocker *blockers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, blocker_main, &blockers[i]) != 0)
            fail("pthread_create");
        sleep_ns(5000000); /* so that they are not all in step */
    }
}

/* Those that were woken last may still be on their way. The limit is for all together. */
static void wait_for_answers(struct blocker *blockers, size_t count)
{
    static int ms;
    for (size_t i = 0; i < count; i++)
        for (; ms < END_LIMIT_MS && !blockers[i].skipped && !has_answered(&blockers[i]); ms++)
            sleep_ns(1000000);
}

static void print(const char *kind, struct blocker *blockers, size_t count)
{
    static bool comma;
    for (size_t i = 0; i < count; i++) {
        struct blocker *blocker = &blockers[i];
        if (blocker->skipped)
            continue;
        printf("%s\"%s\": {\"kind\": \"%s\", \"wakes\": %lu, \"calls\": %lu, \"handled\": %lu, \"eintr\": %lu, "
               "\"unexpected\": %lu, \"last_unexpected\": %ld, \"late_us\": %ld, \"early_us\": %ld, "
               "\"unqueued_late_us\": %ld, \"unqueued_mean_us\": %ld}",
               comma ? ", " : "", blocker->name, kind, blocker->wakes, blocker->calls, blocker->handled, blocker->eintr,
               blocker->unexpected, blocker->last_unexpected, blocker->late_ns / 1000, blocker->early_ns / 1000,
               blocker->unqueued_late_ns / 1000,
               blocker->calls ? blocker->unqueued_sum_ns / (long)blocker->calls / 1000 : 0);
        comma = true;
    }
}

static void print_skipped(struct blocker *blockers, size_t count)
{
    static bool comma;
    for (size_t i = 0; i < count; i++) {
        if (!blockers[i].skipped)
            continue;
        printf("%s\"%s\"", comma ? ", " : "", blockers[i].name);
        comma = true;
    }
}

/* SIGTERM is waited for; SIGUSR1 ends calls, where a thread lets it in; SIGUSR2 is received by calls. */
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction action = {.sa_flags = SA_RESTART};
    action.sa_handler = count_signal;
    sigaction(SIGUSR1, &action, NULL);
}

int main(int argc, char **argv)
{
    const int total = (int)(timed_count + woken_count + signalled_count);
    const double seconds = number_argument(argc, argv, 1, 60);
    pthread_t waker;
    unshare(CLONE_NEWIPC); /* if it may: then its queues and semaphores end with it however it ends */
    block_signals();
    woken_fork_children();
    start(timed_blockers, timed_count);
    start(woken_blockers, woken_count);
    start(signalled_blockers, signalled_count);
    while (atomic_load(&prepared) < total)
        sleep_ns(1000000);
    if (pthread_create(&waker, NULL, waker_main, NULL) != 0)
        fail("pthread_create");
    ready("blockers=%d", total);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    struct timespec limit = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    sigtimedwait(&ends, NULL, &limit);
    stop = 1;
    pthread_join(waker, NULL);
    wait_for_answers(woken_blockers, woken_count);
    wait_for_answers(signalled_blockers, signalled_count);
    printf("{\"blockers\": {");
    print("timed", timed_blockers, timed_count);
    print("woken", woken_blockers, woken_count);
    print("signalled", signalled_blockers, signalled_count);
    printf("}, \"skipped\": [");
    print_skipped(timed_blockers, timed_count);
    print_skipped(woken_blockers, woken_count);
    printf("]}\n");
    fflush(stdout);
    _exit(0);
}
