#include "child.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ptrace.h>

enum { BUFFER_BYTES = 1 << 16, PAGE_BYTES = 4096, EXIT_STATUS = 7 };

#define MARK_R12   UINT64_C(0x1122334455667788)
#define MARK_STACK UINT64_C(0x0123456789abcdef)

/* ---- the two threads of tracer.h: the test's is the one that watches ---- */

struct fixture {
    struct tracer *tracer;
    int done_fd;
    void (*job)(struct fixture *fixture, void *context);
    void *context;
    bool leaves; /* the job has released the tracer itself */
    atomic_int exits;
    atomic_int wrong_exits;
    int finished;        /* requests told of */
    int finished_traced; /* of those with a stack: still traced then */
};

static void note_exit(void *context, pid_t pid, const struct wait_event *event)
{
    struct fixture *fixture = context;
    (void)pid;
    fixture->exits++;
    if (wait_exit_status(event) != EXIT_STATUS)
        fixture->wrong_exits++;
}

static void note_finished(void *context, struct tracer_request *request)
{
    struct fixture *fixture = context;
    struct procfs_status status;
    fixture->finished++;
    int fd = request->outcome == TRACER_CAPTURED ? procfs_open_process(request->tid) : -1;
    if (fd >= 0 && procfs_read_status(fd, &status) == 0 && status.tracer_pid)
        fixture->finished_traced++;
    if (fd >= 0)
        close(fd);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->done_fd = eventfd(0, EFD_CLOEXEC);
    *state = fixture;
    if (tracer_new(note_exit, fixture, &fixture->tracer))
        return -1;
    tracer_set_sink(fixture->tracer, note_finished, fixture);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    tracer_free(fixture->tracer);
    close(fixture->done_fd);
    free(fixture);
    return 0;
}

static void *own(void *argument)
{
    struct fixture *fixture = argument;
    fixture->job(fixture, fixture->context);
    if (!fixture->leaves)
        tracer_release(fixture->tracer, 60 * NS_PER_SEC);
    eventfd_write(fixture->done_fd, 1);
    return NULL;
}

/* Runs `job` on the owner, which asserts nothing: what it found is looked at behind it. */
static void on_owner(struct fixture *fixture, void (*job)(struct fixture *, void *), void *context)
{
    fixture->job = job;
    fixture->context = context;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, own, fixture), 0);
    struct pollfd fds[2] = {{.fd = tracer_watch_fd(fixture->tracer), .events = POLLIN},
                            {.fd = fixture->done_fd, .events = POLLIN}};
    while (!fds[1].revents) {
        fds[0].revents = 0;
        if (poll(fds, 2, -1) > 0 && fds[0].revents)
            tracer_watch(fixture->tracer);
    }
    eventfd_t value;
    eventfd_read(fixture->done_fd, &value);
    pthread_join(thread, NULL);
    assert_int_equal(tracer_in_flight(fixture->tracer), 0);
    assert_int_equal(fixture->finished_traced, 0);
}

static void wait_idle(struct tracer *tracer)
{
    while (tracer_in_flight(tracer) > 0)
        tracer_wait(tracer, -1, clock_now_ns() + NS_PER_SEC, true);
}

static int start(struct tracer *tracer, struct tracer_request *request)
{
    int error = tracer_start(tracer, request);
    tracer_watch_end(tracer);
    return error;
}

/* Starts it, also when it is overdue from before; and again while the machine is too busy to stop it in time. */
static int sample_one(struct tracer *tracer, struct tracer_request *request)
{
    int error;
    do {
        while ((error = start(tracer, request)) == -EBUSY)
            tracer_wait(tracer, -1, clock_now_ns() + NS_PER_MS, false);
        wait_idle(tracer);
    } while (error == 0 && request->outcome == TRACER_TIMEOUT);
    return error;
}

static struct tracer_request request_of(pid_t pid, pid_t tid)
{
    return (struct tracer_request){
        .pid = pid, .tid = tid, .buffer = malloc(BUFFER_BYTES), .buffer_bytes = BUFFER_BYTES, .mem_fd = -1};
}

struct repeat {
    struct tracer_request request;
    int times;
    int captured;
    int error;
    bool bad_time;
};

