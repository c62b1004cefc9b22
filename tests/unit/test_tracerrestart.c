/*
 * System calls that the kernel ends with EINTR when their thread is stopped, though no handler runs: the program does
 * not see our stops, and sees each of its own signals once.
 */
#include "child.h"
#include "onestop.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { BUFFER_BYTES = 1 << 14, STOPS = 20, SIGNALS = 50 };

static uint8_t buffer[BUFFER_BYTES];

/* ---- the child ---- */

static int descriptor;
static int semaphores;

static int block_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(descriptor, &event, 1, -1);
}

static int block_epoll_wait_hour(void)
{
    struct epoll_event event;
    return epoll_wait(descriptor, &event, 1, 3600000);
}

static int block_epoll_pwait(void)
{
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(descriptor, &event, 1, -1, &none);
}

static int block_sigtimedwait(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    struct timespec hour = {.tv_sec = 3600};
    return sigtimedwait(&wanted, NULL, &hour);
}

static int block_sigwaitinfo(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    return sigwaitinfo(&wanted, NULL);
}

static int block_semtimedop(void)
{
    struct sembuf take = {.sem_op = -1};
    struct timespec hour = {.tv_sec = 3600};
    return semtimedop(semaphores, &take, 1, &hour);
}

static int block_semop(void)
{
    struct sembuf take = {.sem_op = -1};
    return semop(semaphores, &take, 1);
}

static int block_recv(void)
{
    char byte;
    return (int)recv(descriptor, &byte, 1, 0);
}

static int block_read(void)
{
    char byte;
    return (int)read(descriptor, &byte, 1);
}

static int open_epoll(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static int open_semaphore(void)
{
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    return semaphores;
}

/* A socket with a timeout does not restart its calls. */
static int open_socket(void)
{
    int pair[2];
    struct timeval hour = {.tv_sec = 3600};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof(hour)) < 0)
        return -1;
    return pair[0];
}

static int open_nothing(void)
{
    return 0;
}

static const struct call {
    const char *name;
    int (*open)(void);
    int (*block)(void);
    bool is_endless;
} calls[] = {
    {"epoll_wait", open_epoll, block_epoll_wait, true},
    {"epoll_wait, an hour", open_epoll, block_epoll_wait_hour, false},
    {"epoll_pwait", open_epoll, block_epoll_pwait, true},
    {"sigtimedwait", open_nothing, block_sigtimedwait, false},
    {"sigwaitinfo", open_nothing, block_sigwaitinfo, true},
    {"semop", open_semaphore, block_semop, true},
    {"semtimedop", open_semaphore, block_semtimedop, false},
    {"recv", open_socket, block_recv, false},
    {"read", open_socket, block_read, false},
};
static const struct call *chosen;
static struct child_page *child_page;

static void count_signal(int number)
{
    (void)number;
    child_page->signals++;
}

/* `turns`: how often the call returned; `ended`: because of EINTR. */
_Noreturn static void be_blocked(struct child_page *page)
{
    child_page = page;
    struct sigaction action = {.sa_handler = count_signal};
    sigaction(SIGUSR1, &action, NULL);
    descriptor = chosen->open();
    if (descriptor < 0)
        _exit(1);
    page->tids[0] = semaphores;
    page->ready = 1;
    for (;;) {
        int result = chosen->block();
        if (result < 0 && errno == EINTR)
            page->ended++;
        page->turns++;
    }
}

/* ---- stops ---- */

static struct tracer_request stop(const struct child *child, const struct registers *restarted_at)
{
    struct tracer_request request = {
        .pid = child->pid, .tid = child->pid, .buffer = buffer, .buffer_bytes = BUFFER_BYTES, .mem_fd = -1};
    if (restarted_at)
        request.restarted_at = *restarted_at;
    child_wait_state(child->pid, 'S');
    struct tracer_counters counters = onestop_run(&request);
    assert_int_equal(counters.eintr_restarted, request.restarted);
    child_wait_state(child->pid, 'S');
    return request;
}

/* A set of semaphores outlives its makers. */
static void end(struct child *child)
{
    if (chosen->open == open_semaphore)
        semctl(child->page->tids[0], 0, IPC_RMID);
    child_end(child);
}

