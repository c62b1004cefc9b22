#include "cmocka_all.h"

#include "guarded.h"
#include "sampler/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fields 4 and up of a real line; 26 to 28 are 94000 94900 7ffc, and 9 is the flags. */
#define REST                                                                                                           \
    "7 123 123 34816 123 4194304 121 0 0 0 1 2 0 0 20 0 1 0 1000 8000000 500 18446744073709551615 94000 94900 "        \
    "140720 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 95000 95100 99000 140730 140740 140750 140760 0\n"

static bool parse_stat(const char *text, size_t size, struct procfs_stat *ret)
{
    struct guarded bytes = guarded_new(text, size);
    bool good = procfs_parse_stat((const char *)bytes.bytes, size, ret);
    guarded_free(&bytes);
    return good;
}

static void test_stat_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *comm;
        char state;
    } cases[] = {
        {"42 (bash) S " REST, "bash", 'S'},
        {"42 (a) R (b) D " REST, "a) R (b", 'D'},
        {"42 () R " REST, "", 'R'},
        {"42 ()) R " REST, ")", 'R'},
        {"42 (() R " REST, "(", 'R'},
        {"42 (a b  c) T " REST, "a b  c", 'T'},
        {"42 (new\nline) t " REST, "new\nline", 't'},
        {"42 (1 (x) S 1 2 3) Z " REST, "1 (x) S 1 2 3", 'Z'},
        {"42 (\xff\xfe) X " REST, "\xff\xfe", 'X'},
        {"42 (kworker/u17:3-events_unbound) I " REST, "kworker/u17:3-events_unbound", 'I'},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct procfs_stat stat;
        assert_true(parse_stat(cases[i].text, strlen(cases[i].text), &stat));
        assert_string_equal(stat.comm, cases[i].comm);
        assert_int_equal(stat.state, cases[i].state);
        assert_int_equal(stat.ppid, 7);
        assert_int_equal(stat.flags, 4194304);
        assert_int_equal(stat.processor, 1);
    }
}

static void test_stat_long_name(void **state)
{
    (void)state;
    char text[1024];
    for (int length = 60; length < 70; length++) {
        int size = snprintf(text, sizeof(text), "1 (%0*d) S %s", length, 0, REST);
        struct procfs_stat stat;
        assert_true(parse_stat(text, (size_t)size, &stat));
        assert_int_equal(strlen(stat.comm), length < PROCFS_COMM_BYTES ? length : PROCFS_COMM_BYTES - 1);
    }
}

static void test_stat_image(void **state)
{
    (void)state;
    static const char *const others[] = {
        "42 (bash) S 7 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94001 94900 140720 0\n",
        "42 (bash) S 7 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94000 94901 140720 0\n",
        "42 (bash) S 7 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94000 94900 140721 0\n",
        "42 (bash) S 7 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 0 0 0 0\n",
    };
    /* All else may change, the name too: the image is the same. */
    static const char same[] = "42 (b) R 1 -1 5 6 -1 9 9 9 9 9 9 9 9 9 9 9 9 9 9999 9999 999 18 94000 94900 140720 9\n";
    struct procfs_stat first;
    struct procfs_stat second;
    assert_true(parse_stat("42 (bash) S " REST, strlen("42 (bash) S " REST), &first));
    assert_true(parse_stat(same, sizeof(same) - 1, &second));
    assert_true(first.image_hash == second.image_hash);
    assert_int_equal(second.processor, -1); /* not there */
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_true(parse_stat(others[i], strlen(others[i]), &second));
        assert_true(first.image_hash != second.image_hash);
    }
}

static void test_stat_truncated(void **state)
{
    (void)state;
    static const char text[] = "42 (a) R (b) S " REST;
    /* Everything up to field 28 has to be there. */
    size_t needed = (size_t)(strstr(text, "140720") - text);
    for (size_t size = 0; size < sizeof(text); size++) {
        struct procfs_stat stat = {.ppid = 4711};
        bool good = parse_stat(text, size, &stat);
        assert_int_equal(good, size > needed);
        if (!good)
            assert_int_equal(stat.ppid, 4711);
    }
}

static void test_stat_garbage(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "(",
        ")",
        "()",
        "()(",
        ")(",
        "1 2 3",
        "42 (x",
        "42 x) S " REST,
        "42 (x)",
        "42 (x) ",
        "42 (x) S",
        "42 (x) S ",
        "42 (x) S x 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94001 94900 140720 0\n",
        "42 (x) S 99999999999 1 1 1 1 0 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94001 94900 140720 0\n",
        "42 (x) S 1 1 1 1 1 -1 1 0 0 0 1 2 0 0 20 0 1 0 1000 8000 500 1844 94001 94900 140720 0\n",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct procfs_stat stat;
        assert_false(parse_stat(cases[i], strlen(cases[i]), &stat));
    }
}

