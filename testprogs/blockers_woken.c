/* The calls of `blockers` that wait for a peer, or for a signal. */
#include "blockers.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static pid_t children[2];

void woken_fork_children(void)
{
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] < 0)
            fail("fork");
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
    }
}

/* A file without a name. */
static int temporary_file(char *ret_path)
{
    strcpy(ret_path, "/tmp/blockers-XXXXXX");
    int fd = mkostemp(ret_path, O_CLOEXEC);
    if (fd < 0)
        fail("mkostemp");
    return fd;
}

/* ---- descriptors ---- */

static bool prepare_pipe(struct blocker *blocker)
{
    return pipe2(blocker->pair, O_CLOEXEC) == 0;
}

static long call_read_pipe(struct blocker *blocker)
{
    char byte;
    return as_result(read(blocker->pair[0], &byte, 1));
}

static void wake_read_pipe(struct blocker *blocker)
{
    if (write(blocker->pair[1], "x", 1) != 1)
        fail("write");
}

static bool prepare_full_pipe(struct blocker *blocker)
{
    static const char page[4096];
    if (pipe2(blocker->pair, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    while (write(blocker->pair[1], page, sizeof page) > 0)
        ;
    return fcntl(blocker->pair[1], F_SETFL, 0) == 0;
}

static long call_write_pipe(struct blocker *blocker)
{
    static const char page[4096];
    return as_result(write(blocker->pair[1], page, sizeof page));
}

static void wake_write_pipe(struct blocker *blocker)
{
    char page[4096];
    if (read(blocker->pair[0], page, sizeof page) != sizeof page)
        fail("read");
}

static bool prepare_eventfd(struct blocker *blocker)
{
    blocker->fd = eventfd(0, EFD_CLOEXEC);
    return blocker->fd >= 0;
}

static long call_eventfd_read(struct blocker *blocker)
{
    eventfd_t count;
    return as_result(eventfd_read(blocker->fd, &count));
}

static void wake_eventfd_read(struct blocker *blocker)
{
    eventfd_write(blocker->fd, 1);
}

static bool prepare_epoll(struct blocker *blocker)
{
    struct epoll_event event = {.events = EPOLLIN};
    blocker->fd = eventfd(0, EFD_CLOEXEC);
    blocker->peer = epoll_create1(EPOLL_CLOEXEC);
    return epoll_ctl(blocker->peer, EPOLL_CTL_ADD, blocker->fd, &event) == 0;
}

static long call_epoll_woken(struct blocker *blocker)
{
    struct epoll_event event;
    eventfd_t count;
    long result = as_result(epoll_wait(blocker->peer, &event, 1, -1));
    if (result == 1)
        eventfd_read(blocker->fd, &count);
    return result;
}

static void wake_epoll_woken(struct blocker *blocker)
{
    eventfd_write(blocker->fd, 1);
}

static bool prepare_inotify(struct blocker *blocker)
{
    char path[64];
    blocker->peer = temporary_file(path);
    blocker->fd = inotify_init1(IN_CLOEXEC);
    bool is_good = blocker->fd >= 0 && inotify_add_watch(blocker->fd, path, IN_MODIFY) >= 0;
    unlink(path);
    return is_good;
}

static long call_inotify_read(struct blocker *blocker)
{
    struct inotify_event events[8];
    ssize_t size;
    do /* that its name is gone is told too */
        size = read(blocker->fd, events, sizeof events[0]);
    while (size > 0 && !(events[0].mask & IN_MODIFY));
    return as_result(size);
}

static void wake_inotify_read(struct blocker *blocker)
{
    if (pwrite(blocker->peer, "x", 1, 0) != 1)
        fail("pwrite");
}

/* ---- sockets ---- */

static bool prepare_datagrams(struct blocker *blocker)
{
    return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, blocker->pair) == 0;
}

static long call_recv_woken(struct blocker *blocker)
{
    char byte;
    return as_result(recv(blocker->pair[0], &byte, 1, 0));
}

static void wake_recv_woken(struct blocker *blocker)
{
    send(blocker->pair[1], "x", 1, 0);
}

static long call_recvmmsg_woken(struct blocker *blocker)
{
    char byte;
    struct iovec iovec = {&byte, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &iovec, .msg_iovlen = 1}};
    struct timespec limit = {FOR_EVER_S, 0};
    return as_result(recvmmsg(blocker->pair[0], &message, 1, 0, &limit));
}

static void wake_recvmmsg_woken(struct blocker *blocker)
{
    send(blocker->pair[1], "x", 1, 0);
}

static bool prepare_listener(struct blocker *blocker)
{
    static struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    blocker->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    blocker->memory = &address;
    bool is_good = bind(blocker->fd, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0 &&
                   listen(blocker->fd, 4) == 0 && getsockname(blocker->fd, (struct sockaddr *)&address, &size) == 0;
    blocker->turn = size;
    return is_good;
}

static long call_accept_woken(struct blocker *blocker)
{
    long fd = as_result(accept(blocker->fd, NULL, NULL));
    if (fd < 0)
        return fd;
    close((int)fd);
    return 0;
}

static void wake_accept_woken(struct blocker *blocker)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, blocker->memory, blocker->turn) != 0)
        fail("connect");
    close(fd);
}

