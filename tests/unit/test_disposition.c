#include "helper/disposition.h"

#include "helper/disposition_entries.h"

#include "cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef void handler_function(int);
handler_function *bsd_signal(int signal, handler_function *handler);
int __sigaction(int signal, const struct sigaction *action, struct sigaction *old);

static volatile int taken, handled, is_ours_to_take;

static bool take(int signal, siginfo_t *info, ucontext_t *context)
{
    (void)signal;
    (void)info;
    (void)context;
    taken++;
    return is_ours_to_take;
}

static void count(int signal)
{
    (void)signal;
    handled++;
}

static void count_info(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
    handled++;
}

static struct kernel_action in_kernel(int signal)
{
    struct kernel_action action = {0};
    assert_int_equal(kernel_action_exchange(signal, NULL, &action), 0);
    return action;
}

static int set_up(void **state)
{
    (void)state;
    taken = handled = is_ours_to_take = 0;
    return disposition_own(SIGPROF, take, 0);
}

static int tear_down(void **state)
{
    (void)state;
    signal(SIGPROF, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    disposition_disown(SIGPROF);
    disposition_set_guard(0);
    return 0;
}

/* Owning */

static void only_some_can_be_owned(void **state)
{
    (void)state;
    const int never[] = {-1, 0, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, 65, 1000};
    for (unsigned i = 0; i < sizeof never / sizeof *never; i++)
        assert_int_equal(disposition_own(never[i], take, 0), -EINVAL);
    assert_int_equal(disposition_own(SIGPROF, take, SA_NODEFER), -EINVAL);
    assert_false(disposition_owns(SIGVTALRM));
    assert_false(disposition_is_ours(SIGVTALRM));
    assert_true(disposition_owns(SIGPROF));
    assert_true(disposition_is_ours(SIGPROF));
    assert_int_equal(disposition_own(SIGPROF, take, 0), 0); /* once more */
    assert_int_equal(disposition_own(SIGUSR2, take, 0), 0);
    assert_int_equal(disposition_own(SIGURG, take, 0), 0);
    assert_int_equal(disposition_own(SIGWINCH, take, 0), 0);
    assert_int_equal(disposition_own(SIGVTALRM, take, 0), -ENOSPC);
    assert_false(disposition_is_ours(SIGVTALRM));
    raise(SIGURG); /* ignored by default */
    assert_int_equal(taken, 1);
    disposition_disown(SIGUSR2);
    disposition_disown(SIGURG);
    disposition_disown(SIGWINCH);
    assert_int_equal(in_kernel(SIGURG).handler_avma, 0);
    assert_int_equal(disposition_own(SIGUSR2, take, 0), 0); /* the same place again */
    disposition_disown(SIGUSR2);
}

static void what_is_taken_stays_from_the_program(void **state)
{
    (void)state;
    signal(SIGPROF, count);
    is_ours_to_take = 1;
    raise(SIGPROF);
    assert_int_equal(taken, 1);
    assert_int_equal(handled, 0);
    is_ours_to_take = 0;
    raise(SIGPROF);
    assert_int_equal(taken, 2);
    assert_int_equal(handled, 1);
    signal(SIGPROF, SIG_IGN);
    raise(SIGPROF);
    assert_int_equal(taken, 3);
    assert_int_equal(handled, 1);
}

static void own_flags_are_added(void **state)
{
    (void)state;
    assert_int_equal(disposition_own(SIGPROF, take, SA_ONSTACK | SA_RESTART), 0);
    struct sigaction action = {.sa_sigaction = count_info, .sa_flags = SA_SIGINFO | SA_NODEFER}, back = {0};
    assert_int_equal(sigaction(SIGPROF, &action, NULL), 0);
    assert_int_equal(in_kernel(SIGPROF).flags, SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART | KERNEL_SA_RESTORER);
    assert_int_equal(sigaction(SIGPROF, NULL, &back), 0);
    assert_int_equal(back.sa_flags, SA_SIGINFO | SA_NODEFER | KERNEL_SA_RESTORER);
}

static void given_back_it_is_the_programs(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = count_info, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND)};
    sigaddset(&action.sa_mask, SIGUSR2);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0); /* as the C library does it */
    assert_int_equal(sigaction(SIGPROF, &action, NULL), 0);
    disposition_disown(SIGPROF);
    assert_false(disposition_is_ours(SIGPROF));
    assert_false(disposition_owns(SIGPROF));
    struct kernel_action mine = in_kernel(SIGPROF), libcs = in_kernel(SIGUSR1);
    assert_int_equal(mine.handler_avma, libcs.handler_avma);
    assert_int_equal(mine.restorer_avma, libcs.restorer_avma);
    assert_int_equal(mine.mask, libcs.mask);
    assert_int_equal((uint32_t)mine.flags, (uint32_t)libcs.flags);
}

