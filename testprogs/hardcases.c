/*
 * hardcases FILE LOAD[,LOAD]... [SECONDS]: a thread for each load named, in that order; a load may be named more than
 * once. malloc: malloc and free; dlopen: dlopen and dlclose of dso_library; throw: C++ exceptions; exec: fork and exec
 * of /bin/true; fork: fork alone; iterate: dl_iterate_phdr with a slow callback; backtrace: backtrace(); sinner: malloc
 * and free, with a handler that does so, too, as none may.
 *
 * FILE holds 64 bytes for each thread: how many operations it made, the longest time in ns in which it made none (as
 * the watchdog thread sees it, which looks every few ms), and how many had a wrong result, as 64-bit numbers.
 * Ends after SECONDS, or by SIGTERM, with {"loads": [{"name", "operations", "wrong", "stall_ms"}...], "objects" (that
 * iterate visits each time), "watchdog_ms", "seconds", "cpu_ns"}; watchdog_ms is the longest time between two looks,
 * which a machine without a free CPU makes. A thread that does not end within some seconds is "stuck", and the status
 * is 3; if main itself does not come to that, SIGALRM kills the program.
 */
#include "hardcases.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_THREADS = 32, LOOK_NS = 5000000, END_LIMIT_MS = 5000, ALARM_S = 10, STUCK_STATUS = 3 };

/* Its place in FILE. */
struct slot {
    _Alignas(64) atomic_ulong operations;
    atomic_ulong stall_ns;
    atomic_ulong wrong;
};

static struct worker {
    const struct load *load;
    struct slot *slot;
    pthread_t thread;
    atomic_bool has_ended;
    unsigned long seen;  /* operations at the watchdog's last look */
    uint64_t changed_ns; /* when it last saw them move on */
} workers[MAX_THREADS];

static size_t worker_count;
static uint64_t longest_look_ns;

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    pthread_setname_np(pthread_self(), self->load->name);
    for (unsigned long turn = 0; !stop; turn++) {
        if (!self->load->operation(turn))
            atomic_fetch_add_explicit(&self->slot->wrong, 1, memory_order_relaxed);
        atomic_store_explicit(&self->slot->operations, turn + 1, memory_order_relaxed);
    }
    self->has_ended = true;
    return NULL;
}

static void look_at(struct worker *worker, uint64_t now_ns)
{
    unsigned long operations = atomic_load(&worker->slot->operations);
    if (operations != worker->seen) {
        worker->seen = operations;
        worker->changed_ns = now_ns;
    } else if (now_ns - worker->changed_ns > atomic_load(&worker->slot->stall_ns)) {
        atomic_store(&worker->slot->stall_ns, now_ns - worker->changed_ns);
    }
}

static void *watchdog_main(void *argument)
{
    pthread_setname_np(pthread_self(), "watchdog");
    for (uint64_t last_ns = clock_ns(CLOCK_MONOTONIC); !stop;) {
        sleep_ns(LOOK_NS);
        uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        for (size_t i = 0; i < worker_count; i++)
            look_at(&workers[i], now_ns);
        if (now_ns - last_ns > longest_look_ns)
            longest_look_ns = now_ns - last_ns;
        last_ns = now_ns;
    }
    return argument;
}

static const struct load *find_load(const char *name)
{
    for (size_t i = 0; i < load_count; i++)
        if (strcmp(loads[i].name, name) == 0)
            return &loads[i];
    fprintf(stderr, "no load \"%s\"\n", name);
    exit(99);
}

static void read_names(char *names)
{
    char *rest = names;
    for (char *name; worker_count < MAX_THREADS && (name = strsep(&rest, ",")) != NULL;)
        workers[worker_count++].load = find_load(name);
}

static struct slot *map_slots(const char *path)
{
    size_t bytes = worker_count * sizeof(struct slot);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        fail(path);
    void *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED)
        fail("mmap");
    close(fd);
    return slots;
}

static void start_threads(struct slot *slots, pthread_t *ret_watchdog)
{
    for (size_t i = 0; i < worker_count; i++) {
        workers[i].slot = &slots[i];
        workers[i].changed_ns = clock_ns(CLOCK_MONOTONIC);
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            fail("pthread_create");
    }
    if (pthread_create(ret_watchdog, NULL, watchdog_main, NULL) != 0)
        fail("pthread_create");
}

/* How many do not end in time. */
static size_t wait_for_ends(void)
{
    size_t stuck = 0;
    for (int ms = 0; ms < END_LIMIT_MS; ms++) {
        stuck = 0;
        for (size_t i = 0; i < worker_count; i++)
            stuck += !workers[i].has_ended;
        if (stuck == 0)
            break;
        sleep_ns(1000000);
    }
    return stuck;
}

/* write(2), by a buffer of the stack: a stuck thread may hold locks of stdio or malloc. */
static void print_results(uint64_t began_ns)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"loads\": [");
    for (size_t i = 0; i < worker_count; i++) {
        const struct slot *slot = workers[i].slot;
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s{\"name\": \"%s\", \"operations\": %lu, \"wrong\": %lu, \"stall_ms\": %.1f%s}",
                                 i ? ", " : "", workers[i].load->name, slot->operations, slot->wrong,
                                 (double)slot->stall_ns / 1e6, workers[i].has_ended ? "" : ", \"stuck\": true");
    }
    used += (size_t)snprintf(text + used, sizeof text - used,
                             "], \"objects\": %d, \"watchdog_ms\": %.1f, \"seconds\": %.3f, \"cpu_ns\": %llu}\n",
                             loads_objects, (double)longest_look_ns / 1e6,
                             (double)(clock_ns(CLOCK_MONOTONIC) - began_ns) / 1e9,
                             (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    if (write(STDOUT_FILENO, text, used) != (ssize_t)used)
        _exit(99);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    double seconds = number_argument(argc, argv, 3, 60);
    alarm((unsigned)seconds + ALARM_S);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    loads_prepare();
    read_names(argv[2]);
    struct slot *slots = map_slots(argv[1]);
    uint64_t began_ns = clock_ns(CLOCK_MONOTONIC);
    pthread_t watchdog;
    start_threads(slots, &watchdog);
    ready("threads=%zu", worker_count);
    /* Signals for a sampler in this process may end the wait. */
    for (uint64_t end_ns = began_ns + (uint64_t)(seconds * 1e9), now_ns = began_ns; now_ns < end_ns;
         now_ns = clock_ns(CLOCK_MONOTONIC)) {
        struct timespec left = {(time_t)((end_ns - now_ns) / 1000000000u), (long)((end_ns - now_ns) % 1000000000u)};
        if (sigtimedwait(&ends, NULL, &left) == SIGTERM)
            break;
    }
    alarm(ALARM_S);
    stop = 1;
    pthread_join(watchdog, NULL);
    size_t stuck = wait_for_ends();
    print_results(began_ns);
    _exit(stuck ? STUCK_STATUS : 0);
}