static void repeat_job(struct fixture *fixture, void *context)
{
    struct repeat *repeat = context;
    for (int i = 0; i < repeat->times; i++) {
        uint64_t before_ns = clock_now_ns();
        repeat->error = sample_one(fixture->tracer, &repeat->request);
        uint64_t after_ns = clock_now_ns();
        if (repeat->error || repeat->request.outcome != TRACER_CAPTURED)
            break;
        repeat->captured++;
        repeat->bad_time |=
            repeat->request.interrupted_ns < before_ns || repeat->request.arrived_ns < repeat->request.interrupted_ns ||
            repeat->request.released_ns <= repeat->request.arrived_ns || repeat->request.released_ns > after_ns;
    }
}

/* Samples it that often; free the buffer. */
static struct tracer_request sample_times(struct fixture *fixture, pid_t pid, pid_t tid, int times)
{
    struct repeat repeat = {.request = request_of(pid, tid), .times = times};
    uint64_t stops = tracer_counters(fixture->tracer)->stops;
    on_owner(fixture, repeat_job, &repeat);
    if (repeat.captured != times)
        fail_msg("outcome %d (%s) after %d", repeat.request.outcome, strerror(-repeat.error), repeat.captured);
    assert_false(repeat.bad_time);
    const struct tracer_counters *counters = tracer_counters(fixture->tracer);
    assert_int_equal(counters->stops, stops + (uint64_t)times);
    assert_int_equal(counters->stop_ns.count, counters->stops);
    assert_int_equal(child_status(pid).tracer_pid, 0);
    return repeat.request;
}

static void sample_quietly(struct fixture *fixture, pid_t pid, int times)
{
    struct tracer_request request = sample_times(fixture, pid, pid, times);
    free(request.buffer);
}

/* ---- children ---- */

/* Runs with known registers and a known word on the stack. */
_Noreturn static void spin(struct child_page *page)
{
    __asm__ volatile(
        "movq %[mark], %%r12\n\t"
        "pushq %[word]\n\t"
        "movl $1, (%[ready])\n"
        "1: lock incq (%[turns])\n\t"
        "jmp 1b"
        :
        : [mark] "r"(MARK_R12), [word] "r"(MARK_STACK), [ready] "r"(&page->ready), [turns] "r"(&page->turns)
        : "r12", "memory");
    __builtin_unreachable();
}

/* The same at the beginning of a page, with no page below and none above. */
_Noreturn static void spin_at_guard(struct child_page *page)
{
    char *pages = mmap(NULL, 3 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE);
    uint64_t word = MARK_STACK;
    memcpy(pages + PAGE_BYTES, &word, sizeof(word));
    __asm__ volatile("movq %[sp], %%rsp\n\t"
                     "movl $1, (%[ready])\n"
                     "1: lock incq (%[turns])\n\t"
                     "jmp 1b"
                     :
                     : [sp] "r"(pages + PAGE_BYTES), [ready] "r"(&page->ready), [turns] "r"(&page->turns)
                     : "memory");
    __builtin_unreachable();
}

_Noreturn static void sleep_on(struct child_page *page)
{
    page->ready = 1;
    for (;;) {
        pause();
        page->turns++;
    }
}

static struct child_page *thread_page;

static void *spin_in_thread(void *argument)
{
    (void)argument;
    thread_page->tids[0] = (int)gettid();
    spin(thread_page);
}

_Noreturn static void spin_in_second_thread(struct child_page *page)
{
    pthread_t thread;
    thread_page = page;
    pthread_create(&thread, NULL, spin_in_thread, NULL);
    for (;;)
        pause();
}

static struct child_page *handler_page;

/* Real-time signals queue and keep their order: each must come once, in its turn, as it was sent. */
static void count_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (signal == SIGRTMIN + 2) {
        handler_page->ended = 1;
        return;
    }
    int expected = handler_page->signals++;
    if (info->si_code != SI_QUEUE || info->si_pid != getppid() || info->si_value.sival_int != expected)
        handler_page->wrong_signals++;
}

