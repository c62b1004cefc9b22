/* The calls of `blockers` that return by their timeout. */
#include "blockers.h"

#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static const struct timespec timeout = {0, TIMEOUT_MS * 1000000L};

static struct timespec deadline(clockid_t clock)
{
    uint64_t ns = clock_ns(clock) + TIMEOUT_NS;
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

int quiet_socket(int option, int timeout_ms)
{
    int pair[2];
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000L};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        setsockopt(pair[0], SOL_SOCKET, option, &limit, sizeof limit) != 0)
        fail("socketpair");
    return pair[0]; /* the other end stays open */
}

static bool prepare_eventfd(struct blocker *blocker)
{
    blocker->fd = eventfd(0, EFD_CLOEXEC);
    return blocker->fd >= 0;
}

static bool prepare_epoll(struct blocker *blocker)
{
    struct epoll_event event = {.events = EPOLLIN};
    blocker->fd = epoll_create1(EPOLL_CLOEXEC);
    return epoll_ctl(blocker->fd, EPOLL_CTL_ADD, eventfd(0, EFD_CLOEXEC), &event) == 0;
}

static bool prepare_receiver(struct blocker *blocker)
{
    blocker->fd = quiet_socket(SO_RCVTIMEO, TIMEOUT_MS);
    return true;
}

/* A socket whose peer takes no more. */
static bool prepare_sender(struct blocker *blocker)
{
    static const char bytes[4096];
    blocker->fd = quiet_socket(SO_SNDTIMEO, TIMEOUT_MS);
    while (send(blocker->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    while (send(blocker->fd, bytes, 1, MSG_DONTWAIT) > 0)
        ;
    return true;
}

static int listener(struct sockaddr_un *ret_address, socklen_t *ret_size)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *ret_size = sizeof *ret_address;
    if (bind(fd, (struct sockaddr *)ret_address, sizeof(sa_family_t)) != 0 || listen(fd, 0) != 0 ||
        getsockname(fd, (struct sockaddr *)ret_address, ret_size) != 0)
        fail("listen");
    return fd;
}

static bool prepare_listener(struct blocker *blocker)
{
    struct sockaddr_un address;
    socklen_t size;
    struct timeval limit = {0, TIMEOUT_MS * 1000L};
    blocker->fd = listener(&address, &size);
    return setsockopt(blocker->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0;
}

/* A socket whose peer listens, and takes no more connections. */
static bool prepare_connecter(struct blocker *blocker)
{
    static struct sockaddr_un address;
    socklen_t size;
    struct timeval limit = {0, TIMEOUT_MS * 1000L};
    blocker->peer = listener(&address, &size);
    blocker->memory = &address;
    blocker->turn = size;
    while (connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), (struct sockaddr *)&address, size) ==
           0)
        ;
    blocker->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return setsockopt(blocker->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0;
}

static bool prepare_semaphores(struct blocker *blocker)
{
    blocker->fd = semget(IPC_PRIVATE, 1, 0600);
    return blocker->fd >= 0;
}

static bool prepare_aio(struct blocker *blocker)
{
    return syscall(SYS_io_setup, 4, &blocker->context) == 0;
}

static bool prepare_queue(struct blocker *blocker)
{
    char name[64];
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 16};
    snprintf(name, sizeof name, "/blockers-%d", (int)getpid());
    blocker->fd = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attributes);
    mq_unlink(name);
    return blocker->fd >= 0;
}

static bool prepare_timerfd(struct blocker *blocker)
{
    blocker->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return blocker->fd >= 0;
}

static bool prepare_semaphore(struct blocker *blocker)
{
    static sem_t semaphore;
    blocker->memory = &semaphore;
    return sem_init(&semaphore, 0, 0) == 0;
}

/* io_uring without its library: the rings as the kernel lays them out. */
static struct ring {
    struct io_uring_params params;
    uint8_t *queues;
    struct io_uring_sqe *entries;
} ring;

static bool prepare_ring(struct blocker *blocker)
{
    blocker->fd = (int)syscall(SYS_io_uring_setup, 4, &ring.params);
    if (blocker->fd < 0 || !(ring.params.features & IORING_FEAT_SINGLE_MMAP))
        return false;
    size_t bytes = ring.params.cq_off.cqes + ring.params.cq_entries * sizeof(struct io_uring_cqe);
    size_t least = ring.params.sq_off.array + ring.params.sq_entries * sizeof(uint32_t);
    int prot = PROT_READ | PROT_WRITE;
    ring.queues = mmap(NULL, bytes > least ? bytes : least, prot, MAP_SHARED, blocker->fd, (off_t)IORING_OFF_SQ_RING);
    ring.entries = mmap(NULL, ring.params.sq_entries * sizeof *ring.entries, prot, MAP_SHARED, blocker->fd,
                        (off_t)IORING_OFF_SQES);
    return (void *)ring.queues != MAP_FAILED && (void *)ring.entries != MAP_FAILED;
}

