/*
 * sleepframes whole|open [SECONDS]: threads that are blocked for ever, each below another kind of stack frame.
 *
 * Built with frame pointers, none of these stacks can be followed by the stack pointer and the pc alone, since the
 * system call's function saves no register. `whole`: frames whose size is the same at each run through the function.
 * `open`: frames of a size that is known at run time only. Prints {"returned": N} at the end: how often calls came
 * back.
 */
#include "testprog.h"

#include <alloca.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>

static int epoll;
static atomic_int started;
static atomic_int returned;
static volatile int zero;
static volatile int three = 3;
static void (*volatile pointer)(void);

/* What blocks; its wrapper in the C library is nothing but the system call. */
#define BLOCK()                                                                                                        \
    do {                                                                                                               \
        struct epoll_event event_;                                                                                     \
        epoll_wait(epoll, &event_, 1, -1);                                                                             \
        atomic_fetch_add(&returned, 1);                                                                                \
    } while (!stop)

EXACT static void block(void)
{
    BLOCK();
}

/* Arguments on the stack, of the blocked function and of the one that it is called by. */
EXACT static int take_many(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
    BLOCK();
    return a + b + c + d + e + f + g + h + i;
}

EXACT static void block_arguments(void)
{
    zero += take_many(zero, 1, 2, 3, 4, 5, 6, 7, zero + 8);
}

EXACT static void block_large(void)
{
    char room[5 * 4096];
    memset(room, zero, sizeof(room));
    BLOCK();
    zero += room[zero];
}

/* A table of jumps leads to the call. */
EXACT static int block_case(int which)
{
    char room[40];
    memset(room, which, sizeof(room));
    switch (which) {
    case 0:
        return room[1];
    case 1:
        sleep_ns(1);
        return room[2];
    case 2:
        getppid();
        break;
    case 3:
        BLOCK();
        break;
    case 4:
        getpid();
        return 4;
    case 5:
        getuid();
        break;
    case 6:
        getgid();
        return 17;
    default:
        return -1;
    }
    return room[zero];
}

EXACT static void block_switch(void)
{
    zero += block_case(three);
}

/* Returns before it has a frame, and from the middle. */
EXACT static int block_early(const int *number)
{
    char room[100];
    if (!number)
        return 0;
    memset(room, *number, sizeof(room));
    if (*number == 4)
        return room[*number];
    for (int i = 0; i < *number; i++) {
        BLOCK();
        if (room[i] == 9)
            return 9;
    }
    return room[7];
}

EXACT static void block_in_loop(void)
{
    int number = three;
    zero += block_early(&number);
}

EXACT static void block_pointer(void)
{
    pointer = block;
    pointer();
}

static int compare(const void *a, const void *b)
{
    BLOCK();
    return *(const char *)a - *(const char *)b;
}

/* The C library calls it. */
EXACT static void block_callback(void)
{
    char letters[] = "cab";
    qsort(letters, 3, 1, compare);
}

EXACT static int recurse(int depth)
{
    char room[24];
    memset(room, depth, sizeof(room));
    if (depth == 0)
        BLOCK();
    else
        recurse(depth - 1);
    return room[depth % 24];
}

EXACT static void block_recursion(void)
{
    zero += recurse(three + 10) * 0;
}

static void block_in_handler(int number)
{
    (void)number;
    BLOCK();
}

EXACT static void block_signal(void)
{
    struct sigaction action = {.sa_handler = block_in_handler};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

/* A last call, which may become a jump. */
EXACT static void block_last(void)
{
    if (three == 3)
        block();
    else
        block_pointer();
}

EXACT static void block_tail(void)
{
    block_last();
    zero = 0;
}

EXACT static void block_sized(void)
{
    char *room = alloca((size_t)three * 100);
    memset(room, zero, 300);
    BLOCK();
    zero += room[zero];
}

EXACT static void block_aligned(void)
{
    _Alignas(128) char room[256];
    memset(room, zero, sizeof(room));
    BLOCK();
    zero += room[zero];
}

struct blocker {
    const char *name;
    void (*block)(void);
};

static const struct blocker whole[] = {
    {"block", block},
    {"arguments", block_arguments},
    {"large", block_large},
    {"switch", block_switch},
    {"loop", block_in_loop},
    {"pointer", block_pointer},
    {"callback", block_callback},
    {"recursion", block_recursion},
    {"signal", block_signal},
    {"tail", block_tail},
    {NULL, NULL},
};

static const struct blocker open_frames[] = {{"sized", block_sized}, {"aligned", block_aligned}, {NULL, NULL}};

EXACT void *blocker_main(void *argument)
{
    const struct blocker *self = argument;
    pthread_setname_np(pthread_self(), self->name);
    atomic_fetch_add(&started, 1);
    self->block();
    return NULL;
}

int main(int argc, char **argv)
{
    const struct blocker *blockers = argc > 1 && strcmp(argv[1], "open") == 0 ? open_frames : whole;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        fail("epoll_create1");
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    int count = 0;
    for (; blockers[count].name; count++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, blocker_main, (void *)(uintptr_t)&blockers[count]) != 0)
            fail("pthread_create");
    }
    while (atomic_load(&started) < count)
        sleep_ns(1000000);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    stop_after(number_argument(argc, argv, 2, 60));
    ready("blockers=%d", count);
    while (!stop)
        pause();
    printf("{\"returned\": %d}\n", atomic_load(&returned));
    fflush(stdout);
    _exit(0);
}