static void handle_signals(struct child_page *page)
{
    handler_page = page;
    struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigaction(SIGRTMIN + 1, &action, NULL);
    sigaction(SIGRTMIN + 2, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

_Noreturn static void spin_and_count_signals(struct child_page *page)
{
    handle_signals(page);
    spin(page);
}

_Noreturn static void sleep_and_count_signals(struct child_page *page)
{
    handle_signals(page);
    sleep_on(page);
}

_Noreturn static void block_signal(struct child_page *page)
{
    handle_signals(page);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    page->ready = 1;
    while (!page->go)
        page->turns++;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    page->ended = 1;
    for (;;)
        page->turns++;
}

_Noreturn static void exit_soon(struct child_page *page)
{
    page->ready = 1;
    while (!page->go)
        ;
    for (int i = page->go; i > 0; i--)
        page->turns++;
    _exit(EXIT_STATUS);
}

static int vfork_pipe[2];

_Noreturn static void wait_in_vfork(struct child_page *page)
{
    page->ready = 1;
    if (vfork() == 0) {
        char byte;
        ssize_t got = read(vfork_pipe[0], &byte, 1);
        _exit(got == 1 ? 0 : 1);
    }
    for (;;)
        page->turns++;
}

/* ---- tests ---- */

static void expect_marks(const struct tracer_request *request)
{
    assert_int_equal(request->registers.known, (1U << REGISTER_COUNT) - 1);
    assert_true(request->registers.value[REGISTER_R12] == MARK_R12);
    uint64_t sp = request->registers.value[REGISTER_RSP];
    assert_true(request->bytes_avma <= sp && sp + 8 <= request->bytes_avma + request->bytes);
    uint64_t word;
    memcpy(&word, request->buffer + (sp - request->bytes_avma), sizeof(word));
    assert_true(word == MARK_STACK);
}

static void test_running(void **state)
{
    struct child child = child_start(spin);
    struct tracer_request request = sample_times(*state, child.pid, child.pid, 100);
    expect_marks(&request);
    /* The red zone is part of it. */
    assert_true(request.bytes_avma == request.registers.value[REGISTER_RSP] - 128);
    uint64_t pc = request.registers.value[REGISTER_PC];
    uint64_t function = (uint64_t)(uintptr_t)spin;
    assert_true(pc > function && pc < function + 400);
    free(request.buffer);
    child_wait_turns(&child);
    assert_int_equal(child_status(child.pid).state, 'R');
    child_end(&child);
}

static void test_second_thread(void **state)
{
    struct child child = child_start(spin_in_second_thread);
    struct tracer_request request = sample_times(*state, child.pid, child.page->tids[0], 20);
    expect_marks(&request);
    free(request.buffer);
    sample_quietly(*state, child.pid, 20);
    child_wait_turns(&child);
    child_end(&child);
}

static void test_sleeping(void **state)
{
    struct child child = child_start(sleep_on);
    child_wait_state(child.pid, 'S');
    sample_quietly(*state, child.pid, 100);
    child_wait_state(child.pid, 'S');
    assert_int_equal(child.page->turns, 0); /* its pause went on each time */
    child_end(&child);
}

static void sample_job(struct fixture *fixture, void *context)
{
    sample_one(fixture->tracer, context);
}

static void test_stack_limits(void **state)
{
    struct fixture *fixture = *state;
    struct child child = child_start(spin);
    struct tracer_request request = request_of(child.pid, child.pid);
    on_owner(fixture, sample_job, &request);
    assert_int_equal(request.outcome, TRACER_CAPTURED);
    uint64_t sp = request.registers.value[REGISTER_RSP];
    /* Not more than asked for. */
    request.buffer_bytes = 200;
    on_owner(fixture, sample_job, &request);
    assert_int_equal(request.bytes, 200);
    expect_marks(&request);
    /* Not beyond the mapping that it was in last time; which is of no use when it has gone elsewhere. */
    request.buffer_bytes = BUFFER_BYTES;
    request.stack_start_avma = sp - 100;
    request.stack_end_avma = sp + 16;
    on_owner(fixture, sample_job, &request);
    assert_true(request.bytes_avma + request.bytes == sp + 16);
    expect_marks(&request);
    request.stack_start_avma = sp + 16;
    request.stack_end_avma = sp + 32;
    on_owner(fixture, sample_job, &request);
    assert_true(request.bytes_avma + request.bytes > sp + 32);
    expect_marks(&request);
    free(request.buffer);
    child_end(&child);
}

static void test_guard_pages(void **state)
{
    struct child child = child_start(spin_at_guard);
    struct tracer_request request = sample_times(*state, child.pid, child.pid, 5);
    uint64_t sp = request.registers.value[REGISTER_RSP];
    assert_int_equal(sp % PAGE_BYTES, 0);
    assert_true(request.bytes_avma == sp);
    assert_int_equal(request.bytes, PAGE_BYTES);
    uint64_t word;
    memcpy(&word, request.buffer, sizeof(word));
    assert_true(word == MARK_STACK);
    free(request.buffer);
    child_end(&child);
}

struct queue {
    pid_t pid;
    int count;
    struct tracer_request request;
    int failed;
};

static void queue_job(struct fixture *fixture, void *context)
{
    struct queue *queue = context;
    for (int i = 0; i < queue->count; i++) {
        while (sigqueue(queue->pid, SIGRTMIN + 1, (union sigval){.sival_int = i}) < 0)
            sched_yield(); /* the queue is full */
        int error = sample_one(fixture->tracer, &queue->request);
        queue->failed += error || queue->request.outcome != TRACER_CAPTURED;
    }
    kill(queue->pid, SIGRTMIN + 2);
}

static void expect_signals_once(struct fixture *fixture, void (*body)(struct child_page *))
{
    struct child child = child_start(body);
    struct queue queue = {.pid = child.pid, .count = 1000, .request = request_of(child.pid, child.pid)};
    on_owner(fixture, queue_job, &queue);
    assert_int_equal(queue.failed, 0);
    child_wait(&child.page->ended, 1);
    assert_int_equal(child.page->signals, 1000);
    assert_int_equal(child.page->wrong_signals, 0);
    assert_int_equal(child_status(child.pid).tracer_pid, 0);
    free(queue.request.buffer);
    child_end(&child);
}

static void test_signals_once(void **state)
{
    expect_signals_once(*state, spin_and_count_signals);
    expect_signals_once(*state, sleep_and_count_signals);
}

static void test_blocked_signal(void **state)
{
    struct child child = child_start(block_signal);
    assert_int_equal(sigqueue(child.pid, SIGRTMIN + 1, (union sigval){.sival_int = 0}), 0);
    sample_quietly(*state, child.pid, 50);
    assert_int_equal(child.page->signals, 0);
    child.page->go = 1;
    child_wait(&child.page->ended, 1);
    assert_int_equal(child.page->signals, 1);
    assert_int_equal(child.page->wrong_signals, 0);
    child_end(&child);
}

static void test_stopped_stays_stopped(void **state)
{
    struct fixture *fixture = *state;
    static const int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < 4; i++) {
        struct child child = child_start(spin);
        /* In a group of its own that is not orphaned, which terminal signals would not stop. */
        assert_int_equal(setpgid(child.pid, child.pid), 0);
        uint64_t before = tracer_counters(fixture->tracer)->group_stops;
        assert_int_equal(kill(child.pid, signals[i]), 0);
        child_wait_state(child.pid, 'T');
        unsigned long turns = child.page->turns;
        for (int turn = 0; turn < 10; turn++) {
            struct tracer_request request = sample_times(fixture, child.pid, child.pid, 1);
            expect_marks(&request);
            free(request.buffer);
            child_wait_state(child.pid, 'T');
        }
        assert_int_equal(tracer_counters(fixture->tracer)->group_stops, before + 10);
        assert_int_equal(child.page->turns, turns);
        assert_int_equal(kill(child.pid, SIGCONT), 0);
        child_wait_turns(&child);
        sample_quietly(fixture, child.pid, 5);
        assert_int_equal(tracer_counters(fixture->tracer)->group_stops, before + 10);
        child_end(&child);
    }
}

static int reap_child(pid_t pid, struct wait_event *ret_event)
{
    int error;
    while ((error = tracer_reap_child(pid, ret_event)) == -EAGAIN)
        sched_yield();
    return error;
}

struct refused {
    struct tracer_request request;
    int error;
};

static void start_job(struct fixture *fixture, void *context)
{
    struct refused *refused = context;
    refused->error = start(fixture->tracer, &refused->request);
}

static int start_error(struct fixture *fixture, pid_t pid)
{
    struct refused refused = {.request = request_of(pid, pid)};
    on_owner(fixture, start_job, &refused);
    free(refused.request.buffer);
    return refused.error;
}

static void test_gone(void **state)
{
    struct fixture *fixture = *state;
    struct child child = child_start(spin);
    pid_t pid = child.pid;
    child_end(&child);
    assert_int_equal(start_error(fixture, pid), -ESRCH);
    assert_int_equal(tracer_counters(fixture->tracer)->stops, 0);
    assert_int_equal(fixture->exits, 0);
    assert_int_equal(fixture->finished, 0);
}

enum { CROWD = 8 };

struct crowd {
    struct child children[CROWD];
    struct tracer_request requests[CROWD];
    int go;
    int captured[CROWD];
    int started;
    bool unexpected;
};

static struct crowd *crowd_new(void (*body)(struct child_page *))
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    for (size_t i = 0; i < CROWD; i++) {
        crowd->children[i] = child_start(body);
        crowd->requests[i] = request_of(crowd->children[i].pid, crowd->children[i].pid);
    }
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    for (size_t i = 0; i < CROWD; i++) {
        child_end(&crowd->children[i]);
        free(crowd->requests[i].buffer);
    }
    free(crowd);
}

