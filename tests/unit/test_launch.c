#include "cmocka_all.h"

#include "common/fileio.h"
#include "sampler/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[] = "/tmp/test_launch.XXXXXX";

static void make(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Waits for the process's end by its descriptor, then takes the status. */
static int status_of(struct launch *launch)
{
    struct pollfd ended = {.fd = launch->pid_fd, .events = POLLIN};
    while (poll(&ended, 1, -1) < 0)
        assert_int_equal(errno, EINTR);
    int status;
    assert_int_equal(waitpid(launch->pid, &status, 0), launch->pid);
    launch_deinit(launch);
    return status;
}

#define ARGV(...) ((char *[]){__VA_ARGS__, NULL})

static void test_runs(void **state)
{
    (void)state;
    struct launch launch;
    assert_int_equal(launch_prepare(ARGV("/bin/sh", "-c", "exit 37"), false, NULL, &launch), 0);
    assert_true(launch.pid > 0);
    assert_true(launch.pid_fd > 2 && launch.go_fd > 2 && launch.outcome_fd > 2);
    /* It waits for its cue. */
    struct pollfd ended = {.fd = launch.pid_fd, .events = POLLIN};
    assert_int_equal(poll(&ended, 1, 0), 0);
    assert_int_equal(launch_go(&launch), 0);
    int status = status_of(&launch);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 37);
}

static void test_killed(void **state)
{
    (void)state;
    struct launch launch;
    assert_int_equal(launch_prepare(ARGV("sh", "-c", "kill -9 $$"), false, NULL, &launch), 0);
    assert_int_equal(launch_go(&launch), 0);
    int status = status_of(&launch);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_failures(void **state)
{
    (void)state;
    make("no_interpreter", "#!/nonexistent/interpreter\n", 0700);
    make("not_executable", "#!/bin/sh\n", 0600);
    make("bad_elf", "\177ELF and then nothing of the kind", 0700);
    assert_int_equal(mkdir("directory", 0700), 0);
    static const struct {
        const char *program;
        int error;
        int status;
    } cases[] = {
        {"./missing", -ENOENT, 127},
        {"missing-program-of-no-package", -ENOENT, 127},
        {"/nonexistent/directory/program", -ENOENT, 127},
        {"", -ENOENT, 127},
        {"./not_executable/program", -ENOTDIR, 127},
        {"./no_interpreter", -ENOENT, 126},
        {"./not_executable", -EACCES, 126},
        {"./directory", -EACCES, 126},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char program[100];
        snprintf(program, sizeof(program), "%s", cases[i].program);
        struct launch launch;
        assert_int_equal(launch_prepare(ARGV(program, "argument"), false, NULL, &launch), 0);
        int error = launch_go(&launch);
        if (error != cases[i].error)
            fail_msg("'%s': %s", program, strerror(-error));
        if (launch_failure_status(program, error) != cases[i].status)
            fail_msg("'%s': status %d", program, launch_failure_status(program, error));
        int status = status_of(&launch);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 127);
    }
}

/* In a directory of PATH: found, but its interpreter is not. */
static void test_failures_by_path(void **state)
{
    (void)state;
    char *saved = strdup(getenv("PATH"));
    char path[200];
    snprintf(path, sizeof(path), "/nonexistent:%s", base);
    setenv("PATH", path, 1);
    assert_int_equal(launch_failure_status("no_interpreter", -ENOENT), 126);
    assert_int_equal(launch_failure_status("missing", -ENOENT), 127);
    /* An empty part is the working directory, for exec and so for us. */
    static const char *const parts[] = {"", ":", "/nonexistent:", ":/nonexistent", "/nonexistent::/"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        setenv("PATH", parts[i], 1);
        assert_int_equal(launch_failure_status("no_interpreter", -ENOENT), 126);
        assert_int_equal(launch_failure_status("missing", -ENOENT), 127);
        execlp("no_interpreter", "no_interpreter", NULL);
        assert_int_equal(errno, ENOENT);
        execlp("not_executable", "not_executable", NULL);
        assert_int_equal(errno, EACCES);
    }
    setenv("PATH", saved, 1);
    free(saved);
    assert_int_equal(launch_failure_status("x", -EACCES), 126);
    assert_int_equal(launch_failure_status("x", -ENOEXEC), 126);
    assert_int_equal(launch_failure_status("x", -E2BIG), 126);
    assert_int_equal(launch_failure_status("x", -ENOMEM), 126);
}

