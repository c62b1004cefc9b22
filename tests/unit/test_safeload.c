#include "helper/disposition.h"
#include "helper/safeload.h"

#include "cmocka_all.h"
#include "guarded.h"
#include "registers.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAD_LOADS = 10000 };
static const enum safeload_way ways[] = {SAFELOAD_INSTRUCTION, SAFELOAD_CALL};
extern const char safeload_load_at[] __attribute__((visibility("hidden")));

static volatile int handled;
static char *unreadable;
static char *shrunk; /* a page behind the end of its file */

static void count(int signal)
{
    (void)signal;
    handled++;
}

static int set_up(void **state)
{
    (void)state;
    unreadable = mmap(NULL, GUARDED_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("shrunk", 0);
    shrunk = mmap(NULL, GUARDED_PAGE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return safeload_own() || unreadable == MAP_FAILED || shrunk == MAP_FAILED ? -1 : 0;
}

static uint64_t mask_now(void)
{
    uint64_t mask = 0;
    assert_int_equal(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask), 0);
    return mask;
}

static void reads_what_is_there(void **state)
{
    (void)state;
    uint64_t numbers[] = {0x1122334455667788, 42};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t value = 0;
        assert_true(safe_load(ways[i], (uint64_t)numbers, &value));
        assert_true(value == numbers[0]);
        assert_true(safe_load(ways[i], (uint64_t)numbers + 4, &value));
        assert_true(value == (numbers[0] >> 32 | numbers[1] << 32));
        uint64_t copy[2] = {0};
        assert_int_equal(safe_copy(ways[i], copy, (uint64_t)numbers, sizeof copy), sizeof copy);
        assert_memory_equal(copy, numbers, sizeof copy);
        assert_int_equal(safe_copy(ways[i], copy, (uint64_t)numbers, 0), 0);
        assert_int_equal(safe_copy(ways[i], copy, 0, 0), 0);
    }
}

static void stops_where_memory_ends(void **state)
{
    (void)state;
    enum { SIZE = 40 * GUARDED_PAGE + 100 };
    static uint8_t data[SIZE], copy[SIZE + 10];
    for (unsigned i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 7 + i / 251);
    struct guarded guarded = guarded_new(data, SIZE);
    uint64_t end_avma = (uint64_t)guarded.bytes + SIZE;
    for (unsigned way = 0; way < 2; way++) {
        uint64_t value = 0xaaaa;
        assert_true(safe_load(ways[way], end_avma - 8, &value));
        assert_memory_equal(&value, data + SIZE - 8, 8);
        value = 0xaaaa;
        for (unsigned missing = 1; missing <= 8; missing++)
            assert_false(safe_load(ways[way], end_avma - 8 + missing, &value));
        assert_int_equal(value, 0xaaaa); /* untouched */
        const size_t lengths[] = {1, 7, 100, 4096, 4097, 16 * GUARDED_PAGE, 16 * GUARDED_PAGE + 1, SIZE};
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            memset(copy, 0, sizeof copy);
            assert_int_equal(safe_copy(ways[way], copy, end_avma - lengths[i], lengths[i] + 10), lengths[i]);
            assert_memory_equal(copy, data + SIZE - lengths[i], lengths[i]);
            assert_int_equal(copy[lengths[i]], 0);
            assert_int_equal(safe_copy(ways[way], copy, end_avma - lengths[i], lengths[i]), lengths[i]);
        }
    }
    guarded_free(&guarded);
}

static void bad_addresses_give_nothing(void **state)
{
    (void)state;
    const uint64_t bad[] = {0,
                            1,
                            4095,
                            (uint64_t)unreadable,
                            (uint64_t)shrunk,
                            0x8000123412341234,
                            0x00007fffffffffff,
                            0x0000800000000000,
                            0xffff800000000000,
                            0xffffffff81000000,
                            UINT64_MAX - 7,
                            UINT64_MAX - 6,
                            UINT64_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (unsigned way = 0; way < 2; way++) {
            uint64_t value;
            char copy[64];
            assert_false(safe_load(ways[way], bad[i], &value));
            assert_int_equal(safe_copy(ways[way], copy, bad[i], sizeof copy), 0);
        }
    }
}

static void faults_are_counted(void **state)
{
    (void)state;
    uint64_t before = safeload_faults(), value;
    char copy[16];
    safe_load(SAFELOAD_INSTRUCTION, (uint64_t)unreadable, &value);
    safe_copy(SAFELOAD_INSTRUCTION, copy, (uint64_t)unreadable, sizeof copy);
    safe_load(SAFELOAD_CALL, (uint64_t)unreadable, &value);
    safe_load(SAFELOAD_INSTRUCTION, (uint64_t)&before, &value);
    assert_int_equal(safeload_faults() - before, 2);
}