/* All at once; those that could not be started are left out. Returns how many were not captured. */
static size_t sample_crowd(struct fixture *fixture, struct crowd *crowd)
{
    size_t missing = 0;
    int errors[CROWD];
    for (size_t i = 0; i < CROWD; i++) {
        errors[i] = tracer_start(fixture->tracer, &crowd->requests[i]);
        crowd->started += errors[i] == 0;
        crowd->unexpected |= errors[i] && errors[i] != -ESRCH && errors[i] != -EPERM && errors[i] != -EBUSY;
    }
    tracer_watch_end(fixture->tracer);
    wait_idle(fixture->tracer);
    for (size_t i = 0; i < CROWD; i++) {
        enum tracer_outcome outcome = crowd->requests[i].outcome;
        bool captured = errors[i] == 0 && outcome == TRACER_CAPTURED;
        crowd->captured[i] += captured;
        missing += !captured;
        crowd->unexpected |=
            errors[i] == 0 && outcome != TRACER_CAPTURED && outcome != TRACER_VANISHED && outcome != TRACER_TIMEOUT;
    }
    return missing;
}

/* Samples them until each has ended. */
static void ending_job(struct fixture *fixture, void *context)
{
    struct crowd *crowd = context;
    for (size_t i = 0; i < CROWD; i++)
        crowd->children[i].page->go = 1 + crowd->go * (int)i;
    while (sample_crowd(fixture, crowd) < CROWD)
        ;
}

