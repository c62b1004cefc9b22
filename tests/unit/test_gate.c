/* The gate against a process whose threads run when the test says so, and at no other time; it is asked when they have
 * left the CPU. */
#include "child.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/targets.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>

enum { SLEEPERS = 40, TRIES = 2000 };

static struct child_page *shared;

/*
 * Runs until the kernel has accounted some of it: where a host takes CPUs away, what a thread has run may all be booked
 * as stolen.
 */
static void turn(int signal)
{
    (void)signal;
    for (uint64_t before_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
         clock_read_ns(CLOCK_THREAD_CPUTIME_ID) == before_ns;)
        ;
    shared->turns++;
}

/* Ends when its number is in `go`. */
static void *sleep_until_called(void *argument)
{
    struct child_page *page = argument;
    int number = page->signals++;
    page->tids[number] = (int)gettid();
    page->ready++;
    while (page->go != number + 1)
        pause();
    page->ended++;
    return NULL;
}

static void *be_busy(void *argument)
{
    struct child_page *page = argument;
    while (page->wrong_signals == 1) /* the flag that this test has for it */
        ;
    return NULL;
}

static void start_thread(void *(*body)(void *argument), struct child_page *page)
{
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_create(&thread, &small, body, page);
    pthread_attr_destroy(&small);
}

/* The main thread starts a busy one at each SIGUSR2, and one more sleeper at each SIGHUP. */
_Noreturn static void have_threads(struct child_page *page)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    shared = page;
    signal(SIGUSR1, turn);
    for (int i = 0; i < SLEEPERS; i++) {
        start_thread(sleep_until_called, page);
        child_wait(&page->ready, i + 1);
    }
    page->go = -1;
    for (;;) {
        int signal;
        sigwait(&set, &signal);
        start_thread(signal == SIGUSR2 ? be_busy : sleep_until_called, page);
    }
}

struct scene {
    struct child child;
    struct targets targets;
    struct process *process;
};

static int add_thread(void *context, pid_t tid)
{
    struct scene *scene = context;
    return targets_add_thread(&scene->targets, scene->process, tid, false, 0);
}

/* It sleeps in a system call, or has ended. Who says where it sleeps is off the CPU; "S" says only that it is about to
 * be. */
static void wait_off_cpu(pid_t pid, pid_t tid)
{
    char path[64];
    char text[256];
    struct procfs_syscall call;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    for (;;) {
        ssize_t size = fileio_read_text(AT_FDCWD, path, text, sizeof(text));
        if (size < 0 || (procfs_parse_syscall(text, (size_t)size, &call) && call.number >= 0))
            return;
        sched_yield();
    }
}

static void wait_asleep(struct scene *scene)
{
    for (size_t i = 0; i < scene->process->thread_count; i++)
        wait_off_cpu(scene->child.pid, scene->process->threads[i]->tid);
}

static void begin(struct scene *scene)
{
    scene->child = child_start(have_threads);
    while (scene->child.page->go != -1)
        sched_yield();
    assert_int_equal(targets_init(&scene->targets), 0);
    if (!scene->targets.has_schedstat)
        skip();
    int proc_fd = procfs_open_process(scene->child.pid);
    assert_int_equal(targets_add_process(&scene->targets, scene->child.pid, proc_fd, false, &scene->process), 0);
    assert_int_equal(procfs_each_thread(proc_fd, add_thread, scene), 0);
    assert_int_equal(scene->process->thread_count, SLEEPERS + 1);
    wait_asleep(scene);
}

static void end(struct scene *scene)
{
    targets_deinit(&scene->targets);
    kill(scene->child.pid, SIGKILL);
    waitpid(scene->child.pid, NULL, 0);
    child_end(&scene->child);
}

/* A tick as the sampler has it in cpu mode. Returns how many threads that were taken for cold had run. */
static size_t look(struct scene *scene, bool all)
{
    struct process *process = scene->process;
    size_t ran = 0;
    size_t ended = 0;
    for (size_t i = 0; i < (all ? process->thread_count : process->hot_count);) {
        struct thread *thread = process->threads[i];
        struct procfs_stat stat;
        bool moved = true;
        if (thread_look(thread, clock_now_ns(), &moved) == -ESRCH) {
            targets_remove_thread(&scene->targets, thread);
            ended++;
            continue;
        }
        ran += thread->is_cold && moved;
        thread->is_settled = !moved;
        if (moved && thread_read_stat(thread, &stat) == 0)
            thread->seen_off_cpu = stat.state != 'R';
        i++;
    }
    process_sort_threads(process, all);
    if (all)
        gate_learn(process, ran > 0, ended > 0, NULL, 0);
    return ran;
}

