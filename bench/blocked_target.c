/*
 * blocked_target BLOCKED BUSY: so many threads that wait, each twelve frames deep in one of six kinds of call, and so
 * many that work. Prints "ready"; then for each line of standard input, a number of seconds, what happened in that
 * time: "turns_per_second stops worst_us returns". Stops are spells in which a working thread neither ran nor waited
 * for a CPU: nothing of its own does that, but a tracer's stop. Returns are waits that ended since the last line, as
 * nobody ends them.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 10, BUSY_MAX = 64, LEAST_STOP_NS = 10000, GAP_NS = 20000 };

struct worker {
    _Alignas(128) atomic_ulong turns;
    atomic_ulong stops;
    atomic_ulong worst_ns;
};

static struct worker workers[BUSY_MAX];
static atomic_int waiting;
static atomic_ulong returns;
static int quiet[2];

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void block(unsigned kind)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd pollfd = {.fd = quiet[0], .events = POLLIN};
    struct timespec hour = {3600, 0};
    sem_t semaphore;
    char byte;
    int epoll;
    switch (kind % 6) {
    case 0:
        epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, quiet[0], &event);
        epoll_wait(epoll, &event, 1, -1);
        close(epoll);
        break;
    case 1:
        pthread_mutex_lock(&mutex);
        pthread_cond_wait(&condition, &mutex);
        pthread_mutex_unlock(&mutex);
        break;
    case 2:
        nanosleep(&hour, NULL);
        break;
    case 3:
        (void)!read(quiet[0], &byte, 1);
        break;
    case 4:
        poll(&pollfd, 1, -1);
        break;
    default:
        sem_init(&semaphore, 0, 0);
        sem_wait(&semaphore);
    }
}

__attribute__((noinline)) static unsigned deeper(unsigned kind, unsigned frames)
{
    volatile unsigned own = frames;
    if (frames == 0) {
        atomic_fetch_add(&waiting, 1);
        for (;; atomic_fetch_add(&returns, 1))
            block(kind);
    } else {
        own += deeper(kind, frames - 1);
    }
    return own;
}

static void *blocked_main(void *argument)
{
    deeper((unsigned)(uintptr_t)argument, FRAMES);
    return NULL;
}

static uint64_t queued_ns(int fd)
{
    char text[96] = "";
    unsigned long long queued = 0;
    if (pread(fd, text, sizeof text - 1, 0) > 0)
        sscanf(text, "%*u %llu", &queued);
    return queued;
}

struct reading {
    uint64_t wall_ns;
    uint64_t run_ns;
    uint64_t queued_ns;
};

static struct reading read_clocks(int schedstat_fd)
{
    struct reading now;
    do { /* all of one moment: a preemption in between would be in one of them only */
        now.wall_ns = clock_ns(CLOCK_MONOTONIC);
        now.run_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        now.queued_ns = queued_ns(schedstat_fd);
    } while (clock_ns(CLOCK_MONOTONIC) - now.wall_ns > GAP_NS);
    return now;
}

/* When the clock has jumped: was that a stop? */
static void look(struct worker *worker, int schedstat_fd, struct reading *before)
{
    struct reading now = read_clocks(schedstat_fd);
    int64_t still_ns = (int64_t)(now.wall_ns - before->wall_ns) - (int64_t)(now.run_ns - before->run_ns) -
                       (int64_t)(now.queued_ns - before->queued_ns);
    *before = now;
    if (still_ns < LEAST_STOP_NS)
        return;
    atomic_fetch_add(&worker->stops, 1);
    if ((uint64_t)still_ns > atomic_load(&worker->worst_ns))
        atomic_store(&worker->worst_ns, (uint64_t)still_ns);
}

static void *busy_main(void *argument)
{
    struct worker *worker = argument;
    int schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    struct reading before = read_clocks(schedstat_fd);
    volatile unsigned long state = 1;
    for (uint64_t last_ns = before.wall_ns;;) {
        for (int i = 0; i < 1000; i++)
            state = state * 6364136223846793005u + 1442695040888963407u;
        atomic_store_explicit(&worker->turns, worker->turns + 1, memory_order_relaxed);
        uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        if (now_ns - last_ns > GAP_NS) {
            look(worker, schedstat_fd, &before);
            now_ns = clock_ns(CLOCK_MONOTONIC);
        }
        last_ns = now_ns;
    }
    return NULL;
}

static void start(void *(*function)(void *), void *argument)
{
    static pthread_attr_t attributes;
    static int is_set;
    pthread_t thread;
    if (!is_set++) {
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 64 << 10);
    }
    if (pthread_create(&thread, &attributes, function, argument) != 0) {
        perror("pthread_create");
        exit(1);
    }
}

static void measure(int busy, double seconds)
{
    unsigned long turns = 0, stops = 0, worst_ns = 0;
    for (int i = 0; i < busy; i++) {
        turns -= workers[i].turns;
        atomic_store(&workers[i].stops, 0);
        atomic_store(&workers[i].worst_ns, 0);
    }
    uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
    double passed = (double)(clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e9;
    for (int i = 0; i < busy; i++) {
        turns += workers[i].turns;
        stops += workers[i].stops;
        worst_ns = workers[i].worst_ns > worst_ns ? workers[i].worst_ns : worst_ns;
    }
    printf("%.1f %lu %lu %lu\n", (double)turns / passed, stops, worst_ns / 1000, atomic_exchange(&returns, 0));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int blocked = argc == 3 ? atoi(argv[1]) : 0, busy = argc == 3 ? atoi(argv[2]) : 0;
    if (blocked < 1 || busy < 0 || busy > BUSY_MAX) {
        fprintf(stderr, "blocked_target BLOCKED BUSY\n");
        return 2;
    }
    if (pipe(quiet) != 0)
        return 1;
    for (int i = 0; i < blocked; i++)
        start(blocked_main, (void *)(uintptr_t)i);
    while (atomic_load(&waiting) < blocked)
        usleep(1000);
    for (int i = 0; i < busy; i++)
        start(busy_main, &workers[i]);
    printf("ready\n");
    fflush(stdout);
    for (double seconds; scanf("%lf", &seconds) == 1;)
        measure(busy, seconds);
    _exit(0);
}
