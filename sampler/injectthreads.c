#include "sampler/injectthreads.h"

#include "common/fileio.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* To be held costs a thread some turns on a CPU. */
enum { SLICES_OF_A_STOP = 8 };

enum rank { RANK_RUNS, RANK_WAITS, RANK_WAITS_FOR_A_TIME, RANK_COUNT };

struct candidate {
    pid_t tid;
    uint64_t order; /* less is better */
};

struct choice {
    struct injectthreads *threads;
    int proc_fd;
    size_t count;
    struct candidate candidates[INJECTTHREADS_MAX];
};

static bool futex_has_timeout(const uint64_t *arguments)
{
    switch ((int)arguments[1] & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
        return arguments[3] != 0;
    default: /* absolute times, which do not start over */
        return false;
    }
}

bool injectthreads_has_timeout(const struct procfs_syscall *call)
{
    const uint64_t *arguments = call->arguments;
    switch (call->number) {
    case SYS_nanosleep:
    case SYS_restart_syscall:
        return true;
    case SYS_clock_nanosleep:
        return !(arguments[1] & 1); /* TIMER_ABSTIME */
    case SYS_poll:
        return (int32_t)arguments[2] >= 0;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return (int32_t)arguments[3] >= 0;
    case SYS_ppoll:
    case SYS_rt_sigtimedwait:
        return arguments[2] != 0;
    case SYS_epoll_pwait2:
    case SYS_semtimedop:
        return arguments[3] != 0;
    case SYS_select:
    case SYS_pselect6:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_recvmmsg:
        return arguments[4] != 0;
    case SYS_futex:
        return futex_has_timeout(arguments);
    default:
        return false;
    }
}

static bool read_slices(int proc_fd, pid_t tid, uint64_t *ret)
{
    char path[48];
    struct procfs_schedstat stat;
    snprintf(path, sizeof(path), "task/%d/schedstat", (int)tid);
    autoclose int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || procfs_pread_schedstat(fd, &stat) < 0)
        return false;
    *ret = stat.slices;
    return true;
}

struct living {
    int proc_fd;
    pid_t tid;
};

static int look_for_living(void *context, pid_t tid)
{
    struct living *living = context;
    struct procfs_stat stat;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
    if (procfs_read_stat(living->proc_fd, path, &stat) < 0 || procfs_stat_is_ending(&stat))
        return 0;
    living->tid = tid;
    return 1;
}

pid_t injectthreads_find_living(int proc_fd)
{
    struct living living = {.proc_fd = proc_fd};
    procfs_each_thread(proc_fd, look_for_living, &living);
    return living.tid;
}

static struct injectthreads_note *note_of(struct injectthreads *threads, pid_t tid)
{
    return &threads->notes[(unsigned)tid % INJECTTHREADS_NOTES];
}

void injectthreads_note(struct injectthreads *threads, int proc_fd, pid_t tid)
{
    struct injectthreads_note note = {.tid = tid};
    if (read_slices(proc_fd, tid, &note.slices))
        *note_of(threads, tid) = note;
}

static bool is_where_it_was(struct injectthreads *threads, int proc_fd, pid_t tid)
{
    const struct injectthreads_note *note = note_of(threads, tid);
    uint64_t slices;
    return note->tid == tid && read_slices(proc_fd, tid, &slices) && slices - note->slices <= SLICES_OF_A_STOP;
}

static enum rank rank_of_sleeper(int proc_fd, pid_t tid)
{
    char path[48];
    char text[256];
    struct procfs_syscall call;
    snprintf(path, sizeof(path), "task/%d/syscall", (int)tid);
    ssize_t size = fileio_read_text(proc_fd, path, text, sizeof(text));
    bool has_timeout = size > 0 && procfs_parse_syscall(text, (size_t)size, &call) && injectthreads_has_timeout(&call);
    return has_timeout ? RANK_WAITS_FOR_A_TIME : RANK_WAITS;
}

static int look_at_thread(void *context, pid_t tid)
{
    struct choice *choice = context;
    struct procfs_stat stat;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
    if (procfs_read_stat(choice->proc_fd, path, &stat) < 0 || procfs_stat_is_ending(&stat))
        return 0;
    enum rank rank = RANK_RUNS;
    if (stat.state == 'S' && is_where_it_was(choice->threads, choice->proc_fd, tid))
        return 0;
    if (stat.state == 'S')
        rank = rank_of_sleeper(choice->proc_fd, tid);
    else if (stat.state != 'R')
        return 0;
    /* Of one rank, others first in each round. */
    uint64_t turn = (choice->count - (uint64_t)choice->threads->rounds * INJECTTHREADS_CHOSEN) % INJECTTHREADS_MAX;
    choice->candidates[choice->count++] =
        (struct candidate){.tid = tid, .order = (uint64_t)rank * INJECTTHREADS_MAX + turn};
    return choice->count == INJECTTHREADS_MAX;
}

static int compare(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    return a->order < b->order ? -1 : a->order > b->order;
}

size_t injectthreads_choose(struct injectthreads *threads, int proc_fd, pid_t *ret_tids)
{
    struct choice *choice = malloc(sizeof(*choice));
    if (!choice)
        return 0;
    choice->threads = threads;
    choice->proc_fd = proc_fd;
    choice->count = 0;
    procfs_each_thread(proc_fd, look_at_thread, choice);
    threads->rounds++;
    qsort(choice->candidates, choice->count, sizeof(*choice->candidates), compare);
    size_t count = choice->count < INJECTTHREADS_CHOSEN ? choice->count : INJECTTHREADS_CHOSEN;
    for (size_t i = 0; i < count; i++)
        ret_tids[i] = choice->candidates[i].tid;
    free(choice);
    return count;
}
