#include "sampler/stoplog.h"

#include "common/fileio.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    WRITE_PERIOD_MS = 50,
    LINE_BYTES = 80, /* four numbers of 20 digits at most */
    BUFFER_BYTES = 64 << 10
};

struct stoplog {
    /* A ring: `added` belongs to who adds, `written` to the thread that writes; they only grow. */
    struct stop stops[STOPLOG_WAITING_MAX];
    atomic_size_t added;
    atomic_size_t written;
    atomic_bool is_short; /* a stop found no room */
    int fd;
    int end_fd; /* eventfd: nothing is added any more */
    bool runs;
    int error;
    pthread_t thread;
    char buffer[BUFFER_BYTES];
};

/* Writes what was there when it began. After an error the rest is let go by. */
static void drain(struct stoplog *log)
{
    size_t end = atomic_load_explicit(&log->added, memory_order_acquire);
    size_t next = atomic_load_explicit(&log->written, memory_order_relaxed);
    while (next != end) {
        size_t used = 0;
        for (; next != end && used + LINE_BYTES < BUFFER_BYTES; next++) {
            const struct stop *stop = &log->stops[next % STOPLOG_WAITING_MAX];
            used += (size_t)snprintf(log->buffer + used, BUFFER_BYTES - used, "%d %llu %llu %llu %s\n", (int)stop->tid,
                                     (unsigned long long)stop->asked_ns, (unsigned long long)stop->arrived_ns,
                                     (unsigned long long)stop->released_ns,
                                     stop->is_interruption ? "interrupted" : "stopped");
        }
        atomic_store_explicit(&log->written, next, memory_order_release);
        if (!log->error)
            log->error = fileio_write(log->fd, log->buffer, used);
    }
}

static void *write_loop(void *context)
{
    struct stoplog *log = context;
    pthread_setname_np(pthread_self(), "stoplog");
    struct pollfd end = {.fd = log->end_fd, .events = POLLIN};
    while (!end.revents) {
        poll(&end, 1, WRITE_PERIOD_MS);
        drain(log);
    }
    return NULL;
}

int stoplog_new(int fd, struct stoplog **ret_log)
{
    struct stoplog *log = calloc(1, sizeof(*log));
    if (!log)
        return -ENOMEM;
    log->fd = fd;
    log->end_fd = eventfd(0, EFD_CLOEXEC);
    int error = log->end_fd < 0 ? -errno : -pthread_create(&log->thread, NULL, write_loop, log);
    if (error) {
        stoplog_free(log);
        return error;
    }
    log->runs = true;
    *ret_log = log;
    return 0;
}

void stoplog_add(struct stoplog *log, const struct stop *stop)
{
    size_t next = atomic_load_explicit(&log->added, memory_order_relaxed);
    if (next - atomic_load_explicit(&log->written, memory_order_acquire) == STOPLOG_WAITING_MAX) {
        log->is_short = true;
        return;
    }
    log->stops[next % STOPLOG_WAITING_MAX] = *stop;
    atomic_store_explicit(&log->added, next + 1, memory_order_release);
}

int stoplog_finish(struct stoplog *log)
{
    if (log->runs) {
        eventfd_write(log->end_fd, 1);
        pthread_join(log->thread, NULL);
        log->runs = false;
    }
    return log->error || !log->is_short ? log->error : -ENOBUFS;
}

void stoplog_free(struct stoplog *log)
{
    if (!log)
        return;
    if (log->runs)
        stoplog_finish(log);
    if (log->end_fd >= 0)
        close(log->end_fd);
    free(log);
}
