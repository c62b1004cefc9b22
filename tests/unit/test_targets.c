#include "child.h"

#include "common/clock.h"
#include "sampler/targets.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 60 };

_Noreturn static void *run_one(void *argument)
{
    struct child_page *page = argument;
    prctl(PR_SET_NAME, "one of many");
    page->tids[page->signals++] = (int)gettid();
    page->ready++;
    for (;;)
        pause();
}

/* Threads one after the other, so that each has its place in tids. */
_Noreturn static void have_threads(struct child_page *page)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, &small, run_one, page);
        child_wait(&page->ready, i + 1);
    }
    page->go = 1;
    for (;;)
        pause();
}

static struct child start_with_threads(void)
{
    struct child child = child_start(have_threads);
    child_wait(&child.page->go, 1);
    return child;
}

static void turn_on_signal(int signal)
{
    (void)signal;
}

_Noreturn static void sleep_on(struct child_page *page)
{
    signal(SIGUSR1, turn_on_signal);
    page->ready = 1;
    for (;;) {
        pause();
        page->turns++;
    }
}

_Noreturn static void spin(struct child_page *page)
{
    page->ready = 1;
    for (;;)
        page->turns++;
}

static struct process *add_process(struct targets *targets, pid_t pid, bool is_new)
{
    int fd = procfs_open_process(pid);
    assert_true(fd >= 0);
    struct process *process;
    assert_int_equal(targets_add_process(targets, pid, fd, is_new, &process), 0);
    return process;
}

static void test_processes(void **state)
{
    (void)state;
    struct child a = child_start(sleep_on);
    struct child b = child_start(sleep_on);
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    assert_null(targets_find_process(&targets, a.pid));
    struct process *process = add_process(&targets, a.pid, false);
    assert_ptr_equal(targets_find_process(&targets, a.pid), process);
    assert_int_equal(process->thread_count, 0);
    add_process(&targets, b.pid, false);
    int fd = procfs_open_process(a.pid);
    struct process *untouched = NULL;
    assert_int_equal(targets_add_process(&targets, a.pid, fd, false, &untouched), -EEXIST);
    assert_null(untouched);
    assert_int_equal(close(fd), 0); /* not consumed */
    assert_int_equal(targets.process_count, 2);
    assert_int_equal(targets_add_thread(&targets, process, a.pid, false, 0), 0);
    targets_remove_process(&targets, process);
    assert_null(targets_find_process(&targets, a.pid));
    assert_null(targets_find_thread(&targets, a.pid));
    assert_non_null(targets_find_process(&targets, b.pid));
    assert_int_equal(targets.process_count, 1);
    assert_int_equal(targets.processes_seen, 2);
    assert_int_equal(targets.threads_vanished, 1);
    assert_int_equal(targets.thread_count, 0);
    targets_deinit(&targets);
    targets_deinit(&targets);
    child_end(&a);
    child_end(&b);
}

static void test_threads(void **state)
{
    (void)state;
    struct child child = start_with_threads();
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    struct process *process = add_process(&targets, child.pid, false);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(targets_add_thread(&targets, process, child.page->tids[i], false, 0), 0);
    assert_int_equal(targets.thread_count, THREADS);
    assert_int_equal(targets.threads_seen, THREADS);
    assert_int_equal(process->thread_count, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        struct thread *thread = targets_find_thread(&targets, child.page->tids[i]);
        assert_non_null(thread);
        assert_int_equal(thread->tid, child.page->tids[i]);
        assert_ptr_equal(thread->process, process);
        assert_string_equal(thread->comm, "one of many");
        assert_int_equal(thread->shared->tid, thread->tid);
        assert_int_equal(thread->shared->pid, child.pid);
        struct procfs_stat stat;
        assert_int_equal(thread_read_stat(thread, &stat), 0);
        assert_string_equal(stat.comm, "one of many");
    }
    /* Taken out in another order; the others are still found. */
    for (size_t i = 0; i < THREADS; i++) {
        targets_remove_thread(&targets, targets_find_thread(&targets, child.page->tids[i * 7 % THREADS]));
        for (size_t k = 0; k < THREADS; k++) {
            bool gone = false;
            for (size_t j = 0; j <= i; j++)
                gone = gone || j * 7 % THREADS == k;
            assert_int_equal(targets_find_thread(&targets, child.page->tids[k]) == NULL, gone);
        }
    }
    assert_int_equal(targets.thread_count, 0);
    assert_int_equal(targets.threads_vanished, THREADS);
    assert_int_equal(targets.threads_seen, THREADS);
    assert_int_equal(process->thread_count, 0);
    targets_deinit(&targets);
    child_end(&child);
}