static void who_replaces_ours_keeps_his(void **state)
{
    (void)state;
    struct kernel_action raw = {.handler_avma = KERNEL_HANDLER_IGNORE};
    assert_int_equal(kernel_action_exchange(SIGPROF, &raw, NULL), 0);
    assert_false(disposition_is_ours(SIGPROF));
    struct sigaction back = {0};
    assert_int_equal(sigaction(SIGPROF, NULL, &back), 0);
    assert_ptr_equal(back.sa_handler, SIG_IGN);
    disposition_disown(SIGPROF);
    assert_int_equal(in_kernel(SIGPROF).handler_avma, KERNEL_HANDLER_IGNORE);
}

/* What the program reads back: the same of an owned signal and of one that is not. */

struct seen {
    uint64_t words[4096];
    unsigned count;
};

static void see(struct seen *seen, uint64_t word)
{
    assert_true(seen->count < sizeof seen->words / sizeof *seen->words);
    seen->words[seen->count++] = word;
}

static void see_now(struct seen *seen, int signal)
{
    struct sigaction now = {0};
    see(seen, (uint64_t)sigaction(signal, NULL, &now));
    uint64_t mask;
    memcpy(&mask, &now.sa_mask, sizeof mask);
    see(seen, (uint64_t)now.sa_handler);
    see(seen, (uint32_t)now.sa_flags);
    see(seen, mask & ~kernel_mask_of(signal));
    see(seen, mask & kernel_mask_of(signal) ? 1 : 0);
    see(seen, (uint64_t)now.sa_restorer);
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    see(seen, (uint64_t)sigismember(&blocked, signal));
}

static void see_handlers(struct seen *seen, int number, handler_function *(*set)(int, handler_function *))
{
    handler_function *const handlers[] = {count, SIG_IGN, SIG_DFL, count, SIG_ERR, SIG_HOLD, SIG_HOLD, count, SIG_DFL};
    for (unsigned i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        if (handlers[i] == SIG_HOLD && set != sigset)
            continue;
        errno = 0;
        see(seen, (uint64_t)set(number, handlers[i]));
        see(seen, (uint64_t)errno);
        see_now(seen, number);
    }
}

static void see_flags(struct seen *seen, int number, int (*set)(int, const struct sigaction *, struct sigaction *))
{
    for (unsigned bit = 0; bit < 32; bit++) {
        struct sigaction action = {.sa_flags = (int)(1u << bit)}, old = {0};
        action.sa_handler = bit % 3 ? count : SIG_IGN;
        uint64_t mask = 0x123456789abcdefull << (bit % 8) & ~(kernel_mask_of(SIGPROF) | kernel_mask_of(SIGUSR1));
        if (bit % 2)
            mask |= kernel_mask_of(number);
        memcpy(&action.sa_mask, &mask, sizeof mask);
        see(seen, (uint64_t)set(number, &action, &old));
        see(seen, (uint64_t)old.sa_handler);
        see(seen, (uint32_t)old.sa_flags);
        see_now(seen, number);
    }
}

