#include "cmocka_all.h"

#include "sampler/injectlibc.h"
#include "sampler/injectnames.h"
#include "sampler/injectstub.h"
#include "sampler/injectthreads.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <ucontext.h>

static void test_names_in_libc(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "malloc",       "__libc_malloc", "free",         "_int_free",       "__libc_memalign", "realloc",
        "dlopen",       "_dl_addr",      "__libc_dlsym", "dl_iterate_phdr", "__libc_fork",     "vfork",
        "posix_spawn",  "exit",          "__cxa_atexit", "pthread_create",  "setuid",          "setlocale",
        "pthread_join", "execve",        "system"};
    static const char *const good[] = {"read",  "poll",   "pthread_cond_wait", "epoll_wait", "__libc_recv",
                                       "qsort", "printf", "nanosleep",         "fgets",      "pthread_mutex_lock"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(injectnames_is_harmless(bad[i], true, false));
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(injectnames_is_harmless(good[i], true, false));
    assert_true(injectnames_is_harmless("pthread_join", true, true)); /* asleep in it */
    assert_false(injectnames_is_harmless("malloc", true, true));
}

/* A program's own functions are judged by their whole names, unless they are known to be an allocator's. */
static void test_names_elsewhere(void **state)
{
    (void)state;
    static const char *const bad[] = {"malloc",
                                      "dlopen",
                                      "_Znwm",
                                      "_ZdlPvm",
                                      "je_malloc",
                                      "tc_new",
                                      "mi_heap_malloc",
                                      "_Unwind_RaiseException",
                                      "__interceptor_malloc"};
    static const char *const good[] = {"malloc_loop", "free_list_walk", "main", "setup", "executor_run", "_ZN3fooEv"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(injectnames_is_harmless(bad[i], false, false));
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(injectnames_is_harmless(good[i], false, false));
}

static void test_files(void **state)
{
    (void)state;
    assert_true(injectnames_is_allocator("/usr/lib/libjemalloc.so.2"));
    assert_false(injectnames_is_allocator("/opt/malloc/libother.so"));
    assert_true(injectlibc_is_libc("/lib/x86_64-linux-gnu/libc.so.6"));
    assert_true(injectlibc_is_libc("/lib/libc-2.31.so"));
    assert_false(injectlibc_is_libc("/lib/libcrypt.so.1"));
    assert_true(injectlibc_is_loader("/lib64/ld-linux-x86-64.so.2"));
    assert_false(injectlibc_is_loader("/usr/bin/ld"));
}

static bool has_timeout(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
    struct procfs_syscall call = {.number = number, .arguments = {0, a1, a2, a3, a4}};
    return injectthreads_has_timeout(&call);
}

static void test_timeouts(void **state)
{
    (void)state;
    assert_true(has_timeout(SYS_nanosleep, 0, 0, 0, 0));
    assert_true(has_timeout(SYS_poll, 1, 1000, 0, 0));
    assert_false(has_timeout(SYS_poll, 1, 0xffffffff, 0, 0));
    assert_true(has_timeout(SYS_epoll_wait, 0, 0, 10, 0));
    assert_false(has_timeout(SYS_epoll_wait, 0, 0, UINT64_MAX, 0));
    assert_true(has_timeout(SYS_futex, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0x1000, 0));
    assert_false(has_timeout(SYS_futex, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0));
    assert_false(has_timeout(SYS_futex, FUTEX_WAIT_BITSET, 0, 0x1000, 0)); /* until a time, not for one */
    assert_true(has_timeout(SYS_clock_nanosleep, 0, 0, 0, 0));
    assert_false(has_timeout(SYS_clock_nanosleep, 1, 0, 0, 0));
    assert_false(has_timeout(SYS_read, 1, 1, 1, 1));
    assert_false(has_timeout(-1, 1, 1, 1, 1));
}

/* The C library's ucontext_t begins like the kernel's. */
static void test_frame(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct inject_ucontext, stack_avma), offsetof(ucontext_t, uc_stack));
    assert_int_equal(offsetof(struct inject_ucontext, r8), offsetof(ucontext_t, uc_mcontext.gregs[REG_R8]));
    assert_int_equal(offsetof(struct inject_ucontext, rsp), offsetof(ucontext_t, uc_mcontext.gregs[REG_RSP]));
    assert_int_equal(offsetof(struct inject_ucontext, rip), offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]));
    assert_int_equal(offsetof(struct inject_ucontext, cs), offsetof(ucontext_t, uc_mcontext.gregs[REG_CSGSFS]));
    assert_int_equal(offsetof(struct inject_ucontext, fpstate_avma), offsetof(ucontext_t, uc_mcontext.fpregs));
    assert_int_equal(offsetof(struct inject_ucontext, mask), offsetof(ucontext_t, uc_sigmask));
    assert_in_range(inject_stub_end - inject_stub, 100, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_in_libc), cmocka_unit_test(test_names_elsewhere), cmocka_unit_test(test_files),
        cmocka_unit_test(test_timeouts),      cmocka_unit_test(test_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