/* Whoever reaps a child, its status is told once. */
static void test_ending(void **state)
{
    struct fixture *fixture = *state;
    int reaped = 0;
    enum { ROUNDS = 40 };
    for (int round = 0; round < ROUNDS; round++) {
        struct crowd *crowd = crowd_new(exit_soon);
        crowd->go = round * 500;
        on_owner(fixture, ending_job, crowd);
        assert_false(crowd->unexpected);
        for (size_t i = 0; i < CROWD; i++) {
            struct wait_event event;
            int error = reap_child(crowd->children[i].pid, &event);
            assert_true(error == 0 || error == -ECHILD);
            if (error == 0) {
                assert_int_equal(wait_exit_status(&event), EXIT_STATUS);
                reaped++;
            }
        }
        crowd_free(crowd);
    }
    assert_int_equal(reaped + fixture->exits, ROUNDS * CROWD);
    assert_int_equal(fixture->wrong_exits, 0);
}

static void kill_job(struct fixture *fixture, void *context)
{
    struct crowd *crowd = context;
    /* Killed between the seizing and the release, as far as chance has it. */
    for (size_t i = 0; i < CROWD; i++) {
        kill(crowd->children[i].pid, SIGKILL);
        sample_crowd(fixture, crowd);
    }
}

static void test_killed(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 0; round < 10; round++) {
        struct crowd *crowd = crowd_new(spin);
        on_owner(fixture, kill_job, crowd);
        assert_false(crowd->unexpected);
        for (size_t i = 0; i < CROWD; i++) {
            struct wait_event event;
            int error = reap_child(crowd->children[i].pid, &event);
            assert_true(error == 0 || error == -ECHILD);
            if (error == 0)
                assert_int_equal(wait_exit_status(&event), 128 + SIGKILL);
        }
        crowd_free(crowd);
    }
    assert_int_equal(fixture->exits, fixture->wrong_exits); /* none exited, each was killed */
}