static void see_all(struct seen *seen, int number)
{
    seen->count = 0;
    handler_function *(*const setters[])(int, handler_function *) = {signal,      bsd_signal,    ssignal,
                                                                     sysv_signal, __sysv_signal, sigset};
    signal(number, SIG_DFL);
    for (unsigned i = 0; i < sizeof setters / sizeof *setters; i++) {
        see_handlers(seen, number, setters[i]);
        for (int interrupt = 1; interrupt >= 0; interrupt--) {
            see(seen, (uint64_t)siginterrupt(number, interrupt));
            see_now(seen, number);
            see_handlers(seen, number, setters[i]);
        }
        see(seen, (uint64_t)sigignore(number));
        see_now(seen, number);
    }
    see_flags(seen, number, sigaction);
    see_flags(seen, number, __sigaction);
    signal(number, SIG_DFL);
}

static void it_reads_back_what_it_set(void **state)
{
    (void)state;
    static struct seen owned, other;
    /* Fewer than there is room for. */
    see_all(&owned, SIGPROF);
    assert_true(disposition_is_ours(SIGPROF));
    see_all(&other, SIGUSR1);
    assert_false(disposition_is_ours(SIGUSR1));
    assert_int_equal(owned.count, other.count);
    for (unsigned i = 0; i < owned.count; i++)
        if (owned.words[i] != other.words[i])
            fail_msg("word %u: %lx, not %lx", i, owned.words[i], other.words[i]);
}

static void wrong_numbers_are_errors(void **state)
{
    (void)state;
    const int wrong[] = {-1, 0, 32, 33, 65, 1 << 30};
    struct sigaction action = {.sa_handler = SIG_IGN};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        assert_int_equal(sigaction(wrong[i], &action, NULL), -1);
        assert_int_equal(errno, EINVAL);
        assert_ptr_equal(signal(wrong[i], SIG_IGN), SIG_ERR);
        assert_ptr_equal(sysv_signal(wrong[i], SIG_IGN), SIG_ERR);
        assert_ptr_equal(sigset(wrong[i], SIG_IGN), SIG_ERR);
        assert_int_equal(sigignore(wrong[i]), -1);
    }
}

static void ignoring_discards_what_is_pending(void **state)
{
    (void)state;
    const int signals[] = {SIGUSR1, SIGPROF};
    for (unsigned i = 0; i < 2; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        handled = 0;
        signal(signals[i], count);
        sigprocmask(SIG_BLOCK, &one, NULL);
        raise(signals[i]);
        assert_ptr_equal(signal(signals[i], SIG_IGN), count);
        assert_ptr_equal(signal(signals[i], count), SIG_IGN);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        assert_int_equal(handled, 0);
        raise(signals[i]);
        assert_int_equal(handled, 1);
    }
}

/* Processes */

static void a_vforked_child_changes_its_own(void **state)
{
    (void)state;
    signal(SIGPROF, count);
    static volatile int wrong;
    wrong = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        wrong += signal(SIGPROF, SIG_IGN) != count;
        wrong += signal(SIGPROF, SIG_DFL) != SIG_IGN;
        _exit(0);
    }
    assert_true(pid > 0);
    waitpid(pid, NULL, 0);
    assert_int_equal(wrong, 0);
    raise(SIGPROF);
    assert_int_equal(handled, 1);
    assert_ptr_equal(signal(SIGPROF, SIG_DFL), count);
}

static void a_forked_child_has_the_same(void **state)
{
    (void)state;
    signal(SIGPROF, count);
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGPROF);
        bool is_right = handled == 1 && taken == 1 && disposition_is_ours(SIGPROF) && signal(SIGPROF, SIG_DFL) == count;
        if (is_right)
            raise(SIGPROF);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGPROF);
    assert_ptr_equal(signal(SIGPROF, SIG_DFL), count);
}

/* Threads: the handler of one disposition is never entered with mask or stack of the other. */

