/* A forked process that a test looks at from outside, and a page that both write to. Nothing here waits for time to
 * pass. */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include "cmocka_all.h"

#include "sampler/procfs.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct child_page {
    atomic_int ready;
    atomic_int go;
    atomic_ulong turns; /* grows while it runs */
    atomic_int signals;
    atomic_int wrong_signals;
    atomic_int ended;
    atomic_int tids[64];
};

struct child {
    pid_t pid;
    struct child_page *page;
};

static inline void child_wait(atomic_int *flag, int wanted)
{
    while (*flag < wanted)
        sched_yield();
}

static inline struct child_page *child_page_new(void)
{
    void *page = mmap(NULL, sizeof(struct child_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

/* Forks; `body` never returns, and says when it is ready. */
static inline struct child child_start(void (*body)(struct child_page *page))
{
    struct child child = {.page = child_page_new()};
    pid_t parent = getpid();
    child.pid = fork();
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            body(child.page);
        _exit(99);
    }
    assert_true(child.pid > 0);
    child_wait(&child.page->ready, 1);
    return child;
}

static inline void child_end(struct child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    munmap(child->page, sizeof(*child->page));
}

static inline struct procfs_status child_status(pid_t pid)
{
    struct procfs_status status = {0};
    int fd = procfs_open_process(pid);
    assert_true(fd >= 0);
    assert_int_equal(procfs_read_status(fd, &status), 0);
    close(fd);
    return status;
}

static inline void child_wait_state(pid_t pid, char state)
{
    while (child_status(pid).state != state)
        sched_yield();
}

/* It runs: for ever, if it does not. */
static inline void child_wait_turns(const struct child *child)
{
    unsigned long before = child->page->turns;
    while (child->page->turns == before)
        sched_yield();
}

#endif