static void batch_job(struct fixture *fixture, void *context)
{
    struct crowd *crowd = context;
    for (size_t left = CROWD; left;) {
        sample_crowd(fixture, crowd);
        left = 0;
        for (size_t i = 0; i < CROWD; i++)
            left += crowd->captured[i] < 20;
    }
}

static void test_batch(void **state)
{
    struct fixture *fixture = *state;
    struct crowd *crowd = crowd_new(spin);
    on_owner(fixture, batch_job, crowd);
    assert_false(crowd->unexpected);
    uint64_t captured = 0;
    for (size_t i = 0; i < CROWD; i++) {
        captured += (uint64_t)crowd->captured[i];
        expect_marks(&crowd->requests[i]);
        assert_int_equal(child_status(crowd->children[i].pid).tracer_pid, 0);
        child_wait_turns(&crowd->children[i]);
    }
    assert_int_equal(tracer_counters(fixture->tracer)->stops, captured);
    assert_int_equal(fixture->finished, crowd->started); /* each is told once */
    crowd_free(crowd);
}

struct pair {
    struct tracer_request requests[2];
    int errors[2];
};

static void twice_job(struct fixture *fixture, void *context)
{
    struct pair *pair = context;
    for (size_t i = 0; i < 2; i++)
        pair->errors[i] = start(fixture->tracer, &pair->requests[i]);
}

static void test_same_thread_twice(void **state)
{
    struct fixture *fixture = *state;
    struct child child = child_start(spin);
    struct pair pair = {.requests = {request_of(child.pid, child.pid), request_of(child.pid, child.pid)}};
    on_owner(fixture, twice_job, &pair);
    assert_int_equal(pair.errors[0], 0);
    assert_int_equal(pair.errors[1], -EBUSY);
    assert_true(pair.requests[0].outcome == TRACER_CAPTURED || pair.requests[0].outcome == TRACER_TIMEOUT);
    assert_int_equal(fixture->finished, 1);
    free(pair.requests[0].buffer);
    free(pair.requests[1].buffer);
    child_end(&child);
}

static void wake_job(struct fixture *fixture, void *context)
{
    bool *woken = context;
    int fd = eventfd(1, EFD_CLOEXEC);
    *woken = tracer_wait(fixture->tracer, fd, UINT64_MAX, false);
    close(fd);
}

static void test_wait_is_woken(void **state)
{
    bool woken = false;
    on_owner(*state, wake_job, &woken);
    assert_true(woken);
}

struct vforked {
    struct tracer_request first;
    struct tracer_request second;
    int start_error;
    int busy_error;
    int error;
    enum tracer_outcome first_outcome;
};

static void vfork_job(struct fixture *fixture, void *context)
{
    struct vforked *vforked = context;
    vforked->start_error = start(fixture->tracer, &vforked->first);
    wait_idle(fixture->tracer);
    vforked->first_outcome = vforked->first.outcome;
    tracer_collect(fixture->tracer);
    vforked->busy_error = start(fixture->tracer, &vforked->second);
    fileio_write(vfork_pipe[1], "x", 1);
    vforked->error = sample_one(fixture->tracer, &vforked->second);
}

static struct child start_in_vfork(void)
{
    assert_int_equal(pipe2(vfork_pipe, O_CLOEXEC), 0);
    struct child child = child_start(wait_in_vfork);
    child_wait_state(child.pid, 'D');
    return child;
}

static void end_in_vfork(struct child *child)
{
    assert_int_equal(child_status(child->pid).tracer_pid, 0);
    child_wait_turns(child);
    child_end(child);
    close(vfork_pipe[0]);
    close(vfork_pipe[1]);
}