enum { FLIPS = 20000, STACK_BYTES = 64 * 1024 };
static atomic_int flips_done, torn, entered;
static char *alternate;

static bool is_on_alternate(const void *place)
{
    return (size_t)((const char *)place - alternate) < STACK_BYTES;
}

static uint64_t mask_now(void)
{
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask);
    return mask;
}

static void with_stack_and_usr1(int signal)
{
    (void)signal;
    entered++;
    uint64_t mask = mask_now();
    if (!is_on_alternate(&mask) || !(mask & kernel_mask_of(SIGUSR1)) || mask & kernel_mask_of(SIGUSR2))
        torn++;
}

static void without_stack_and_usr2(int signal)
{
    (void)signal;
    entered++;
    uint64_t mask = mask_now();
    if (is_on_alternate(&mask) || mask & kernel_mask_of(SIGUSR1) || !(mask & kernel_mask_of(SIGUSR2)))
        torn++;
}

static void *raise_all_the_time(void *unused)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = STACK_BYTES};
    sigaltstack(&stack, NULL);
    while (!flips_done)
        raise(SIGPROF);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    return unused;
}

static void no_disposition_is_torn(void **state)
{
    (void)state;
    alternate = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction one = {.sa_flags = SA_ONSTACK}, other = {.sa_flags = 0};
    one.sa_handler = with_stack_and_usr1;
    sigaddset(&one.sa_mask, SIGUSR1);
    other.sa_handler = without_stack_and_usr2;
    sigaddset(&other.sa_mask, SIGUSR2);
    sigaction(SIGPROF, &one, NULL);
    flips_done = torn = entered = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_all_the_time, NULL), 0);
    for (unsigned i = 0; i < FLIPS || entered < 1000; i++)
        sigaction(SIGPROF, i % 2 ? &one : &other, NULL);
    flips_done = 1;
    pthread_join(thread, NULL);
    assert_int_equal(torn, 0);
    assert_true(disposition_is_ours(SIGPROF));
    munmap(alternate, STACK_BYTES);
}

static void a_one_time_handler_runs_once(void **state)
{
    (void)state;
    struct sigaction action = {.sa_flags = (int)SA_RESETHAND}, back = {0};
    action.sa_handler = count;
    sigaction(SIGPROF, &action, NULL);
    raise(SIGPROF);
    assert_int_equal(handled, 1);
    sigaction(SIGPROF, NULL, &back);
    assert_ptr_equal(back.sa_handler, SIG_DFL);
    assert_int_equal((unsigned)back.sa_flags, SA_RESETHAND | KERNEL_SA_RESTORER);
    assert_true(disposition_is_ours(SIGPROF));
}

/* Of threads that raise it at once one has the handler, and the others end the process. */

enum { THREADS = 4, RACES = 50 };
static atomic_int *shared_count;
static pthread_barrier_t barrier;

static void count_shared(int signal)
{
    (void)signal;
    atomic_fetch_add(shared_count, 1);
}

static void *raise_together(void *unused)
{
    pthread_barrier_wait(&barrier);
    raise(SIGPROF);
    return unused;
}

static void race(void)
{
    struct sigaction action = {.sa_flags = (int)SA_RESETHAND};
    pthread_t threads[THREADS];
    action.sa_handler = count_shared;
    sigaction(SIGPROF, &action, NULL);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, raise_together, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(1);
}

static void threads_share_a_one_time_handler(void **state)
{
    (void)state;
    shared_count = mmap(NULL, sizeof *shared_count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < RACES; i++) {
        atomic_store(shared_count, 0);
        pid_t pid = fork();
        if (pid == 0)
            race();
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGPROF);
        assert_in_range(atomic_load(shared_count), 0, 1); /* 0: it was ended before it came to counting */
    }
    munmap(shared_count, sizeof *shared_count);
}

/* The guard */