static void test_schedstat(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        uint64_t run_ns, wait_ns, slices;
    } cases[] = {
        {"12345 678 9\n", true, 12345, 678, 9},
        {"12345 678 9", true, 12345, 678, 9},
        {"0 0 0\n", true, 0, 0, 0},
        {"18446744073709551615 18446744073709551615 1\n", true, UINT64_MAX, UINT64_MAX, 1},
        {"18446744073709551616 1 1\n", false, 0, 0, 0},
        {"12345 678", false, 0, 0, 0},
        {"12345 678 ", false, 0, 0, 0},
        {"12345", false, 0, 0, 0},
        {"12345\n678 9", false, 0, 0, 0},
        {" 1 2 3", false, 0, 0, 0},
        {"a b c", false, 0, 0, 0},
        {"", false, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded bytes = guarded_new(cases[i].text, strlen(cases[i].text));
        struct procfs_schedstat read = {0};
        assert_int_equal(procfs_parse_schedstat((const char *)bytes.bytes, strlen(cases[i].text), &read),
                         cases[i].good);
        assert_true(read.run_ns == cases[i].run_ns && read.wait_ns == cases[i].wait_ns);
        assert_true(read.slices == cases[i].slices);
        guarded_free(&bytes);
    }
}

static void test_syscall(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t number;
        uint64_t last_argument, sp, pc;
    } cases[] = {
        {"232 0x5 0x7ffc12 0x1 0xffffffff 0x0 0x8 0x7ffc0010 0x7f1234567\n", true, 232, 8, 0x7ffc0010, 0x7f1234567},
        {"0 0x0 0x0 0x0 0x0 0x0 0xffffffffffffffff 0x1 0x2", true, 0, UINT64_MAX, 1, 2},
        {"-1 0x7ffc0010 0x401000\n", true, -1, 0, 0x7ffc0010, 0x401000},
        {"running\n", false, 0, 0, 0, 0},
        {"232 0x5 0x7ffc12 0x1 0xffffffff 0x0 0x8 0x7ffc0010\n", false, 0, 0, 0, 0},
        {"232 0x5 0x7ffc12 0x1 0xffffffff 0x0 0x8 0x7ffc0010 0x", false, 0, 0, 0, 0},
        {"232 5 0x7ffc12 0x1 0xffffffff 0x0 0x8 0x7ffc0010 0x1", false, 0, 0, 0, 0},
        {"-1 0x7ffc0010", false, 0, 0, 0, 0},
        {"-2 0x7ffc0010 0x401000", false, 0, 0, 0, 0},
        {"-1", false, 0, 0, 0, 0},
        {"-", false, 0, 0, 0, 0},
        {"", false, 0, 0, 0, 0},
        {"4294967296 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2", false, 0, 0, 0, 0},
        {"1 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x10000000000000000", false, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded bytes = guarded_new(cases[i].text, strlen(cases[i].text));
        struct procfs_syscall read = {0};
        assert_int_equal(procfs_parse_syscall((const char *)bytes.bytes, strlen(cases[i].text), &read), cases[i].good);
        assert_true(read.number == cases[i].number && read.arguments[5] == cases[i].last_argument);
        assert_true(read.sp_avma == cases[i].sp && read.pc_avma == cases[i].pc);
        guarded_free(&bytes);
    }
}

static bool parse_status(const char *text, struct procfs_status *ret)
{
    struct guarded bytes = guarded_new(text, strlen(text));
    bool good = procfs_parse_status((const char *)bytes.bytes, strlen(text), ret);
    guarded_free(&bytes);
    return good;
}