static void test_shared_outlives_thread(void **state)
{
    (void)state;
    struct child child = child_start(sleep_on);
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    struct process *process = add_process(&targets, child.pid, false);
    assert_int_equal(targets_add_thread(&targets, process, child.pid, false, 0), 0);
    struct thread_shared *shared = thread_shared_ref(targets_find_thread(&targets, child.pid)->shared);
    targets_deinit(&targets);
    assert_int_equal(shared->references, 1);
    assert_int_equal(shared->tid, child.pid);
    thread_shared_unref(shared);
    thread_shared_unref(NULL);
    child_end(&child);
}

static void test_not_its_thread(void **state)
{
    (void)state;
    struct child child = child_start(sleep_on);
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    struct process *process = add_process(&targets, child.pid, false);
    assert_int_equal(targets_add_thread(&targets, process, getpid(), false, 0), -ESRCH);
    assert_int_equal(targets_add_thread(&targets, process, 0x7fffffff, false, 0), -ESRCH);
    assert_int_equal(targets.thread_count, 0);
    assert_int_equal(targets.threads_seen, 0);
    /* The whole process is gone. */
    kill(child.pid, SIGKILL);
    waitpid(child.pid, NULL, 0);
    assert_int_equal(targets_add_thread(&targets, process, child.pid, false, 0), -ESRCH);
    targets_deinit(&targets);
    child_end(&child);
}

static bool has_schedstat(void)
{
    int fd = procfs_open_process(getpid());
    int schedstat_fd = openat(fd, "schedstat", O_RDONLY | O_CLOEXEC);
    struct procfs_schedstat read;
    bool has = schedstat_fd >= 0 && procfs_pread_schedstat(schedstat_fd, &read) == 0 && read.slices;
    if (schedstat_fd >= 0)
        close(schedstat_fd);
    close(fd);
    return has;
}

static void test_look(void **state)
{
    (void)state;
    struct child child = child_start(sleep_on);
    child_wait_state(child.pid, 'S');
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    struct process *process = add_process(&targets, child.pid, false);
    assert_int_equal(targets_add_thread(&targets, process, child.pid, false, 0), 0);
    struct thread *thread = targets_find_thread(&targets, child.pid);
    /* Where it was seen on a CPU, or never, equal counters prove nothing. */
    bool moved = false;
    assert_int_equal(thread_look(thread, clock_now_ns(), &moved), 0);
    assert_true(moved);
    thread->seen_off_cpu = true;
    if (has_schedstat()) {
        for (int i = 0; i < 10; i++) {
            assert_int_equal(thread_look(thread, clock_now_ns(), &moved), 0);
            assert_false(moved);
        }
        uint64_t before_ns = thread->cpu_ns;
        kill(child.pid, SIGUSR1);
        while (child.page->turns == 0)
            sched_yield();
        child_wait_state(child.pid, 'S');
        assert_int_equal(thread_look(thread, clock_now_ns(), &moved), 0);
        assert_true(moved);
        assert_true(thread->cpu_ns > before_ns);
        /* Nor where it has run since it was seen off the CPU. */
        assert_int_equal(thread_look(thread, clock_now_ns(), &moved), 0);
        assert_true(moved);
    }
    kill(child.pid, SIGKILL);
    waitpid(child.pid, NULL, 0);
    assert_int_equal(thread_look(thread, clock_now_ns(), &moved), -ESRCH);
    targets_deinit(&targets);
    child_end(&child);
}