static void set_on_stack(int number, int flags)
{
    struct sigaction action = {.sa_sigaction = count_info, .sa_flags = SA_SIGINFO | flags};
    sigaddset(&action.sa_mask, SIGTERM);
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static void assert_guarded(int number, bool is_guarded)
{
    struct sigaction back = {0};
    assert_int_equal(sigaction(number, NULL, &back), 0);
    assert_int_equal(sigismember(&back.sa_mask, SIGPROF), 0);
    assert_int_equal(sigismember(&back.sa_mask, SIGTERM), 1);
    assert_int_equal((uint64_t)back.sa_restorer, disposition_restorer_avma());
    assert_int_equal(in_kernel(number).mask, kernel_mask_of(SIGTERM) | (is_guarded ? kernel_mask_of(SIGPROF) : 0));
}

static void handlers_on_small_stacks_are_guarded(void **state)
{
    (void)state;
    set_on_stack(SIGUSR1, SA_ONSTACK);
    assert_guarded(SIGUSR1, false);
    disposition_set_guard(SIGPROF);
    assert_guarded(SIGUSR1, true); /* was there */
    set_on_stack(SIGUSR2, SA_ONSTACK);
    assert_guarded(SIGUSR2, true);
    raise(SIGUSR2);
    assert_int_equal(handled, 1);
    assert_int_equal(siginterrupt(SIGUSR2, 0), 0);
    assert_guarded(SIGUSR2, true);
    struct sigaction old = {0};
    assert_int_equal(sigaction(SIGUSR2, NULL, &old), 0);
    assert_int_equal(old.sa_flags, SA_SIGINFO | SA_ONSTACK | SA_RESTART | KERNEL_SA_RESTORER);
    assert_int_equal(sigaction(SIGUSR2, &old, NULL), 0);
    assert_guarded(SIGUSR2, true);
    set_on_stack(SIGUSR2, 0);
    assert_guarded(SIGUSR2, false);
    set_on_stack(SIGUSR2, SA_ONSTACK);
    assert_int_equal(disposition_own(SIGUSR2, take, 0), 0); /* guarded before it was owned */
    assert_guarded(SIGUSR2, true);
    disposition_set_guard(0);
    assert_guarded(SIGUSR1, false);
    assert_guarded(SIGUSR2, false);
    disposition_disown(SIGUSR2);
    assert_guarded(SIGUSR2, false);
    signal(SIGUSR2, SIG_DFL);
}

/* The last: there is no room for others behind it. */
static void without_room_the_program_has_its_own(void **state)
{
    (void)state;
    unsigned set = 0;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_ONSTACK}, back;
    while (disposition_is_ours(SIGPROF) && set <= DISPOSITION_RECORDS) {
        uint64_t mask = 0x100000000 + set++;
        memcpy(&action.sa_mask, &mask, sizeof mask);
        assert_int_equal(sigaction(SIGPROF, &action, NULL), 0);
        assert_int_equal(sigaction(SIGPROF, NULL, &back), 0);
        assert_memory_equal(&action.sa_mask, &back.sa_mask, sizeof mask);
        handled = 0;
        raise(SIGPROF);
        assert_int_equal(handled, 1);
    }
    assert_false(disposition_is_ours(SIGPROF));
    assert_false(disposition_seems_ours(SIGPROF));
    /* What there was once still is. */
    uint64_t first = 0x100000000;
    memcpy(&action.sa_mask, &first, sizeof first);
    assert_int_equal(sigaction(SIGPROF, &action, NULL), 0);
    assert_true(disposition_is_ours(SIGPROF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_some_can_be_owned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_taken_stays_from_the_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(own_flags_are_added, set_up, tear_down),
        cmocka_unit_test_setup_teardown(given_back_it_is_the_programs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_replaces_ours_keeps_his, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_reads_back_what_it_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_numbers_are_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ignoring_discards_what_is_pending, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_vforked_child_changes_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_forked_child_has_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_disposition_is_torn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_one_time_handler_runs_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_share_a_one_time_handler, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handlers_on_small_stacks_are_guarded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_room_the_program_has_its_own, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