static void test_status(void **state)
{
    (void)state;
    struct procfs_status status;
    assert_true(parse_status("Name:\tTgid:\t1\\nUid:\t9\n"
                             "Umask:\t0022\n"
                             "State:\tS (sleeping)\n"
                             "Tgid:\t1234\n"
                             "Ngid:\t0\n"
                             "Pid:\t1235\n"
                             "PPid:\t77\n"
                             "TracerPid:\t88\n"
                             "Uid:\t1000\t1001\t1002\t1003\n"
                             "Gid:\t100\t101\t102\t103\n"
                             "FDSize:\t256\n"
                             "Groups:\t1 2 3 \n"
                             "NStgid:\t1234\t50\t3\n"
                             "NSpid:\t1235\t51\t4\n"
                             "Threads:\t2",
                             &status));
    assert_int_equal(status.tgid, 1234);
    assert_int_equal(status.ppid, 77);
    assert_int_equal(status.tracer_pid, 88);
    assert_int_equal(status.innermost_tgid, 3);
    assert_int_equal(status.real_uid, 1000);
    assert_int_equal(status.effective_uid, 1001);
    assert_int_equal(status.fs_uid, 1003);
    assert_int_equal(status.effective_gid, 101);
    assert_int_equal(status.state, 'S');

    /* Cut at the end of a page, in the middle of a number: what was read whole is kept. */
    assert_true(parse_status("Tgid:\t12\nUid:\t1\t2\t3", &status));
    assert_int_equal(status.tgid, 12);
    assert_int_equal(status.innermost_tgid, 12);
    assert_int_equal(status.real_uid, 0);
    assert_false(status.has_seccomp_filter);
    assert_true(parse_status("Tgid:\t12\nSeccomp:\t1\nSeccomp_filters:\t2\n", &status));
    assert_false(status.has_seccomp_filter);
    assert_true(parse_status("Tgid:\t12\nSeccomp:\t2\nSeccomp_filters:\t1\n", &status));
    assert_true(status.has_seccomp_filter);
    assert_true(parse_status("Tgid:\t12\nState:", &status));
    assert_true(parse_status("Tgid:\t12\nState:\t", &status));
    assert_true(parse_status("Tgid:\t12\nUid", &status));
    assert_true(parse_status("Tgid:\t12\n\n\n", &status));

    static const char *const wrong[] = {
        "", "\n", ":", "Tgid", "Tgid:", "Tgid:\t", "Tgid:\tx", "tgid:\t5\n", "XTgid:\t5\n", "Pid:\t5\n"};
    status.tgid = 4711;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(parse_status(wrong[i], &status));
    assert_int_equal(status.tgid, 4711);
}

static void test_statm(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"1000 200 100 50 0 300 0\n", true},
        {"1000 200 100 50 0 300", true},
        {"1000 200 100 50 0 ", false},
        {"1000 200 100 50 0", false},
        {"1000", false},
        {"", false},
        {"x 200 100 50 0 300 0\n", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded bytes = guarded_new(cases[i].text, strlen(cases[i].text));
        uint64_t size_pages = 1;
        uint64_t data_pages = 2;
        bool good = procfs_parse_statm((const char *)bytes.bytes, strlen(cases[i].text), &size_pages, &data_pages);
        assert_int_equal(good, cases[i].good);
        assert_int_equal(size_pages, good ? 1000 : 1);
        assert_int_equal(data_pages, good ? 300 : 2);
        guarded_free(&bytes);
    }
}

static void test_last_pid(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        pid_t pid; /* 0: wrong */
    } cases[] = {
        {"0.20 0.18 0.12 1/80 11206\n", 11206},
        {"0.20 0.18 0.12 1/80 11206", 11206},
        {"0 0 0 1/80 4194304 \n", 4194304},
        {"11206\n", 0},
        {"", 0},
        {"\n", 0},
        {" ", 0},
        {"1/80 x\n", 0},
        {"1/80 12x\n", 0},
        {"1/80 -1\n", 0},
        {"1/80 4294967297\n", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded bytes = guarded_new(cases[i].text, strlen(cases[i].text));
        pid_t pid = 0;
        bool good = procfs_parse_last_pid((const char *)bytes.bytes, strlen(cases[i].text), &pid);
        assert_int_equal(good, cases[i].pid > 0);
        assert_int_equal(pid, cases[i].pid);
        guarded_free(&bytes);
    }
}

static void test_running(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t running; /* 0: wrong */
    } cases[] = {
        {"0.20 0.18 0.12 1/80 11206\n", 1},
        {"0.20 0.18 0.12 4711/5000 11206", 4711},
        {"0.20 0.18 0.12 /80 11206\n", 0},
        {"1/80", 0},
        {"0 x1/80 1\n", 0},
        {"0 99999999999999999999/80 1\n", 0},
        {"", 0},
        {"/", 0},
        {"0.20 0.18 0.12 11206\n", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded bytes = guarded_new(cases[i].text, strlen(cases[i].text));
        uint64_t running = 0;
        bool good = procfs_parse_running((const char *)bytes.bytes, strlen(cases[i].text), &running);
        assert_int_equal(good, cases[i].running > 0);
        assert_int_equal(running, cases[i].running);
        guarded_free(&bytes);
    }
}

static int count_tid(void *context, pid_t tid)
{
    (void)tid;
    ++*(int *)context;
    return 0;
}

static int stop_at_first(void *context, pid_t tid)
{
    count_tid(context, tid);
    return 17;
}

static void *wait_for_end(void *end)
{
    pthread_mutex_lock(end);
    pthread_mutex_unlock(end);
    return NULL;
}