static void test_cpu_time(void **state)
{
    (void)state;
    struct child child = child_start(spin);
    /* What the kernel has accounted to it lags by a tick of its own. */
    clockid_t clock;
    assert_int_equal(clock_getcpuclockid(child.pid, &clock), 0);
    while (clock_read_ns(clock) == 0)
        sched_yield();
    struct targets old;
    struct targets new;
    assert_int_equal(targets_init(&old), 0);
    assert_int_equal(targets_init(&new), 0);
    struct process *old_process = add_process(&old, child.pid, false);
    struct process *new_process = add_process(&new, child.pid, true);
    assert_int_equal(targets_add_thread(&old, old_process, child.pid, false, 0), 0);
    assert_int_equal(targets_add_thread(&new, new_process, child.pid, true, 0), 0);
    assert_int_equal(new_process->first_cpu_ns, 0);
    assert_true(old_process->first_cpu_ns > 0);
    /* 20 ms of its CPU time, however long they take here. */
    do {
        child_wait_turns(&child);
        process_read_cpu(old_process, clock_now_ns(), true);
    } while (old_process->last_cpu_ns - old_process->first_cpu_ns < 20 * NS_PER_MS);
    process_read_cpu(new_process, clock_now_ns(), true);
    assert_true(new_process->last_cpu_ns >= old_process->last_cpu_ns);
    struct thread *old_thread = targets_find_thread(&old, child.pid);
    struct thread *new_thread = targets_find_thread(&new, child.pid);
    bool moved;
    assert_int_equal(thread_look(new_thread, clock_now_ns(), &moved), 0);
    assert_int_equal(thread_look(old_thread, clock_now_ns(), &moved), 0);
    if (has_schedstat()) {
        assert_true(moved);
        assert_true(old_thread->cpu_ns > 0);
        assert_true(new_thread->cpu_ns >= 20 * NS_PER_MS);
        uint64_t thread_ns = old_thread->cpu_ns;
        targets_remove_thread(&old, old_thread);
        assert_int_equal(old_process->known_cpu_ns, thread_ns);
    }
    /* The clock does not go back when the process is gone. */
    uint64_t before_ns = new_process->last_cpu_ns;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, NULL, 0);
    process_read_cpu(new_process, clock_now_ns(), true);
    assert_true(new_process->last_cpu_ns >= before_ns);
    targets_deinit(&old);
    targets_deinit(&new);
    child_end(&child);
}

/* So few descriptors left that threads share them: each is added and looked at all the same. */
static void test_out_of_descriptors(void **state)
{
    (void)state;
    struct child child = start_with_threads();
    for (rlim_t spare = 1; spare <= 6; spare++) {
        struct targets targets;
        assert_int_equal(targets_init(&targets), 0);
        struct process *process = add_process(&targets, child.pid, false);
        struct rlimit before;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        struct rlimit tight = before;
        tight.rlim_cur = (rlim_t)process->proc_fd + 1 + spare;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        size_t added = 0;
        size_t seen = 0;
        for (size_t i = 0; i < THREADS; i++)
            added += targets_add_thread(&targets, process, child.page->tids[i], false, 0) == 0;
        for (size_t i = 0; i < process->thread_count; i++) {
            bool moved;
            seen += thread_look(process->threads[i], clock_now_ns(), &moved) == 0;
        }
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        targets_deinit(&targets);
        if (added != THREADS || seen != THREADS)
            fail_msg("%d descriptors: %zu added, %zu seen", (int)spare, added, seen);
    }
    child_end(&child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_shared_outlives_thread),
        cmocka_unit_test(test_not_its_thread),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_cpu_time),
        cmocka_unit_test(test_out_of_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