static void test_given_up(void **state)
{
    (void)state;
    struct launch launch;
    assert_int_equal(launch_prepare(ARGV("/bin/sh", "-c", "echo > came_here"), false, NULL, &launch), 0);
    pid_t pid = launch.pid;
    launch_deinit(&launch);
    /* Ended and reaped. */
    assert_int_equal(waitpid(pid, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(access("came_here", F_OK), -1);
    launch_deinit(&launch);
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_no_descriptor_is_lost(void **state)
{
    (void)state;
    size_t before = count_descriptors();
    for (size_t i = 0; i < 3; i++) {
        struct launch launch;
        assert_int_equal(launch_prepare(ARGV("true"), false, NULL, &launch), 0);
        if (i) {
            assert_int_equal(launch_go(&launch), 0);
            status_of(&launch);
        }
        launch_deinit(&launch);
    }
    assert_int_equal(count_descriptors(), before);
}

/* Runs it with its standard output and standard error in the files "out" and "err". */
static void run_into_files(char **argv, bool join_stdout, struct launch *launch)
{
    make("out", "", 0600);
    make("err", "", 0600);
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    int err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    int to_out = open("out", O_WRONLY | O_APPEND | O_CLOEXEC);
    int to_err = open("err", O_WRONLY | O_APPEND | O_CLOEXEC);
    dup2(to_out, STDOUT_FILENO);
    dup2(to_err, STDERR_FILENO);
    close(to_out);
    close(to_err);
    int error = launch_prepare(argv, join_stdout, NULL, launch);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    assert_int_equal(error, 0);
}

/* What `command` writes to its standard output, with what it writes to standard error behind a "|". */
static void expect_output(const char *command, bool join_stdout, const char *wanted)
{
    char text[1000];
    snprintf(text, sizeof(text), "%s", command);
    struct launch launch;
    run_into_files(ARGV("/bin/sh", "-c", text), join_stdout, &launch);
    assert_int_equal(launch_go(&launch), 0);
    status_of(&launch);
    char got[2000];
    ssize_t size = fileio_read_text(AT_FDCWD, "out", got, 900);
    assert_true(size >= 0);
    got[size++] = '|';
    assert_true(fileio_read_text(AT_FDCWD, "err", got + size, 900) >= 0);
    assert_string_equal(got, wanted);
}

static void test_streams(void **state)
{
    (void)state;
    expect_output("echo out; echo err >&2", false, "out\n|err\n");
    expect_output("echo out; echo err >&2", true, "|out\nerr\n");
}

static void test_descriptors(void **state)
{
    (void)state;
    make("descriptors", "", 0600);
    char command[] = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done > descriptors";
    struct launch launch;
    assert_int_equal(launch_prepare(ARGV("/bin/sh", "-c", command), false, NULL, &launch), 0);
    assert_int_equal(launch_go(&launch), 0);
    status_of(&launch);
    char text[2000];
    assert_true(fileio_read_text(AT_FDCWD, "descriptors", text, sizeof(text)) > 0);
    /* Those that we pass on ourselves, and what the shell has open while it looks: the list, and what it saved for the
     * redirection. */
    size_t others = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int flags = fcntl(atoi(line), F_GETFD);
        others += flags < 0 || (flags & FD_CLOEXEC);
    }
    assert_true(others <= 2);
}

/* The mask and dispositions that we had when it was prepared; what we change afterwards is ours. */
static void test_signals_as_before(void **state)
{
    (void)state;
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGRTMIN + 3);
    sigprocmask(SIG_SETMASK, &blocked, &before);
    signal(SIGUSR2, SIG_IGN);
    struct launch launch;
    run_into_files(ARGV("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"), false, &launch);
    sigfillset(&blocked);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    signal(SIGUSR2, SIG_DFL);
    assert_int_equal(launch_go(&launch), 0);
    status_of(&launch);
    sigprocmask(SIG_SETMASK, &before, NULL);
    char text[200];
    assert_true(fileio_read_text(AT_FDCWD, "out", text, sizeof(text)) > 0);
    unsigned long long mask = strtoull(strstr(text, "SigBlk:") + 7, NULL, 16);
    unsigned long long ignored = strtoull(strstr(text, "SigIgn:") + 7, NULL, 16);
    assert_true(mask == (1ULL << (SIGUSR1 - 1) | 1ULL << (SIGRTMIN + 3 - 1)));
    assert_true(ignored >> (SIGUSR2 - 1) & 1);
    assert_false(ignored >> (SIGUSR1 - 1) & 1);
}

static void test_rest_of_the_world(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    char wanted[100];
    snprintf(wanted, sizeof(wanted), "%d %d %lu v\n|", (int)getpgrp(), (int)getsid(0), (unsigned long)before.rlim_cur);
    setenv("TEST_LAUNCH", "v", 1);
    expect_output("set -- $(cat /proc/$$/stat); echo $5 $6 $(ulimit -n) $TEST_LAUNCH", false, wanted);
    unsetenv("TEST_LAUNCH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_failures_by_path),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_no_descriptor_is_lost),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_signals_as_before),
        cmocka_unit_test(test_rest_of_the_world),
    };
    if (!mkdtemp(base) || chdir(base))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const files[] = {"no_interpreter", "not_executable", "bad_elf", "out", "err",
                                        "descriptors",    "came_here"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(files[i]);
    rmdir("directory");
    if (chdir("/") || rmdir(base))
        return 1;
    return failed ? 1 : 0;
}
