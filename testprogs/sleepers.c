/*
 * sleepers [SECONDS]: ten threads, each blocked for ever in another system call, and main, which spins in
 * main;busy_spin. Prints {"returned": {NAME: N…}} at the end: how often each call came back, which without a signal
 * handler is never.
 */
#include "testprog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

static int quiet_pipe[2];
static atomic_int started;

static void block_nanosleep(void)
{
    struct timespec hour = {3600, 0};
    nanosleep(&hour, NULL);
}

static void block_clock(void)
{
    struct timespec far;
    clock_gettime(CLOCK_MONOTONIC, &far);
    far.tv_sec += 3600;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &far, NULL);
}

static void block_epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, quiet_pipe[0], &event);
    epoll_wait(epoll, &event, 1, -1);
    close(epoll);
}

static void block_poll(void)
{
    struct pollfd pollfd = {.fd = quiet_pipe[0], .events = POLLIN};
    poll(&pollfd, 1, -1);
}

static void block_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(quiet_pipe[0], &set);
    select(quiet_pipe[0] + 1, &set, NULL, NULL, NULL);
}

static void block_read(void)
{
    char byte;
    if (read(quiet_pipe[0], &byte, 1) < 0)
        return;
}

static void block_accept(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* an abstract name that the kernel chooses */
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 || listen(listener, 1) != 0)
        fail("listen");
    accept(listener, NULL, NULL);
    close(listener);
}

static void block_recv(void)
{
    char byte;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0)
        fail("socketpair");
    recv(pair[0], &byte, 1, 0);
    close(pair[0]);
    close(pair[1]);
}

static void block_condition(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void block_semaphore(void)
{
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    sem_wait(&semaphore);
}

static struct sleeper {
    const char *name;
    void (*block)(void);
    atomic_int returned;
} sleepers[] = {
    {"nanosleep", block_nanosleep, 0}, {"clock", block_clock, 0},   {"epoll", block_epoll, 0},
    {"poll", block_poll, 0},           {"select", block_select, 0}, {"read", block_read, 0},
    {"accept", block_accept, 0},       {"recv", block_recv, 0},     {"condition", block_condition, 0},
    {"semaphore", block_semaphore, 0},
};

enum { SLEEPERS = sizeof sleepers / sizeof sleepers[0] };

EXACT void *sleeper_main(void *argument)
{
    struct sleeper *self = argument;
    pthread_setname_np(pthread_self(), self->name);
    atomic_fetch_add(&started, 1);
    for (;;) {
        self->block();
        atomic_fetch_add(&self->returned, 1);
    }
    return NULL;
}

EXACT void busy_spin(void)
{
    SPIN();
}

int main(int argc, char **argv)
{
    if (pipe(quiet_pipe) != 0)
        fail("pipe");
    /* SIGALRM is for main alone, so that no sleeper is woken by it. */
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    for (int i = 0; i < SLEEPERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleeper_main, &sleepers[i]) != 0)
            fail("pthread_create");
    }
    while (atomic_load(&started) < SLEEPERS)
        sleep_ns(1000000);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    stop_after(number_argument(argc, argv, 1, 60));
    ready("sleepers=%d", SLEEPERS);
    busy_spin();
    printf("{\"returned\": {");
    for (int i = 0; i < SLEEPERS; i++)
        printf("%s\"%s\": %d", i == 0 ? "" : ", ", sleepers[i].name, atomic_load(&sleepers[i].returned));
    printf("}}\n");
    fflush(stdout);
    _exit(0);
}
