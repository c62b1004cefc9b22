/*
 * waiters [SECONDS]: ten threads, each asleep in the system call that it is named after, and main, which spins in
 * main;busy_spin.
 */
#include "testprog.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static int quiet_pipe[2];
static atomic_int started;
static int semaphores;

static void wait_nanosleep(void)
{
    struct timespec hour = {3600, 0};
    syscall(SYS_nanosleep, &hour, NULL);
}

static void wait_epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, quiet_pipe[0], &event);
    epoll_wait(epoll, &event, 1, -1);
}

static void wait_futex(void)
{
    static int word;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void wait_read(void)
{
    char byte;
    if (read(quiet_pipe[0], &byte, 1) < 0)
        return;
}

static void wait_poll(void)
{
    struct pollfd pollfd = {.fd = quiet_pipe[0], .events = POLLIN};
    poll(&pollfd, 1, -1);
}

static void wait_semop(void)
{
    struct sembuf down = {.sem_op = -1};
    semop(semaphores, &down, 1);
}

static void wait_accept(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 || listen(listener, 1) != 0)
        fail("listen");
    accept(listener, NULL, NULL);
}

static void wait_sigwait(void)
{
    int number;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigwait(&set, &number);
}

static void wait_flock(void)
{
    FILE *file = tmpfile();
    char path[64];
    if (!file)
        fail("tmpfile");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again < 0 || flock(fileno(file), LOCK_EX) != 0)
        fail("flock");
    flock(again, LOCK_EX);
    close(again);
    fclose(file);
}

static void wait_pause(void)
{
    pause();
}

static struct waiter {
    const char *name;
    void (*wait)(void);
} waiters[] = {
    {"nanosleep", wait_nanosleep}, {"epoll_wait", wait_epoll}, {"futex", wait_futex},   {"read", wait_read},
    {"poll", wait_poll},           {"semop", wait_semop},      {"accept", wait_accept}, {"sigwait", wait_sigwait},
    {"flock", wait_flock},         {"pause", wait_pause},
};

enum { WAITERS = sizeof waiters / sizeof waiters[0] };

EXACT void *waiter_main(void *argument)
{
    struct waiter *self = argument;
    pthread_setname_np(pthread_self(), self->name);
    atomic_fetch_add(&started, 1);
    for (;;)
        self->wait(); /* some calls are ended by a stop of the process */
    return NULL;
}

EXACT void busy_spin(void)
{
    SPIN();
}

/* System V semaphores outlive processes: a child removes them when we are gone, however we go. */
static void make_semaphores(void)
{
    int ends[2];
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    if (semaphores < 0 || pipe(ends) != 0)
        fail("semget");
    if (fork() != 0) {
        close(ends[0]);
        return;
    }
    char byte;
    close(ends[1]);
    for (int fd = 0; fd < 3; fd++)
        close(fd); /* nobody waits for it */
    while (read(ends[0], &byte, 1) > 0)
        ;
    semctl(semaphores, 0, IPC_RMID);
    _exit(0);
}

int main(int argc, char **argv)
{
    make_semaphores();
    if (pipe(quiet_pipe) != 0)
        fail("pipe");
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM); /* main's alone, so that nobody else is woken by it */
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    for (int i = 0; i < WAITERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, waiter_main, &waiters[i]) != 0)
            fail("pthread_create");
    }
    while (atomic_load(&started) < WAITERS)
        sleep_ns(1000000);
    sigdelset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    stop_after(number_argument(argc, argv, 1, 60));
    ready("waiters=%d", WAITERS);
    busy_spin();
    _exit(0);
}