/* Looks as often as it takes. */
static void look_until_shut(struct scene *scene)
{
    for (int i = 0; i < TRIES; i++) {
        bool is_shut = gate_is_shut(scene->process, NULL, 0);
        look(scene, !is_shut);
        if (is_shut)
            return;
    }
    fail();
}

static void call_thread(struct scene *scene, pid_t tid)
{
    unsigned long before = scene->child.page->turns;
    assert_int_equal(syscall(SYS_tgkill, scene->child.pid, tid, SIGUSR1), 0);
    while (scene->child.page->turns == before)
        sched_yield();
}

static void test_one_runs(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    look_until_shut(&scene);
    assert_int_equal(scene.process->hot_count, 0);
    for (int i = 0; i < SLEEPERS; i++) {
        assert_true(gate_is_shut(scene.process, NULL, 0)); /* nobody runs, so nothing moves */
        look(&scene, false);
        call_thread(&scene, scene.child.page->tids[i]);
        wait_asleep(&scene);
        assert_false(gate_is_shut(scene.process, NULL, 0));
        assert_int_equal(look(&scene, true), 1);
        assert_int_equal(scene.process->hot_count, 1);
        assert_int_equal(scene.process->threads[0]->tid, scene.child.page->tids[i]);
        assert_true(gate_is_shut(scene.process, NULL, 0)); /* what it is when one is hot is known */
        look(&scene, false);
        assert_int_equal(scene.process->hot_count, 0);
    }
    end(&scene);
}

static void start_another(struct scene *scene, int signal)
{
    size_t count = scene->process->thread_count;
    kill(scene->child.pid, signal);
    while (scene->process->thread_count == count)
        assert_int_equal(procfs_each_thread(scene->process->proc_fd, add_thread, scene), 0);
    for (size_t i = 0; i < scene->process->thread_count; i++)
        assert_true(i < scene->process->hot_count ? !scene->process->threads[i]->is_cold
                                                  : scene->process->threads[i]->is_cold);
}

/* Busy threads are hot, and do not hide that another one has run. */
static void test_busy_threads(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    scene.child.page->wrong_signals = 1;
    start_another(&scene, SIGUSR2);
    start_another(&scene, SIGUSR2);
    for (int i = 0; i < SLEEPERS; i++) {
        look_until_shut(&scene);
        assert_true(scene.process->hot_count >= 2);
        call_thread(&scene, scene.child.page->tids[i]);
        wait_off_cpu(scene.child.pid, scene.child.page->tids[i]);
        for (int j = 0; j < 10; j++)
            assert_false(gate_is_shut(scene.process, NULL, 0));
        assert_true(look(&scene, true) >= 1);
    }
    end(&scene);
}

static void test_threads_come_and_go(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    for (int i = 0; i < 10; i++) {
        look_until_shut(&scene);
        kill(scene.child.pid, SIGHUP);
        child_wait(&scene.child.page->ready, SLEEPERS + i + 1);
        wait_off_cpu(scene.child.pid, scene.child.page->tids[SLEEPERS + i]);
        assert_false(gate_is_shut(scene.process, NULL, 0)); /* a thread that nobody knows yet */
        start_another(&scene, SIGUSR1);
        wait_asleep(&scene);
        look_until_shut(&scene);
        scene.child.page->go = i + 1;
        assert_int_equal(syscall(SYS_tgkill, scene.child.pid, scene.child.page->tids[i], SIGUSR1), 0);
        child_wait(&scene.child.page->ended, i + 1);
        wait_off_cpu(scene.child.pid, scene.child.page->tids[i]);
        assert_false(gate_is_shut(scene.process, NULL, 0));
        look(&scene, true);
    }
    end(&scene);
}

/* Threads whose time nobody has seen: what is known is learnt anew. */
static void test_unseen_time(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    look_until_shut(&scene);
    kill(scene.child.pid, SIGHUP);
    child_wait(&scene.child.page->ready, SLEEPERS + 1);
    wait_off_cpu(scene.child.pid, scene.child.page->tids[SLEEPERS]);
    assert_false(gate_is_shut(scene.process, NULL, 0));
    look(&scene, true);
    wait_asleep(&scene);
    look_until_shut(&scene);
    assert_true(gate_is_shut(scene.process, NULL, 0));
    end(&scene);
}

static void test_process_is_gone(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    look_until_shut(&scene);
    kill(scene.child.pid, SIGKILL);
    waitpid(scene.child.pid, NULL, 0);
    assert_false(gate_is_shut(scene.process, NULL, 0));
    look(&scene, true);
    assert_int_equal(scene.process->thread_count, 0);
    targets_deinit(&scene.targets);
    child_end(&scene.child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_runs),
        cmocka_unit_test(test_busy_threads),
        cmocka_unit_test(test_threads_come_and_go),
        cmocka_unit_test(test_unseen_time),
        cmocka_unit_test(test_process_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