static void a_child_reads_itself(void **state)
{
    (void)state;
    uint64_t number = 1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        number = 2;
        uint64_t value = 0;
        _exit(safe_load(SAFELOAD_CALL, (uint64_t)&number, &value) && value == 2 &&
                      !safe_load(SAFELOAD_CALL, (uint64_t)unreadable, &value) &&
                      !safe_load(SAFELOAD_INSTRUCTION, (uint64_t)unreadable, &value)
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Many */

static bool load_badly(uint64_t avma, uint64_t *ret_value)
{
    return safe_load(SAFELOAD_INSTRUCTION, avma, ret_value);
}

static bool copy_badly(uint64_t avma, uint64_t *ret_value)
{
    return safe_copy(SAFELOAD_INSTRUCTION, ret_value, avma, 8) != 0;
}

static bool load_badly_by_call(uint64_t avma, uint64_t *ret_value)
{
    return safe_load(SAFELOAD_CALL, avma, ret_value);
}

static void load_many(enum safeload_way way)
{
    for (unsigned i = 0; i < BAD_LOADS; i++) {
        uint64_t value;
        char copy[32];
        const uint64_t bad[] = {i, (uint64_t)unreadable + i % 4000, (uint64_t)shrunk + i % 4000,
                                0x8000123412341234 + i};
        if (i % 2 ? safe_load(way, bad[i / 2 % 4], &value) : safe_copy(way, copy, bad[i / 2 % 4], sizeof copy) != 0)
            handled += 1000000;
    }
}

static void set_handlers(void (*handler)(int))
{
    signal(SIGSEGV, handler);
    signal(SIGBUS, handler);
}

static void many_never_reach_the_program(void **state)
{
    (void)state;
    set_handlers(count);
    for (unsigned way = 0; way < 2; way++) {
        handled = 0;
        errno = 4711;
        uint64_t mask = mask_now();
        uint64_t before = safeload_faults();
        load_many(ways[way]);
        assert_int_equal(errno, 4711);
        assert_int_equal(handled, 0);
        assert_true(mask_now() == mask);
        assert_int_equal(safeload_faults() - before, ways[way] == SAFELOAD_INSTRUCTION ? BAD_LOADS : 0);
    }
    set_handlers(SIG_DFL);
}

static volatile enum safeload_way way_in_handler;

static void load_many_in_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    if (!safeload_may_use_instruction(context, true))
        handled += 1000;
    load_many(way_in_handler);
}

static void assert_same_registers(const struct registers *before, const struct registers *after)
{
    assert_memory_equal(before->general, after->general, sizeof before->general);
    assert_memory_equal(before->fx, after->fx, 28);            /* x87 control and state */
    assert_memory_equal(before->fx + 24, after->fx + 24, 4);   /* MXCSR */
    assert_memory_equal(before->fx + 32, after->fx + 32, 128); /* x87 registers */
    assert_memory_equal(before->fx + 160, after->fx + 160, 256);
}

static void many_in_a_handler_change_nothing(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = load_many_in_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    assert_int_equal(sigaction(SIGPROF, &action, NULL), 0);
    set_handlers(count);
    for (unsigned way = 0; way < 2; way++) {
        way_in_handler = ways[way];
        handled = 0;
        errno = 4711;
        uint64_t mask = mask_now();
        struct registers before = {0}, after = {0};
        registers_around_signal(getpid(), gettid(), SIGPROF, &before, &after);
        assert_int_equal(errno, 4711);
        assert_int_equal(handled, 0);
        assert_true(mask_now() == mask);
        assert_same_registers(&before, &after);
    }
    set_handlers(SIG_DFL);
    signal(SIGPROF, SIG_DFL);
}

static void a_bad_load_changes_no_register(void **state)
{
    (void)state;
    bool (*const by_instruction[])(uint64_t, uint64_t *) = {load_badly, copy_badly};
    for (unsigned i = 0; i < 1000; i++) {
        struct registers before = {0}, after = {0};
        registers_around_call(by_instruction[i % 2], (uint64_t)(i % 4 < 2 ? unreadable : shrunk), &before, &after);
        assert_same_registers(&before, &after);
    }
    struct registers before = {0}, after = {0};
    registers_around_call(load_badly_by_call, (uint64_t)unreadable, &before, &after);
    assert_memory_equal(before.general, after.general, sizeof before.general);
    assert_memory_equal(before.fx, after.fx, 28);
}

/* May it be used? */

static volatile int said_with_call, said_without;

static void ask(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    said_with_call = safeload_may_use_instruction(context, true);
    said_without = safeload_may_use_instruction(context, false);
}

static void ask_in_handler(int blocked_outside, int blocked_inside)
{
    struct sigaction action = {.sa_sigaction = ask, .sa_flags = SA_SIGINFO};
    if (blocked_inside)
        sigaddset(&action.sa_mask, blocked_inside);
    sigaction(SIGPROF, &action, NULL);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    if (blocked_outside)
        sigaddset(&blocked, blocked_outside);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    said_with_call = said_without = -1;
    raise(SIGPROF);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPROF, SIG_DFL);
}

