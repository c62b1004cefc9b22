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
        cmocka_unit_test(test_descendants_that_exist),
        cmocka_unit_test(test_dead_children_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
