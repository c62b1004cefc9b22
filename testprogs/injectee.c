/*
 * injectee MODE [THREADS]: a program that a library is loaded into, and that notices what should not be.
 *
 *   spin       spins (injectee_asm.S) until SIGTERM
 *   longjmp    the same, thrown out of it by a signal handler 1000 times a second
 *   malloc, dl THREADS threads, and the main one, do nothing else until SIGTERM
 *   alone      the main thread ends at once, another one spins
 *   join       the main thread waits for one that spins
 *   read, poll, ppoll, select, epoll, futex, accept, sigwait, nanosleep
 *              waits in that call, without an end but for nanosleep (50 ms again and again), until its standard input
 *              (accept: a connection to `port`, sigwait: SIGUSR1, nanosleep: SIGTERM) ends the wait
 * At the end one line: {"good": 0|1, "turns": N, "what": "…"}. SIGUSR2 stays blocked.
 */
#include "testprog.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

extern volatile uint64_t injectee_stop, injectee_turns, injectee_has_avx, injectee_has_avx512;
unsigned injectee_spin(void);

static const char *what = "";
static char alternate[16384];
static sigjmp_buf back;
static volatile sig_atomic_t throws;

static void end_on_signal(int number)
{
    (void)number;
    injectee_stop = 1;
}

static void throw_on_signal(int number)
{
    (void)number;
    if (throws)
        siglongjmp(back, 1);
}

static int check(int good, const char *text)
{
    if (!good && !*what)
        what = text;
    return good;
}

/* What an injection could have changed besides. */
static int is_thread_as_it_was(void)
{
    stack_t stack;
    sigset_t mask, expected;
    sigemptyset(&expected);
    sigaddset(&expected, SIGUSR2);
    sigaltstack(NULL, &stack);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return check(stack.ss_sp == alternate && stack.ss_size == sizeof alternate && stack.ss_flags == 0, "altstack") &
           check(memcmp(&mask, &expected, sizeof(unsigned long)) == 0, "mask");
}

static int spin(void)
{
    errno = 77;
    unsigned bad = injectee_spin();
    return check(bad == 0, "registers") & check(errno == 77, "errno");
}

static int throwing(void)
{
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    struct sigaction action = {.sa_handler = throw_on_signal};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    int good = 1;
    sigsetjmp(back, 1);
    throws = 1;
    while (good && !injectee_stop) {
        for (volatile int i = 0; i < 1000; i++)
            ;
        injectee_turns++;
    }
    throws = 0;
    timer.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
    return good;
}

static void *allocate(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    unsigned char *blocks[64] = {0};
    size_t sizes[64] = {0};
    while (!injectee_stop) {
        unsigned at = (unsigned)rand_r(&seed) % 64;
        if (blocks[at] && (blocks[at][0] != (unsigned char)at || blocks[at][sizes[at] - 1] != (unsigned char)at))
            check(0, "heap");
        free(blocks[at]);
        sizes[at] = 1 + (unsigned)rand_r(&seed) % 3000;
        blocks[at] = malloc(sizes[at]);
        memset(blocks[at], (int)at, sizes[at]);
        injectee_turns++;
    }
    return NULL;
}

static void *load(void *argument)
{
    (void)argument;
    while (!injectee_stop) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        check(library && dlsym(library, "cos"), "dlopen");
        if (library)
            dlclose(library);
        injectee_turns++;
    }
    return NULL;
}

static void *spin_in_thread(void *argument)
{
    (void)argument;
    while (!injectee_stop)
        injectee_turns++;
    return NULL;
}

static void print_end(int good)
{
    printf("{\"good\": %d, \"turns\": %llu, \"what\": \"%s\"}\n", good, (unsigned long long)injectee_turns, what);
}

static void *spin_alone(void *argument)
{
    (void)argument;
    int good = spin();
    print_end(good);
    exit(!good);
}