/* A parent in vfork(2) does not stop before its child is done: nobody may wait for it. */
static void test_uninterruptible(void **state)
{
    struct fixture *fixture = *state;
    struct child child = start_in_vfork();
    struct vforked vforked = {.first = request_of(child.pid, child.pid), .second = request_of(child.pid, child.pid)};
    on_owner(fixture, vfork_job, &vforked);
    assert_int_equal(vforked.start_error, 0);
    assert_int_equal(vforked.first_outcome, TRACER_TIMEOUT);
    assert_int_equal(vforked.busy_error, -EBUSY);
    assert_true(tracer_counters(fixture->tracer)->timeouts >= 1);
    /* Let go when it stopped, and sampled like any other then. */
    assert_int_equal(vforked.error, 0);
    assert_int_equal(vforked.second.outcome, TRACER_CAPTURED);
    assert_int_equal(vforked.first.outcome, TRACER_TIMEOUT);
    assert_int_equal(tracer_counters(fixture->tracer)->stops, 1);
    free(vforked.first.buffer);
    free(vforked.second.buffer);
    end_in_vfork(&child);
}

static void late_job(struct fixture *fixture, void *context)
{
    start(fixture->tracer, context);
    fileio_write(vfork_pipe[1], "x", 1);
}

/* ---- how long a thread may be held ---- */

enum { DEEP_BYTES = 1 << 20, PIECE_BYTES = 128 << 10 };

_Noreturn static void sleep_deep(struct child_page *page)
{
    volatile uint8_t deep[DEEP_BYTES];
    for (size_t i = 0; i < DEEP_BYTES; i += PAGE_BYTES)
        deep[i] = 1;
    page->ready = 1;
    for (;;) {
        pause();
        page->turns += deep[page->turns % DEEP_BYTES];
    }
}

/* A stack that takes longer to copy than the thread may be held is not copied whole, and counted. */
static void test_held(void **state)
{
    struct fixture *fixture = *state;
    struct child child = child_start(sleep_deep);
    static const uint64_t limits_ns[] = {1, 0};
    for (size_t i = 0; i < 2; i++) {
        bool is_cut = limits_ns[i] > 0;
        struct repeat repeat = {.request = request_of(child.pid, child.pid), .times = 3};
        repeat.request.buffer = realloc(repeat.request.buffer, 2 * DEEP_BYTES);
        repeat.request.buffer_bytes = 2 * DEEP_BYTES;
        repeat.request.held_ns_max = limits_ns[i];
        on_owner(fixture, repeat_job, &repeat);
        assert_int_equal(repeat.captured, 3);
        assert_true(repeat.request.is_cut == is_cut);
        if (is_cut)
            assert_int_equal(repeat.request.bytes, PIECE_BYTES);
        else
            assert_true(repeat.request.bytes > DEEP_BYTES);
        free(repeat.request.buffer);
    }
    const struct tracer_counters *counters = tracer_counters(fixture->tracer);
    assert_int_equal(counters->copies_cut, 3);
    assert_int_equal(counters->held_ns.count, counters->stops);
    assert_true(counters->held_ns.sum <= counters->stop_ns.sum);
    child_end(&child);
}

/* At the end of sampling: tracer_release waits for it. */
static void test_release(void **state)
{
    struct fixture *fixture = *state;
    struct child child = start_in_vfork();
    struct tracer_request request = request_of(child.pid, child.pid);
    on_owner(fixture, late_job, &request);
    assert_true(request.outcome == TRACER_CAPTURED || request.outcome == TRACER_TIMEOUT);
    assert_int_equal(fixture->finished, 1);
    free(request.buffer);
    end_in_vfork(&child);
}

static void leave_job(struct fixture *fixture, void *context)
{
    start(fixture->tracer, context);
    tracer_release(fixture->tracer, NS_PER_MS);
}

/* Or gives up; then the kernel releases it when the owner ends. */
static void test_release_gives_up(void **state)
{
    struct fixture *fixture = *state;
    struct child child = start_in_vfork();
    struct tracer_request request = request_of(child.pid, child.pid);
    fixture->leaves = true;
    on_owner(fixture, leave_job, &request);
    assert_int_equal(request.outcome, TRACER_TIMEOUT);
    assert_int_equal(fixture->finished, 1);
    assert_int_equal(child_status(child.pid).tracer_pid, 0);
    assert_int_equal(child_status(child.pid).state, 'D');
    fileio_write(vfork_pipe[1], "x", 1);
    free(request.buffer);
    end_in_vfork(&child);
}