static void test_own_process(void **state)
{
    (void)state;
    prctl(PR_SET_NAME, "a) R (b\n");
    int fd = procfs_open_process(getpid());
    assert_true(fd >= 0);
    struct procfs_stat stat;
    assert_int_equal(procfs_read_stat(fd, "stat", &stat), 0);
    assert_string_equal(stat.comm, "a) R (b\n");
    assert_int_equal(stat.state, 'R');
    assert_int_equal(stat.ppid, getppid());
    assert_false(stat.flags & PROCFS_PF_KTHREAD);
    assert_int_equal(procfs_read_stat(fd, "task/1/nothing", &stat), -ENOENT);
    assert_int_equal(procfs_read_stat(fd, "comm", &stat), -EINVAL);
    struct procfs_status status;
    assert_int_equal(procfs_read_status(fd, &status), 0);
    assert_int_equal(status.tgid, getpid());
    assert_int_equal(status.real_uid, getuid());
    assert_int_equal(status.effective_gid, getegid());

    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&end);
    pthread_t threads[20];
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_end, &end), 0);
    int count = 0;
    assert_int_equal(procfs_each_thread(fd, count_tid, &count), 0);
    assert_int_equal(count, 21);
    count = 0;
    assert_int_equal(procfs_each_thread(fd, stop_at_first, &count), 17);
    assert_int_equal(count, 1);
    pthread_mutex_unlock(&end);
    for (size_t i = 0; i < 20; i++)
        pthread_join(threads[i], NULL);
    close(fd);
}

struct children {
    pid_t pids[8];
    size_t count;
};

static int add_child(void *context, pid_t pid)
{
    struct children *children = context;
    assert_true(children->count < 8);
    children->pids[children->count++] = pid;
    return 0;
}

static void test_children(void **state)
{
    (void)state;
    pid_t pids[3];
    for (size_t i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            for (;;)
                pause();
    }
    int fd = procfs_open_process(getpid());
    struct children children = {0};
    assert_int_equal(procfs_each_child(fd, add_child, &children), 0);
    /* A kernel without CONFIG_PROC_CHILDREN has none to tell. */
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (access(path, F_OK) == 0) {
        assert_int_equal(children.count, 3);
        for (size_t i = 0; i < 3; i++)
            assert_true(pids[i] == children.pids[0] || pids[i] == children.pids[1] || pids[i] == children.pids[2]);
    }
    for (size_t i = 0; i < 3; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    close(fd);
}

static void test_gone(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    int fd = procfs_open_process(pid);
    assert_true(fd >= 0);
    int stat_fd = openat(fd, "stat", O_RDONLY | O_CLOEXEC);
    int schedstat_fd = openat(fd, "schedstat", O_RDONLY | O_CLOEXEC);
    struct procfs_stat stat;
    assert_int_equal(procfs_pread_stat(stat_fd, &stat), 0);
    assert_int_equal(procfs_pread_stat(stat_fd, &stat), 0);
    assert_int_equal(stat.ppid, getpid());
    struct procfs_schedstat schedstat;
    if (schedstat_fd >= 0)
        assert_int_equal(procfs_pread_schedstat(schedstat_fd, &schedstat), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    /* Bound to the process, whoever has its number next. */
    assert_int_equal(procfs_pread_stat(stat_fd, &stat), -ESRCH);
    if (schedstat_fd >= 0)
        assert_int_equal(procfs_pread_schedstat(schedstat_fd, &schedstat), -ESRCH);
    struct procfs_status status;
    int error = procfs_read_status(fd, &status);
    assert_true(error == -ESRCH || error == -ENOENT);
    int count = 0;
    error = procfs_each_thread(fd, count_tid, &count);
    assert_true(error == -ESRCH || error == -ENOENT);
    assert_int_equal(count, 0);
    assert_int_equal(procfs_open_process(0x7fffffff), -ENOENT);
    assert_int_equal(procfs_pread_stat(-1, &stat), -EBADF);
    close(stat_fd);
    if (schedstat_fd >= 0)
        close(schedstat_fd);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_names),     cmocka_unit_test(test_stat_long_name), cmocka_unit_test(test_stat_image),
        cmocka_unit_test(test_stat_truncated), cmocka_unit_test(test_stat_garbage),   cmocka_unit_test(test_schedstat),
        cmocka_unit_test(test_syscall),        cmocka_unit_test(test_status),         cmocka_unit_test(test_statm),
        cmocka_unit_test(test_last_pid),       cmocka_unit_test(test_own_process),    cmocka_unit_test(test_children),
        cmocka_unit_test(test_gone),           cmocka_unit_test(test_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