static uint32_t *ring_word(uint32_t off)
{
    return (uint32_t *)(void *)(ring.queues + off);
}

/* Handed in by one call and waited for by another: a call that has handed something in does not say EINTR. */
static long call_io_uring_enter(struct blocker *blocker)
{
    static struct __kernel_timespec limit = {.tv_nsec = TIMEOUT_MS * 1000000L};
    uint32_t tail = *ring_word(ring.params.sq_off.tail), at = tail & *ring_word(ring.params.sq_off.ring_mask);
    ring.entries[at] =
        (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uintptr_t)&limit, .len = 1};
    ring_word(ring.params.sq_off.array)[at] = at;
    __atomic_store_n(ring_word(ring.params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, blocker->fd, 1, 0, 0, NULL, 0) != 1)
        fail("io_uring_enter");
    long result = as_result(syscall(SYS_io_uring_enter, blocker->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
    /* An early end is one call that failed, and not followed by others that find the old timeout. */
    uint32_t head = *ring_word(ring.params.cq_off.head);
    while (head == __atomic_load_n(ring_word(ring.params.cq_off.tail), __ATOMIC_ACQUIRE))
        sleep_ns(1000000);
    __atomic_store_n(ring_word(ring.params.cq_off.head), head + 1, __ATOMIC_RELEASE);
    return result;
}

static long call_epoll_wait(struct blocker *blocker)
{
    struct epoll_event event;
    return as_result(epoll_wait(blocker->fd, &event, 1, TIMEOUT_MS));
}

static long call_epoll_pwait(struct blocker *blocker)
{
    struct epoll_event event;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    return as_result(epoll_pwait(blocker->fd, &event, 1, TIMEOUT_MS, &set));
}

static long call_epoll_pwait2(struct blocker *blocker)
{
    struct epoll_event event;
    return as_result(epoll_pwait2(blocker->fd, &event, 1, &timeout, NULL));
}

static long call_poll(struct blocker *blocker)
{
    struct pollfd pollfd = {.fd = blocker->fd, .events = POLLIN};
    return as_result(poll(&pollfd, 1, TIMEOUT_MS));
}

static long call_ppoll(struct blocker *blocker)
{
    struct pollfd pollfd = {.fd = blocker->fd, .events = POLLIN};
    return as_result(ppoll(&pollfd, 1, &timeout, NULL));
}

static long call_select(struct blocker *blocker)
{
    fd_set set;
    struct timeval limit = {0, TIMEOUT_MS * 1000L};
    FD_ZERO(&set);
    FD_SET(blocker->fd, &set);
    return as_result(select(blocker->fd + 1, &set, NULL, NULL, &limit));
}

static long call_pselect(struct blocker *blocker)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(blocker->fd, &set);
    return as_result(pselect(blocker->fd + 1, &set, NULL, NULL, &timeout, NULL));
}

static long call_nanosleep(struct blocker *blocker)
{
    (void)blocker;
    return as_result(nanosleep(&timeout, NULL));
}

static long call_clock_nanosleep(struct blocker *blocker)
{
    (void)blocker;
    return -clock_nanosleep(CLOCK_BOOTTIME, 0, &timeout, NULL);
}

static long call_clock_nanosleep_abs(struct blocker *blocker)
{
    struct timespec until = deadline(CLOCK_MONOTONIC);
    (void)blocker;
    return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static long call_futex(struct blocker *blocker)
{
    return as_result(syscall(SYS_futex, &blocker->word, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0));
}

static long call_cond_clockwait(struct blocker *blocker)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until = deadline(CLOCK_MONOTONIC);
    (void)blocker;
    pthread_mutex_lock(&mutex);
    long result = -pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&mutex);
    return result;
}

static long call_mutex_clocklock(struct blocker *blocker)
{
    static pthread_mutex_t mutex;
    struct timespec until = deadline(CLOCK_MONOTONIC);
    if (!blocker->memory) { /* held, so that every call waits */
        blocker->memory = &mutex;
        pthread_mutex_lock(&mutex);
    }
    return -pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
}

static long call_sem_clockwait(struct blocker *blocker)
{
    struct timespec until = deadline(CLOCK_MONOTONIC);
    return as_result(sem_clockwait(blocker->memory, CLOCK_MONOTONIC, &until));
}

static long call_semtimedop(struct blocker *blocker)
{
    struct sembuf down = {0, -1, 0};
    return as_result(semtimedop(blocker->fd, &down, 1, &timeout));
}