static int in_threads(void *(*work)(void *), long threads)
{
    pthread_t ids[64];
    for (long i = 0; i < threads && i < 64; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(i + 2)) != 0)
            fail("pthread_create");
    if (work != spin_in_thread)
        work((void *)1);
    for (long i = 0; i < threads && i < 64; i++)
        pthread_join(ids[i], NULL);
    return !*what;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int woken;

static void *wake(void *argument)
{
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        check(0, "read of the waking thread");
    pthread_mutex_lock(&mutex);
    woken = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static int wait_futex(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wake, NULL) != 0)
        fail("pthread_create");
    pthread_mutex_lock(&mutex);
    while (!woken)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    return !*what;
}

static int listener;

static int wait_in(const char *mode)
{
    char byte;
    struct pollfd entry = {.fd = STDIN_FILENO, .events = POLLIN};
    fd_set set;
    sigset_t signals;
    FD_ZERO(&set);
    FD_SET(STDIN_FILENO, &set);
    sigemptyset(&signals);
    if (strcmp(mode, "read") == 0)
        return check(read(STDIN_FILENO, &byte, 1) == 1 && byte == 'x', mode);
    if (strcmp(mode, "poll") == 0)
        return check(poll(&entry, 1, -1) == 1, mode);
    if (strcmp(mode, "ppoll") == 0)
        return check(ppoll(&entry, 1, NULL, &signals) == 1, mode);
    if (strcmp(mode, "select") == 0)
        return check(select(1, &set, NULL, NULL, NULL) == 1, mode);
    if (strcmp(mode, "accept") == 0)
        return check(accept(listener, NULL, NULL) >= 0, mode);
    if (strcmp(mode, "futex") == 0)
        return wait_futex();
    if (strcmp(mode, "sigwait") == 0) {
        sigaddset(&signals, SIGUSR1);
        return check(sigwaitinfo(&signals, NULL) == SIGUSR1, mode);
    }
    if (strcmp(mode, "epoll") == 0) {
        struct epoll_event event = {.events = EPOLLIN};
        int fd = epoll_create1(0);
        epoll_ctl(fd, EPOLL_CTL_ADD, STDIN_FILENO, &event);
        return check(epoll_wait(fd, &event, 1, -1) == 1, mode);
    }
    int good = 1;
    while (!injectee_stop && good) { /* nanosleep */
        struct timespec pause = {0, 50000000};
        uint64_t before = clock_ns(CLOCK_MONOTONIC);
        int result = nanosleep(&pause, NULL);
        injectee_turns++;
        if (!injectee_stop)
            good = check(result == 0 && clock_ns(CLOCK_MONOTONIC) - before >= 50000000, mode);
    }
    return good;
}

static int listen_somewhere(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 5) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        fail("listen");
    return ntohs(address.sin_port);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "spin";
    long threads = (long)number_argument(argc, argv, 2, 0);
    struct sigaction action = {.sa_handler = end_on_signal};
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    if (strcmp(mode, "sigwait") == 0)
        sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    sigaltstack(&stack, NULL);
    sigaction(SIGTERM, &action, NULL);
    injectee_has_avx = __builtin_cpu_supports("avx2") != 0;
    injectee_has_avx512 = __builtin_cpu_supports("avx512f") != 0;
    ready("port=%d", listen_somewhere());
    int good;
    if (strcmp(mode, "spin") == 0)
        good = spin();
    else if (strcmp(mode, "longjmp") == 0)
        good = throwing();
    else if (strcmp(mode, "malloc") == 0)
        good = in_threads(allocate, threads);
    else if (strcmp(mode, "dl") == 0)
        good = in_threads(load, threads);
    else if (strcmp(mode, "alone") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin_alone, NULL) != 0)
            fail("pthread_create");
        pthread_exit(NULL);
    } else if (strcmp(mode, "join") == 0)
        good = in_threads(spin_in_thread, 1);
    else
        good = wait_in(mode);
    if (strcmp(mode, "sigwait") != 0)
        good &= is_thread_as_it_was();
    print_end(good);
    return good ? 0 : 1;
}
