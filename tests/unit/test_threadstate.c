#include "cmocka_all.h"

#include "sampler/threadstate.h"

#include <sys/syscall.h>

static void test_letters(void **state)
{
    (void)state;
    static const struct {
        char letter;
        enum thread_state state;
    } cases[] = {{'R', THREAD_RUNNABLE},       {'S', THREAD_SLEEPING},      {'I', THREAD_SLEEPING},
                 {'P', THREAD_SLEEPING},       {'D', THREAD_DISK_WAIT},     {'T', THREAD_STOPPED},
                 {'t', THREAD_STOPPED},        {'Z', THREAD_STATE_UNKNOWN}, {'X', THREAD_STATE_UNKNOWN},
                 {'\0', THREAD_STATE_UNKNOWN}, {'?', THREAD_STATE_UNKNOWN}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(thread_state_of(cases[i].letter), cases[i].state);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        enum thread_state state;
        int64_t call;
        const char *name;
    } cases[] = {{THREAD_RUNNING, -1, "running"},
                 {THREAD_RUNNING, SYS_read, "running"},
                 {THREAD_RUNNABLE, -1, "runnable"},
                 {THREAD_SLEEPING, -1, "sleeping"},
                 {THREAD_SLEEPING, SYS_read, "read"},
                 {THREAD_SLEEPING, SYS_epoll_wait, "epoll_wait"},
                 {THREAD_SLEEPING, SYS_futex, "futex"},
                 {THREAD_SLEEPING, SYS_rt_sigtimedwait, "rt_sigtimedwait"},
                 {THREAD_SLEEPING, 400, "syscall_400"}, /* there is none */
                 {THREAD_SLEEPING, 100000, "syscall_100000"},
                 {THREAD_SLEEPING, INT64_MAX, "syscall_9223372036854775807"},
                 {THREAD_DISK_WAIT, SYS_fsync, "disk wait"},
                 {THREAD_STOPPED, SYS_read, "stopped"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[THREAD_STATE_NAME_BYTES];
        thread_state_name(cases[i].state, cases[i].call, name);
        assert_string_equal(name, cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_letters), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