/* ---- System V, futexes, locks ---- */

static bool prepare_messages(struct blocker *blocker)
{
    blocker->fd = msgget(IPC_PRIVATE, 0600);
    return blocker->fd >= 0;
}

static long call_msgrcv(struct blocker *blocker)
{
    struct {
        long type;
        char byte;
    } message;
    return as_result(msgrcv(blocker->fd, &message, 1, 0, 0));
}

static void wake_msgrcv(struct blocker *blocker)
{
    struct {
        long type;
        char byte;
    } message = {1, 'x'};
    msgsnd(blocker->fd, &message, 1, 0);
}

static bool prepare_semaphores(struct blocker *blocker)
{
    blocker->fd = semget(IPC_PRIVATE, 1, 0600);
    return blocker->fd >= 0;
}

static long call_semop(struct blocker *blocker)
{
    struct sembuf down = {0, -1, 0};
    return as_result(semop(blocker->fd, &down, 1));
}

static void wake_semop(struct blocker *blocker)
{
    struct sembuf up = {0, 1, 0};
    semop(blocker->fd, &up, 1);
}

static long call_futex_woken(struct blocker *blocker)
{
    long result = as_result(syscall(SYS_futex, &blocker->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    if (result == -EAGAIN)
        result = 0; /* woken just before */
    if (result == 0)
        atomic_store(&blocker->word, 0);
    return result;
}

static void wake_futex_woken(struct blocker *blocker)
{
    atomic_store(&blocker->word, 1);
    syscall(SYS_futex, &blocker->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static pthread_mutex_t condition_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static long call_cond_wait(struct blocker *blocker)
{
    int error = 0;
    pthread_mutex_lock(&condition_mutex);
    while (!atomic_load(&blocker->word) && !error)
        error = pthread_cond_wait(&condition, &condition_mutex);
    atomic_store(&blocker->word, 0);
    pthread_mutex_unlock(&condition_mutex);
    return -error;
}

static void wake_cond_wait(struct blocker *blocker)
{
    pthread_mutex_lock(&condition_mutex);
    atomic_store(&blocker->word, 1);
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&condition_mutex);
}

static bool prepare_semaphore(struct blocker *blocker)
{
    static sem_t semaphore;
    blocker->memory = &semaphore;
    return sem_init(&semaphore, 0, 0) == 0;
}

static long call_sem_wait(struct blocker *blocker)
{
    return as_result(sem_wait(blocker->memory));
}

static void wake_sem_wait(struct blocker *blocker)
{
    sem_post(blocker->memory);
}

/*
 * Two files, of which the waker holds the one that the next call asks for: before it lets go of that, it takes the
 * other, which the thread has left.
 */
static bool prepare_flock(struct blocker *blocker)
{
    int *mine = calloc(2, sizeof *mine);
    char path[64];
    for (int i = 0; i < 2; i++) {
        blocker->pair[i] = temporary_file(path);
        mine[i] = open(path, O_RDWR | O_CLOEXEC);
        unlink(path);
    }
    blocker->memory = mine;
    return flock(blocker->pair[0], LOCK_EX) == 0;
}

static long call_flock(struct blocker *blocker)
{
    int fd = ((int *)blocker->memory)[blocker->calls % 2];
    long result = as_result(flock(fd, LOCK_EX));
    flock(fd, LOCK_UN);
    return result;
}

static void wake_flock(struct blocker *blocker)
{
    flock(blocker->pair[blocker->turn ^ 1], LOCK_EX);
    flock(blocker->pair[blocker->turn], LOCK_UN);
    blocker->turn ^= 1;
}

static long record_lock(int fd, int command, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    return as_result(fcntl(fd, command, &lock));
}

static bool prepare_record_lock(struct blocker *blocker)
{
    return prepare_flock(blocker) && record_lock(blocker->pair[0], F_OFD_SETLK, F_WRLCK) == 0;
}

static long call_ofd_setlkw(struct blocker *blocker)
{
    int fd = ((int *)blocker->memory)[blocker->calls % 2];
    long result = record_lock(fd, F_OFD_SETLKW, F_WRLCK);
    record_lock(fd, F_OFD_SETLK, F_UNLCK);
    return result;
}

static void wake_ofd_setlkw(struct blocker *blocker)
{
    record_lock(blocker->pair[blocker->turn ^ 1], F_OFD_SETLKW, F_WRLCK);
    record_lock(blocker->pair[blocker->turn], F_OFD_SETLK, F_UNLCK);
    blocker->turn ^= 1;
}

/* ---- processes and signals ---- */

static bool prepare_wait4(struct blocker *blocker)
{
    blocker->child = children[0];
    return true;
}

static bool prepare_waitid(struct blocker *blocker)
{
    blocker->child = children[1];
    return true;
}

static long call_wait4(struct blocker *blocker)
{
    int status;
    return as_result(waitpid(blocker->child, &status, WUNTRACED | WCONTINUED)) == blocker->child ? 0 : -errno;
}

static long call_waitid(struct blocker *blocker)
{
    siginfo_t info;
    return as_result(waitid(P_PID, (id_t)blocker->child, &info, WSTOPPED | WCONTINUED));
}

static void wake_child(struct blocker *blocker)
{
    kill(blocker->child, blocker->turn ? SIGCONT : SIGSTOP);
    blocker->turn ^= 1;
}

static long call_sigwaitinfo(struct blocker *blocker)
{
    sigset_t set;
    (void)blocker;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return as_result(sigwaitinfo(&set, NULL));
}

static void wake_sigwaitinfo(struct blocker *blocker)
{
    syscall(SYS_tgkill, getpid(), blocker->tid, SIGUSR2);
}

static void wake_by_signal(struct blocker *blocker)
{
    syscall(SYS_tgkill, getpid(), blocker->tid, SIGUSR1);
}

static long call_pause(struct blocker *blocker)
{
    (void)blocker;
    return as_result(pause());
}

static long call_sigsuspend(struct blocker *blocker)
{
    sigset_t set;
    (void)blocker;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    sigdelset(&set, SIGUSR1);
    return as_result(sigsuspend(&set));
}

static long call_long_sleep(struct blocker *blocker)
{
    struct timespec hour = {FOR_EVER_S, 0};
    (void)blocker;
    return as_result(nanosleep(&hour, NULL));
}

static bool prepare_long_recv(struct blocker *blocker)
{
    blocker->pair[0] = quiet_socket(SO_RCVTIMEO, FOR_EVER_S * 1000);
    return true;
}

#define WOKEN(call_name, preparation, waking, result)                                                                  \
    {                                                                                                                  \
        .name = #call_name, .prepare = (preparation), .call = call_##call_name, .wake = (waking),                      \
        .expected = (result), .syscall_number = -1                                                                     \
    }

struct blocker woken_blockers[] = {
    WOKEN(read_pipe, prepare_pipe, wake_read_pipe, 1),
    WOKEN(write_pipe, prepare_full_pipe, wake_write_pipe, 4096),
    WOKEN(eventfd_read, prepare_eventfd, wake_eventfd_read, 0),
    WOKEN(epoll_woken, prepare_epoll, wake_epoll_woken, 1),
    WOKEN(inotify_read, prepare_inotify, wake_inotify_read, sizeof(struct inotify_event)),
    WOKEN(recv_woken, prepare_datagrams, wake_recv_woken, 1),
    WOKEN(recvmmsg_woken, prepare_datagrams, wake_recvmmsg_woken, 1),
    WOKEN(accept_woken, prepare_listener, wake_accept_woken, 0),
    WOKEN(msgrcv, prepare_messages, wake_msgrcv, 1),
    WOKEN(semop, prepare_semaphores, wake_semop, 0),
    WOKEN(futex_woken, NULL, wake_futex_woken, 0),
    WOKEN(cond_wait, NULL, wake_cond_wait, 0),
    WOKEN(sem_wait, prepare_semaphore, wake_sem_wait, 0),
    WOKEN(flock, prepare_flock, wake_flock, 0),
    WOKEN(ofd_setlkw, prepare_record_lock, wake_ofd_setlkw, 0),
    WOKEN(wait4, prepare_wait4, wake_child, 0),
    WOKEN(waitid, prepare_waitid, wake_child, 0),
    WOKEN(sigwaitinfo, NULL, wake_sigwaitinfo, SIGUSR2),
};

#define SIGNALLED(label, call_name, preparation, number, result, is_restarted)                                         \
    {                                                                                                                  \
        .name = label, .prepare = (preparation), .call = call_##call_name, .wake = wake_by_signal,                     \
        .expected = (result), .syscall_number = (number), .restarts = (is_restarted)                                   \
    }

struct blocker signalled_blockers[] = {
    SIGNALLED("sig_epoll_wait", epoll_woken, prepare_epoll, SYS_epoll_wait, -EINTR, false),
    SIGNALLED("sig_semop", semop, prepare_semaphores, SYS_semtimedop, -EINTR, false),
    SIGNALLED("sig_pause", pause, NULL, SYS_pause, -EINTR, false),
    SIGNALLED("sig_sigsuspend", sigsuspend, NULL, SYS_rt_sigsuspend, -EINTR, false),
    SIGNALLED("sig_nanosleep", long_sleep, NULL, SYS_clock_nanosleep, -EINTR, false),
    SIGNALLED("sig_recv_timeo", recv_woken, prepare_long_recv, SYS_recvfrom, -EINTR, false),
    SIGNALLED("sig_read_pipe", read_pipe, prepare_pipe, SYS_read, 1, true),
};

const size_t woken_count = sizeof woken_blockers / sizeof woken_blockers[0];
const size_t signalled_count = sizeof signalled_blockers / sizeof signalled_blockers[0];
