#include "child.h"

#include "common/clock.h"
#include "sampler/watch.h"

#include <fcntl.h>
#include <pthread.h>

enum { LIMIT_SECONDS = 60 };

struct fixture {
    struct watch watch;
    struct targets targets;
};

static void begin(struct fixture *fixture, pid_t pid, bool follow_children)
{
    watch_init(&fixture->watch, NULL, follow_children, 1);
    assert_int_equal(targets_init(&fixture->targets), 0);
    int fd = procfs_open_process(pid);
    assert_true(fd >= 0);
    assert_int_equal(watch_add(&fixture->watch, &fixture->targets, pid, fd, false), 0);
}

static void end(struct fixture *fixture)
{
    watch_deinit(&fixture->watch);
    targets_deinit(&fixture->targets);
}

/* Polls as the capture does; a thread that the counter did not tell of is found by the next repair, within a second. */
static void poll_until_thread(struct fixture *fixture, pid_t tid)
{
    uint64_t limit_ns = clock_now_ns() + LIMIT_SECONDS * NS_PER_SEC;
    while (!targets_find_thread(&fixture->targets, tid)) {
        assert_true(clock_now_ns() < limit_ns);
        watch_poll(&fixture->watch, &fixture->targets, clock_now_ns());
        sched_yield();
    }
}

static void poll_until_process(struct fixture *fixture, pid_t pid)
{
    poll_until_thread(fixture, pid);
    assert_non_null(targets_find_process(&fixture->targets, pid));
}

/* `go` is how many are wanted, `ended` how many of them may leave, the oldest first. */
static void *live(void *argument)
{
    struct child_page *page = argument;
    int number = page->signals++;
    page->tids[number] = (int)gettid();
    page->ready++;
    while (page->ended <= number)
        sched_yield();
    page->tids[number] = 0;
    return NULL;
}

_Noreturn static void make_threads(struct child_page *page)
{
    page->ready = 1;
    for (int made = 0;; made++) {
        child_wait(&page->go, made + 1);
        pthread_t thread;
        pthread_create(&thread, NULL, live, page);
        pthread_detach(thread);
    }
}

_Noreturn static void make_processes(struct child_page *page)
{
    page->ready = 1;
    for (int made = 0;; made++) {
        child_wait(&page->go, made + 1);
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            page->tids[made] = (int)getpid();
            page->ready++;
            for (;;)
                pause();
        }
    }
}

_Noreturn static void *wait_for_end(void *argument)
{
    (void)argument;
    for (;;)
        pause();
}

/* A grandchild with a second thread. */
_Noreturn static void make_family(struct child_page *page)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        page->tids[0] = (int)getpid();
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            page->tids[1] = (int)getpid();
            pthread_t thread;
            pthread_create(&thread, NULL, wait_for_end, NULL);
            page->ready = 1;
        }
    }
    for (;;)
        pause();
}