_Noreturn static void exec_when_told(struct child_page *page)
{
    page->ready = 1;
    child_wait(&page->go, 1);
    execl("/bin/sleep", "sleep", "1000", NULL);
    _exit(98);
}

static bool has_name(pid_t pid, const char *name)
{
    struct procfs_stat stat;
    int fd = procfs_open_process(pid);
    int error = procfs_read_stat(fd, "stat", &stat);
    close(fd);
    return error == 0 && strcmp(stat.comm, name) == 0;
}

/* A descriptor of the memory from before an exec tells that the snapshot is of another program. */
static void test_memory_gone(void **state)
{
    struct fixture *fixture = *state;
    struct child child = child_start(exec_when_told);
    int proc_fd = procfs_open_process(child.pid);
    struct tracer_request request = request_of(child.pid, child.pid);
    int old_fd = openat(proc_fd, "mem", O_RDONLY | O_CLOEXEC);
    request.mem_fd = old_fd;
    on_owner(fixture, sample_job, &request);
    assert_int_equal(request.outcome, TRACER_CAPTURED);
    assert_false(request.memory_gone);
    child.page->go = 1;
    while (!has_name(child.pid, "sleep"))
        sched_yield();
    child_wait_state(child.pid, 'S');
    on_owner(fixture, sample_job, &request);
    assert_int_equal(request.outcome, TRACER_CAPTURED);
    assert_true(request.memory_gone);
    request.mem_fd = openat(proc_fd, "mem", O_RDONLY | O_CLOEXEC);
    on_owner(fixture, sample_job, &request);
    assert_false(request.memory_gone);
    close(request.mem_fd);
    close(old_fd);
    close(proc_fd);
    free(request.buffer);
    child_end(&child);
}

static void test_foreign_tracer(void **state)
{
    struct child child = child_start(spin);
    /* We are another thread than the owner, and so another tracer. */
    assert_int_equal(ptrace(PTRACE_SEIZE, child.pid, NULL, NULL), 0);
    assert_int_equal(start_error(*state, child.pid), -EPERM);
    assert_int_equal(child_status(child.pid).tracer_pid, getpid());
    child_wait_turns(&child);
    child_end(&child);
}

static void test_reap_child(void **state)
{
    (void)state;
    struct child child = child_start(exit_soon);
    struct wait_event event = {.status = 4711};
    assert_int_equal(tracer_reap_child(child.pid, &event), -EAGAIN);
    assert_int_equal(event.status, 4711);
    child.page->go = 1;
    assert_int_equal(reap_child(child.pid, &event), 0);
    assert_int_equal(event.kind, WAIT_EXIT);
    assert_int_equal(event.status, EXIT_STATUS);
    assert_int_equal(tracer_reap_child(child.pid, &event), -ECHILD);
    child_end(&child);
}

static void nothing_job(struct fixture *fixture, void *context)
{
    (void)context;
    tracer_collect(fixture->tracer);
    tracer_wait(fixture->tracer, -1, clock_now_ns() + NS_PER_SEC, true);
    tracer_release(fixture->tracer, NS_PER_SEC);
}

static void test_nothing(void **state)
{
    on_owner(*state, nothing_job, NULL);
    tracer_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing),
        TEST(test_running),
        TEST(test_second_thread),
        TEST(test_sleeping),
        TEST(test_stack_limits),
        TEST(test_guard_pages),
        TEST(test_signals_once),
        TEST(test_blocked_signal),
        TEST(test_stopped_stays_stopped),
        TEST(test_gone),
        TEST(test_ending),
        TEST(test_killed),
        TEST(test_batch),
        TEST(test_same_thread_twice),
        TEST(test_uninterruptible),
        TEST(test_release),
        TEST(test_release_gives_up),
        TEST(test_memory_gone),
        TEST(test_wait_is_woken),
        TEST(test_foreign_tracer),
        TEST(test_reap_child),
        TEST(test_held),
    };
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
