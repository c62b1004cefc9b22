#include "cmocka_all.h"

#include "sampler/waitstatus.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENT(event, signal) ((event) << 8 | (signal))

struct expected {
    enum wait_kind kind;
    int signal;
    int status;
    int detach;
};

static void expect(int code, int status, struct expected wanted)
{
    struct wait_event event = wait_classify(code, status);
    if (event.kind != wanted.kind || event.signal != wanted.signal || event.status != wanted.status ||
        wait_detach_signal(&event) != wanted.detach)
        fail_msg("code %d, status %#x: kind %d, signal %d, status %d, detach with %d", code, (unsigned)status,
                 event.kind, event.signal, event.status, wait_detach_signal(&event));
}

static void expect_stop(int status, enum wait_kind kind, int signal, int detach)
{
    /* The kernel says TRAPPED for tracees; STOPPED is the same thing seen by a parent. */
    expect(CLD_TRAPPED, status, (struct expected){.kind = kind, .signal = signal, .detach = detach});
    expect(CLD_STOPPED, status, (struct expected){.kind = kind, .signal = signal, .detach = detach});
}

static void test_exits(void **state)
{
    (void)state;
    for (int status = 0; status < 256; status++) {
        struct wait_event event = wait_classify(CLD_EXITED, status);
        expect(CLD_EXITED, status, (struct expected){.kind = WAIT_EXIT, .status = status});
        assert_int_equal(wait_exit_status(&event), status);
    }
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        expect(CLD_KILLED, signal, (struct expected){.kind = WAIT_EXIT, .signal = signal});
        expect(CLD_DUMPED, signal, (struct expected){.kind = WAIT_EXIT, .signal = signal});
        struct wait_event event = wait_classify(CLD_DUMPED, signal);
        assert_int_equal(wait_exit_status(&event), 128 + signal);
    }
}

static void test_signal_stops(void **state)
{
    (void)state;
    /* Every signal on its way to the thread: SIGTRAP, the stop signals and the real-time ones too. */
    for (int signal = 1; signal <= SIGRTMAX; signal++)
        expect_stop(signal, WAIT_SIGNAL_STOP, signal, signal);
    expect_stop(SIGTRAP, WAIT_SIGNAL_STOP, SIGTRAP, SIGTRAP);
    expect_stop(SIGSTOP, WAIT_SIGNAL_STOP, SIGSTOP, SIGSTOP);
    expect_stop(SIGRTMAX, WAIT_SIGNAL_STOP, 64, 64);
}

static void test_our_interrupt(void **state)
{
    (void)state;
    expect_stop(EVENT(PTRACE_EVENT_STOP, SIGTRAP), WAIT_INTERRUPT_STOP, 0, 0);
    expect_stop(0x8005, WAIT_INTERRUPT_STOP, 0, 0);
}

static void test_group_stops(void **state)
{
    (void)state;
    static const int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < 4; i++)
        expect_stop(EVENT(PTRACE_EVENT_STOP, signals[i]), WAIT_GROUP_STOP, signals[i], 0);
}

static void test_other_events(void **state)
{
    (void)state;
    static const int events[] = {PTRACE_EVENT_FORK, PTRACE_EVENT_VFORK,      PTRACE_EVENT_CLONE,  PTRACE_EVENT_EXEC,
                                 PTRACE_EVENT_EXIT, PTRACE_EVENT_VFORK_DONE, PTRACE_EVENT_SECCOMP};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        expect_stop(EVENT(events[i], SIGTRAP), WAIT_EVENT_STOP, 0, 0);
    expect_stop(SIGTRAP | 0x80, WAIT_EVENT_STOP, 0, 0); /* a system call, with PTRACE_O_TRACESYSGOOD */
    expect_stop(0x85, WAIT_EVENT_STOP, 0, 0);
}

static void test_the_rest(void **state)
{
    (void)state;
    expect(CLD_CONTINUED, SIGCONT, (struct expected){.kind = WAIT_CONTINUED});
    expect_stop(0, WAIT_UNKNOWN, 0, 0);
    expect_stop(65, WAIT_UNKNOWN, 0, 0);
    expect_stop(0xff, WAIT_UNKNOWN, 0, 0);
    expect(0, 0, (struct expected){.kind = WAIT_UNKNOWN});
    expect(99, 1, (struct expected){.kind = WAIT_UNKNOWN});
    expect(-1, 1, (struct expected){.kind = WAIT_UNKNOWN});
}

/* The table against the kernel: what waitid says of real children. */
static void test_real_children(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(77);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    struct wait_event event = wait_classify(info.si_code, info.si_status);
    assert_int_equal(event.kind, WAIT_EXIT);
    assert_int_equal(wait_exit_status(&event), 77);

    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | __WALL), 0);
    event = wait_classify(info.si_code, info.si_status);
    assert_int_equal(event.kind, WAIT_INTERRUPT_STOP);
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | __WALL), 0);
    event = wait_classify(info.si_code, info.si_status);
    assert_int_equal(event.kind, WAIT_SIGNAL_STOP);
    assert_int_equal(event.signal, SIGSTOP);
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)wait_detach_signal(&event)), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | __WALL), 0);
    event = wait_classify(info.si_code, info.si_status);
    assert_int_equal(event.kind, WAIT_GROUP_STOP);
    assert_int_equal(event.signal, SIGSTOP);

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | __WALL), 0);
    event = wait_classify(info.si_code, info.si_status);
    assert_int_equal(event.kind, WAIT_EXIT);
    assert_int_equal(wait_exit_status(&event), 128 + SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exits),         cmocka_unit_test(test_signal_stops), cmocka_unit_test(test_our_interrupt),
        cmocka_unit_test(test_group_stops),   cmocka_unit_test(test_other_events), cmocka_unit_test(test_the_rest),
        cmocka_unit_test(test_real_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