static void test_begins_with_all(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    child.page->go = 20;
    child_wait(&child.page->ready, 21);
    struct fixture fixture;
    begin(&fixture, child.pid, false);
    assert_int_equal(fixture.targets.thread_count, 21);
    for (size_t i = 0; i < 20; i++)
        assert_non_null(targets_find_thread(&fixture.targets, child.page->tids[i]));
    /* The same again is no error, and the descriptor is ours no more. */
    int fd = procfs_open_process(child.pid);
    assert_int_equal(watch_add(&fixture.watch, &fixture.targets, child.pid, fd, false), 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(fixture.targets.process_count, 1);
    assert_int_equal(fixture.targets.thread_count, 21);
    end(&fixture);
    child_end(&child);
}

static void test_threads_come_and_go(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    struct fixture fixture;
    begin(&fixture, child.pid, false);
    assert_int_equal(fixture.targets.thread_count, 1);
    for (int i = 0; i < 50; i++) {
        child.page->go = i + 1;
        child_wait(&child.page->ready, i + 2);
        pid_t tid = child.page->tids[i];
        poll_until_thread(&fixture, tid);
        struct thread *thread = targets_find_thread(&fixture.targets, tid);
        assert_int_equal(thread->process->pid, child.pid);
        assert_int_equal(thread->cpu_ns, thread->last.run_ns); /* began during the run: all its time counts */
        if (i % 2) {
            child.page->ended = i + 1;
            bool moved;
            while (thread_look(thread, clock_now_ns(), &moved) == 0)
                sched_yield();
            targets_remove_thread(&fixture.targets, thread);
        }
    }
    assert_int_equal(fixture.targets.threads_seen, 51);
    assert_int_equal(fixture.targets.threads_vanished, 25);
    end(&fixture);
    child_end(&child);
}

/* Many at once, between two looks. */
static void test_burst(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    struct fixture fixture;
    begin(&fixture, child.pid, false);
    child.page->go = 60;
    child_wait(&child.page->ready, 61);
    for (size_t i = 0; i < 60; i++)
        poll_until_thread(&fixture, child.page->tids[i]);
    assert_int_equal(fixture.targets.threads_seen, 61);
    end(&fixture);
    child_end(&child);
}

/* Without a counter that can be trusted each poll is a full scan. */
static void test_no_counter(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    struct fixture fixture;
    begin(&fixture, child.pid, false);
    if (fixture.watch.loadavg_fd >= 0)
        close(fixture.watch.loadavg_fd);
    fixture.watch.loadavg_fd = -1;
    for (int i = 0; i < 10; i++) {
        child.page->go = i + 1;
        child_wait(&child.page->ready, i + 2);
        watch_poll(&fixture.watch, &fixture.targets, clock_now_ns());
        assert_non_null(targets_find_thread(&fixture.targets, child.page->tids[i]));
    }
    end(&fixture);
    child_end(&child);
}

static void test_children_followed(void **state)
{
    (void)state;
    struct child child = child_start(make_processes);
    struct fixture fixture;
    begin(&fixture, child.pid, true);
    for (int i = 0; i < 20; i++) {
        child.page->go = i + 1;
        child_wait(&child.page->ready, i + 2);
        poll_until_process(&fixture, child.page->tids[i]);
    }
    assert_int_equal(fixture.targets.process_count, 21);
    assert_int_equal(fixture.targets.processes_seen, 21);
    end(&fixture);
    child_end(&child);
}

static void test_children_not_followed(void **state)
{
    (void)state;
    struct child child = child_start(make_processes);
    struct child other = child_start(make_threads);
    struct fixture fixture;
    begin(&fixture, child.pid, false);
    child.page->go = 3;
    child_wait(&child.page->ready, 4);
    other.page->go = 3;
    child_wait(&other.page->ready, 4);
    watch_poll(&fixture.watch, &fixture.targets, clock_now_ns());
    watch_poll(&fixture.watch, &fixture.targets, clock_now_ns() + 5 * NS_PER_SEC); /* a repair too */
    assert_int_equal(fixture.targets.process_count, 1);
    assert_int_equal(fixture.targets.thread_count, 1);
    end(&fixture);
    child_end(&other);
    child_end(&child);
}

/* ---- records, made up ---- */

struct made {
    struct sideband_record records[8];
    size_t count;
};

static void make(struct made *made, enum sideband_kind kind, pid_t pid, pid_t tid, pid_t parent_pid)
{
    made->records[made->count] = (struct sideband_record){
        .kind = kind, .pid = pid, .tid = tid, .parent_pid = parent_pid, .time_ns = made->count + 1};
    made->count++;
}

static void obey(struct fixture *fixture, struct made *made, bool incomplete)
{
    struct sideband_batch batch = {.records = made->records, .count = made->count, .incomplete = incomplete};
    watch_obey(&fixture->watch, &fixture->targets, &batch);
    made->count = 0;
}

/* Added are those that records name, and no others. */
static void test_told_threads(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    struct child other = child_start(make_threads);
    struct fixture fixture;
    struct made made = {.count = 0};
    begin(&fixture, child.pid, true);
    child.page->go = 5;
    child_wait(&child.page->ready, 6);
    other.page->go = 1;
    child_wait(&other.page->ready, 2);
    make(&made, SIDEBAND_FORK, child.pid, child.page->tids[2], child.pid);
    make(&made, SIDEBAND_FORK, other.pid, other.page->tids[0], other.pid);
    make(&made, SIDEBAND_FORK, child.pid, other.page->tids[0], child.pid); /* another's: not below this process */
    make(&made, SIDEBAND_FORK, child.pid, child.page->tids[3], child.pid);
    make(&made, SIDEBAND_EXIT, child.pid, child.page->tids[3], child.pid); /* has ended: not even looked for */
    make(&made, SIDEBAND_FORK, 0, 0, 0);                                   /* of another pid namespace */
    make(&made, SIDEBAND_FORK, child.pid, child.page->tids[2], child.pid); /* twice */
    obey(&fixture, &made, false);
    assert_int_equal(fixture.targets.process_count, 1);
    assert_int_equal(fixture.targets.thread_count, 2);
    assert_non_null(targets_find_thread(&fixture.targets, child.page->tids[2]));
    assert_int_equal(fixture.watch.add_error, 0);
    end(&fixture);
    child_end(&other);
    child_end(&child);
}

/* A child whose parent ended at once is ours as well; records of several CPUs come in any order. */
static void test_told_children(void **state)
{
    (void)state;
    struct child child = child_start(make_processes);
    struct fixture fixture;
    struct made made = {.count = 0};
    child.page->go = 3;
    child_wait(&child.page->ready, 4);
    child_wait(&child.page->tids[0], 1);
    child_wait(&child.page->tids[1], 1);
    child_wait(&child.page->tids[2], 1);
    struct child root = child_start(make_threads);
    begin(&fixture, root.pid, true);
    enum { GONE = 4194305 }; /* above any pid */
    make(&made, SIDEBAND_FORK, child.page->tids[1], child.page->tids[1], GONE);
    make(&made, SIDEBAND_FORK, GONE, GONE, root.pid);
    make(&made, SIDEBAND_FORK, child.page->tids[2], child.page->tids[2], child.pid); /* of a stranger */
    made.records[0].time_ns = 10;
    obey(&fixture, &made, false);
    assert_int_equal(fixture.targets.process_count, 2);
    struct process *found = targets_find_process(&fixture.targets, child.page->tids[1]);
    assert_non_null(found);
    assert_true(found->is_fork);
    /* Kin are those of one batch. Of a number that may be another's by now its own parent is asked. */
    make(&made, SIDEBAND_FORK, child.page->tids[0], child.page->tids[0], GONE);
    obey(&fixture, &made, false);
    make(&made, SIDEBAND_FORK, child.page->tids[0], child.page->tids[0], root.pid);
    make(&made, SIDEBAND_EXIT, child.page->tids[0], child.page->tids[0], root.pid);
    obey(&fixture, &made, false);
    make(&made, SIDEBAND_FORK, child.page->tids[0], child.page->tids[0], root.pid);
    obey(&fixture, &made, true);
    assert_int_equal(fixture.targets.process_count, 2);
    end(&fixture);
    begin(&fixture, root.pid, false);
    make(&made, SIDEBAND_FORK, child.page->tids[0], child.page->tids[0], root.pid);
    obey(&fixture, &made, false);
    assert_int_equal(fixture.targets.process_count, 1);
    end(&fixture);
    child_end(&root);
    child_end(&child);
}

static void test_told_mappings(void **state)
{
    (void)state;
    struct child child = child_start(make_threads);
    struct fixture fixture;
    struct made made = {.count = 0};
    begin(&fixture, child.pid, false);
    struct process *process = targets_find_process(&fixture.targets, child.pid);
    make(&made, SIDEBAND_MAP, getpid(), getpid(), 0);
    obey(&fixture, &made, false);
    assert_false(process->maps_moved);
    make(&made, SIDEBAND_MAP, child.pid, child.pid, 0);
    obey(&fixture, &made, false);
    assert_true(process->maps_moved);
    end(&fixture);
    child_end(&child);
}

/* ---- records of the kernel ---- */

/* New threads are known at the next look. */
static void expect_told(enum events events, bool attached)
{
    struct child child = child_start(make_threads);
    struct fixture fixture;
    struct sideband *sideband = watch_open_events(events, false, attached ? 0 : child.pid);
    if (!sideband) {
        child_end(&child);
        skip();
    }
    watch_init(&fixture.watch, sideband, false, 1);
    assert_int_equal(targets_init(&fixture.targets), 0);
    child.page->go = 10;
    child_wait(&child.page->ready, 11);
    assert_int_equal(watch_add(&fixture.watch, &fixture.targets, child.pid, procfs_open_process(child.pid), false), 0);
    watch_poll(&fixture.watch, &fixture.targets, NS_PER_SEC * 1000); /* the first scan */
    bool told = watch_counters(&fixture.watch).source != WATCH_PROC;
    if (told) /* else: a kernel that allows it in general, and not here */
        assert_true(targets_find_process(&fixture.targets, child.pid)->maps_told);
    for (int i = 10; i < 50; i += 4) {
        child.page->go = i + 4;
        child_wait(&child.page->ready, i + 5);
        watch_poll(&fixture.watch, &fixture.targets, NS_PER_SEC * 1000); /* no time goes by: no scan */
        for (int j = i; told && j < i + 4; j++)
            assert_non_null(targets_find_thread(&fixture.targets, child.page->tids[j]));
    }
    end(&fixture);
    child_end(&child);
    if (!told)
        skip();
}

static void test_told_by_machine(void **state)
{
    (void)state;
    expect_told(EVENTS_AUTO, true);
}

static void test_told_by_threads(void **state)
{
    (void)state;
    expect_told(EVENTS_PERF_THREADS, false);
}

static void test_told_by_threads_attached(void **state)
{
    (void)state;
    expect_told(EVENTS_PERF_THREADS, true);
}

static void test_events_off(void **state)
{
    (void)state;
    assert_null(watch_open_events(EVENTS_PROC, true, 0));
}

static bool kernel_lists_children(void)
{
    return access("/proc/thread-self/children", F_OK) == 0;
}

static void test_descendants_that_exist(void **state)
{
    (void)state;
    if (!kernel_lists_children())
        skip();
    struct child child = child_start(make_family);
    struct fixture fixture;
    begin(&fixture, child.pid, true);
    assert_int_equal(fixture.targets.process_count, 3);
    assert_int_equal(fixture.targets.thread_count, 4);
    assert_non_null(targets_find_process(&fixture.targets, child.page->tids[0]));
    assert_int_equal(targets_find_process(&fixture.targets, child.page->tids[1])->thread_count, 2);
    end(&fixture);
    begin(&fixture, child.pid, false);
    assert_int_equal(fixture.targets.process_count, 1);
    end(&fixture);
    child_end(&child);
}

static void test_dead_children_are_left_out(void **state)
{
    (void)state;
    if (!kernel_lists_children())
        skip();
    struct child child = child_start(make_processes);
    child.page->go = 2;
    child_wait(&child.page->ready, 3);
    child_wait(&child.page->tids[0], 1);
    child_wait(&child.page->tids[1], 1);
    kill(child.page->tids[0], SIGKILL);
    child_wait_state(child.page->tids[0], 'Z'); /* its parent does not reap */
    struct fixture fixture;
    begin(&fixture, child.pid, true);
    assert_int_equal(fixture.targets.process_count, 2);
    assert_null(targets_find_process(&fixture.targets, child.page->tids[0]));
    assert_non_null(targets_find_process(&fixture.targets, child.page->tids[1]));
    end(&fixture);
    child_end(&child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_with_all),
        cmocka_unit_test(test_threads_come_and_go),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_no_counter),
        cmocka_unit_test(test_children_followed),
        cmocka_unit_test(test_children_not_followed),
        cmocka_unit_test(test_told_threads),
        cmocka_unit_test(test_told_children),
        cmocka_unit_test(test_told_mappings),
        cmocka_unit_test(test_told_by_machine),
        cmocka_unit_test(test_told_by_threads),
        cmocka_unit_test(test_told_by_threads_attached),
        cmocka_unit_test(test_events_off),
        cmocka_unit_test(test_descendants_that_exist),
        cmocka_unit_test(test_dead_children_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