static void expect_restarts(const struct call *call)
{
    chosen = call;
    struct child child = child_start(be_blocked);
    struct tracer_request request = {0};
    for (int i = 0; i < STOPS; i++) {
        request = stop(&child, NULL);
        if (!request.restarted || child.page->turns != 0)
            fail_msg("%s: %lu returned at stop %d", call->name, (unsigned long)child.page->turns, i);
        if (request.is_endless != call->is_endless)
            fail_msg("%s is %s a timeout", call->name, request.is_endless ? "without" : "with");
    }
    /* The same call in the same place a second time: then it has to return, or its timeout would never be over. */
    request = stop(&child, &request.registers);
    assert_false(request.restarted);
    child_wait(&child.page->ended, 1);
    assert_int_equal(child.page->turns, 1);
    end(&child);
}

static void stops_are_not_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        expect_restarts(&calls[i]);
}

/* A stop before each signal, and one behind. */
static void signals_are_seen_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        chosen = &calls[i];
        struct child child = child_start(be_blocked);
        for (int n = 1; n <= SIGNALS; n++) {
            if (n % 2)
                stop(&child, NULL);
            child_wait_state(child.pid, 'S'); /* one that comes between two calls ends none */
            kill(child.pid, SIGUSR1);
            child_wait(&child.page->ended, n);
            if (n % 3 == 0)
                stop(&child, NULL);
        }
        assert_int_equal(child.page->signals, SIGNALS);
        assert_int_equal(child.page->ended, SIGNALS);
        assert_int_equal(child.page->turns, SIGNALS);
        end(&child);
    }
}

/* ---- calls that go on by restart_syscall ---- */

static bool has_filter;

/* A filter that kills for restart_syscall; `turns`: naps that are over. */
_Noreturn static void nap(struct child_page *page)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        (has_filter && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0))
        _exit(1);
    page->ready = 1;
    struct timespec hour = {.tv_sec = 3600};
    for (;;) {
        syscall(SYS_nanosleep, &hour, NULL);
        page->turns++;
    }
}

static void filters_that_forbid_to_go_on(void **state)
{
    (void)state;
    has_filter = true;
    struct child child = child_start(nap);
    for (int i = 0; i < STOPS; i++) {
        struct tracer_request request = stop(&child, NULL);
        assert_true(request.restarted);
    }
    assert_int_equal(child.page->turns, 0);
    child_end(&child);
}

/* Without a filter nothing is changed: the rest of the time is the kernel's to keep. */
static void calls_go_on_without_a_filter(void **state)
{
    (void)state;
    has_filter = false;
    struct child child = child_start(nap);
    for (int i = 0; i < STOPS; i++) {
        struct tracer_request request = stop(&child, NULL);
        assert_false(request.restarted);
    }
    assert_int_equal(child.page->turns, 0);
    child_end(&child);
}

/* ---- signals that nobody handles ---- */

static atomic_bool is_over;

static void *send_ignored(void *argument)
{
    const struct child *child = argument;
    while (!is_over)
        syscall(SYS_tgkill, child->pid, child->pid, SIGWINCH);
    return NULL;
}

/* To a traced thread they are delivered, and so wake it; untraced it would not have noticed them. */
static void ignored_signals_are_not_seen(void **state)
{
    (void)state;
    enum { MANY_STOPS = 300 };
    has_filter = true;
    struct child child = child_start(nap);
    pthread_t sender;
    is_over = false;
    assert_int_equal(pthread_create(&sender, NULL, send_ignored, &child), 0);
    for (int i = 0; i < MANY_STOPS && waitpid(child.pid, NULL, WNOHANG) == 0; i++)
        stop(&child, NULL);
    is_over = true;
    pthread_join(sender, NULL);
    assert_int_equal(child.page->turns, 0);
    assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0); /* its filter kills for what it would not have done */
    child_end(&child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_are_not_seen),           cmocka_unit_test(signals_are_seen_once),
        cmocka_unit_test(filters_that_forbid_to_go_on), cmocka_unit_test(calls_go_on_without_a_filter),
        cmocka_unit_test(ignored_signals_are_not_seen),
    };
    onestop_block_sigchld();
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