static long call_sigtimedwait(struct blocker *blocker)
{
    sigset_t set;
    (void)blocker;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return as_result(sigtimedwait(&set, NULL, &timeout));
}

static long call_recv(struct blocker *blocker)
{
    char byte;
    return as_result(recv(blocker->fd, &byte, 1, 0));
}

static long call_read_socket(struct blocker *blocker)
{
    char byte;
    return as_result(read(blocker->fd, &byte, 1));
}

static long call_recvmsg(struct blocker *blocker)
{
    char byte;
    struct iovec iovec = {&byte, 1};
    struct msghdr message = {.msg_iov = &iovec, .msg_iovlen = 1};
    return as_result(recvmsg(blocker->fd, &message, 0));
}

static long call_recvmmsg(struct blocker *blocker)
{
    char byte;
    struct iovec iovec = {&byte, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &iovec, .msg_iovlen = 1}};
    return as_result(recvmmsg(blocker->fd, &message, 1, 0, NULL));
}

static long call_send(struct blocker *blocker)
{
    return as_result(send(blocker->fd, "x", 1, MSG_NOSIGNAL));
}

static long call_write_socket(struct blocker *blocker)
{
    return as_result(write(blocker->fd, "x", 1));
}

static long call_accept(struct blocker *blocker)
{
    return as_result(accept(blocker->fd, NULL, NULL));
}

static long call_accept4(struct blocker *blocker)
{
    return as_result(accept4(blocker->fd, NULL, NULL, SOCK_CLOEXEC));
}

static long call_connect(struct blocker *blocker)
{
    return as_result(connect(blocker->fd, blocker->memory, blocker->turn));
}

static long call_io_getevents(struct blocker *blocker)
{
    struct io_event event;
    struct timespec limit = timeout;
    return as_result(syscall(SYS_io_getevents, blocker->context, 1, 1, &event, &limit));
}

static long call_mq_timedreceive(struct blocker *blocker)
{
    char message[16];
    struct timespec until = deadline(CLOCK_REALTIME);
    return as_result(mq_timedreceive(blocker->fd, message, sizeof message, NULL, &until));
}

static long call_timerfd(struct blocker *blocker)
{
    uint64_t count;
    struct itimerspec once = {.it_value = timeout};
    if (timerfd_settime(blocker->fd, 0, &once, NULL) != 0)
        fail("timerfd_settime");
    return as_result(read(blocker->fd, &count, sizeof count));
}

#define TIMED(call_name, preparation, result)                                                                          \
    {                                                                                                                  \
        .name = #call_name, .prepare = (preparation), .call = call_##call_name, .expected = (result),                  \
        .syscall_number = -1                                                                                           \
    }

struct blocker timed_blockers[] = {
    TIMED(epoll_wait, prepare_epoll, 0),
    TIMED(epoll_pwait, prepare_epoll, 0),
    TIMED(epoll_pwait2, prepare_epoll, 0),
    TIMED(poll, prepare_eventfd, 0),
    TIMED(ppoll, prepare_eventfd, 0),
    TIMED(select, prepare_eventfd, 0),
    TIMED(pselect, prepare_eventfd, 0),
    TIMED(nanosleep, NULL, 0),
    TIMED(clock_nanosleep, NULL, 0),
    TIMED(clock_nanosleep_abs, NULL, 0),
    TIMED(futex, NULL, -ETIMEDOUT),
    TIMED(cond_clockwait, NULL, -ETIMEDOUT),
    TIMED(mutex_clocklock, NULL, -ETIMEDOUT),
    TIMED(sem_clockwait, prepare_semaphore, -ETIMEDOUT),
    TIMED(semtimedop, prepare_semaphores, -EAGAIN),
    TIMED(sigtimedwait, NULL, -EAGAIN),
    TIMED(recv, prepare_receiver, -EAGAIN),
    TIMED(read_socket, prepare_receiver, -EAGAIN),
    TIMED(recvmsg, prepare_receiver, -EAGAIN),
    TIMED(recvmmsg, prepare_receiver, -EAGAIN),
    TIMED(send, prepare_sender, -EAGAIN),
    TIMED(write_socket, prepare_sender, -EAGAIN),
    TIMED(accept, prepare_listener, -EAGAIN),
    TIMED(accept4, prepare_listener, -EAGAIN),
    TIMED(connect, prepare_connecter, -EAGAIN),
    TIMED(io_getevents, prepare_aio, 0),
    TIMED(io_uring_enter, prepare_ring, 0),
    TIMED(mq_timedreceive, prepare_queue, -ETIMEDOUT),
    TIMED(timerfd, prepare_timerfd, sizeof(uint64_t)),
};

const size_t timed_count = sizeof timed_blockers / sizeof timed_blockers[0];