static bool take_nothing(int signal, siginfo_t *info, ucontext_t *context)
{
    (void)signal;
    (void)info;
    (void)context;
    return false;
}

static void blocked_signals_forbid_it(void **state)
{
    (void)state;
    ask_in_handler(0, 0);
    assert_int_equal(said_with_call, 1);
    assert_int_equal(said_without, 1);
    const int both[] = {SIGSEGV, SIGBUS};
    for (unsigned i = 0; i < 2; i++) {
        ask_in_handler(both[i], 0);
        assert_int_equal(said_with_call, 0);
        assert_int_equal(said_without, 0);
        ask_in_handler(0, both[i]);
        assert_int_equal(said_with_call, 0);
    }
}

/* As long as the program blocks neither in a handler of a signal that is ours, it is known that none is. */
static void masks_of_owned_signals_forbid_it(void **state)
{
    (void)state;
    assert_int_equal(disposition_own(SIGPROF, take_nothing, 0), 0);
    ask_in_handler(0, SIGUSR1);
    assert_int_equal(said_with_call, 1);
    assert_int_equal(said_without, 1);
    ask_in_handler(0, SIGSEGV);
    assert_int_equal(said_with_call, 0);
    assert_int_equal(said_without, 0);
    disposition_disown(SIGPROF);
}

static void replaced_signals_forbid_it(void **state)
{
    (void)state;
    struct kernel_action none = {0}, ours;
    ucontext_t context;
    getcontext(&context);
    assert_true(safeload_may_use_instruction(&context, true));
    assert_int_equal(kernel_action_exchange(SIGBUS, &none, &ours), 0);
    assert_false(safeload_may_use_instruction(&context, true));
    assert_int_equal(kernel_action_exchange(SIGBUS, &ours, NULL), 0);
    assert_true(safeload_may_use_instruction(&context, true));
    safeload_disown();
    assert_false(safeload_may_use_instruction(&context, true));
    assert_false(safeload_may_use_instruction(&context, false));
    assert_int_equal(safeload_own(), 0);
    assert_true(safeload_may_use_instruction(&context, true));
}

/* Somebody's kill */

static sigjmp_buf back;
static volatile uint64_t pc_of_kill_avma;

static void note_pc(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    pc_of_kill_avma = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, 1);
}

/* The thread goes on at the load, and the signal, which this handler has blocked, comes just there. */
static void go_to_the_load(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)safeload_load_at;
    raise(SIGSEGV);
}

static void a_kill_at_the_load_is_the_programs(void **state)
{
    (void)state;
    struct sigaction fault = {.sa_sigaction = note_pc, .sa_flags = SA_SIGINFO};
    struct sigaction go = {.sa_sigaction = go_to_the_load, .sa_flags = SA_SIGINFO};
    sigaddset(&go.sa_mask, SIGSEGV);
    assert_int_equal(sigaction(SIGSEGV, &fault, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &go, NULL), 0);
    uint64_t before = safeload_faults();
    if (sigsetjmp(back, 1) == 0)
        raise(SIGUSR1);
    assert_true(pc_of_kill_avma == (uint64_t)safeload_load_at);
    assert_true(safeload_faults() == before);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(stops_where_memory_ends),
        cmocka_unit_test(bad_addresses_give_nothing),
        cmocka_unit_test(faults_are_counted),
        cmocka_unit_test(a_child_reads_itself),
        cmocka_unit_test(many_never_reach_the_program),
        cmocka_unit_test(many_in_a_handler_change_nothing),
        cmocka_unit_test(a_bad_load_changes_no_register),
        cmocka_unit_test(blocked_signals_forbid_it),
        cmocka_unit_test(masks_of_owned_signals_forbid_it),
        cmocka_unit_test(replaced_signals_forbid_it),
        cmocka_unit_test(a_kill_at_the_load_is_the_programs),
    };
    return cmocka_run_group_tests(tests, set_up, NULL) ? 1 : 0;
}
