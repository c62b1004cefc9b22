/* What the kernel tells of threads by BPF, against their files in /proc and against what they have in their registers
 * and on their stacks. */
#include "child.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/kernelview.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

enum { WAITING = 3, INTERRUPTED = 50 };

/* For what needs a CPU on which many others may be. */
#define LONG_NS (30 * NS_PER_SEC)

static struct kernelview view = {.is_wanted = true};

/* Loads once, for all tests. Skips where it is not built, not permitted, or not in this kernel. */
static struct kernelview *open_view(void)
{
    kernelview_open(&view, LONG_NS);
    if (!kernelview_is_open(&view))
        skip();
    return &view;
}

static struct thread *add_thread(struct targets *targets, pid_t pid, pid_t tid)
{
    struct process *process = targets_find_process(targets, pid);
    if (!process)
        assert_int_equal(targets_add_process(targets, pid, procfs_open_process(pid), false, &process), 0);
    assert_int_equal(targets_add_thread(targets, process, tid, false, 0.5), 0);
    return targets_find_thread(targets, tid);
}

static char state_of(const struct thread *thread)
{
    struct procfs_stat stat;
    assert_int_equal(thread_read_stat(thread, &stat), 0);
    return stat.state;
}

_Noreturn static void sleep_named(struct child_page *page)
{
    prctl(PR_SET_NAME, "a (name) x");
    page->ready = 1;
    for (;;)
        pause();
}

/* A child that sleeps, and what is known of it. */
struct sleeper {
    struct child child;
    struct targets targets;
    struct thread *thread;
};

static void begin_sleeper(struct sleeper *sleeper)
{
    sleeper->child = child_start(sleep_named);
    assert_int_equal(targets_init(&sleeper->targets), 0);
    sleeper->thread = add_thread(&sleeper->targets, sleeper->child.pid, sleeper->child.pid);
    while (state_of(sleeper->thread) != 'S')
        sched_yield();
}

/* State, name, image and counters are those of /proc. */
static void assert_same_as_files(struct thread *thread)
{
    struct procfs_stat stat;
    struct procfs_schedstat counters;
    do /* its state is set a little before it leaves its CPU */
        kernelview_look(&view, &thread, 1, 76, KERNELVIEW_READS_NOBODY);
    while (thread->told_on_cpu);
    assert_int_equal(thread_read_stat(thread, &stat), 0);
    assert_int_equal(thread_read_schedstat(thread, &counters), 0);
    kernelview_look(&view, &thread, 1, 77, KERNELVIEW_READS_NOBODY);
    assert_true(thread->has_fresh);
    assert_int_equal(thread->told_ns, 77);
    assert_int_equal(thread->told_stat.state, stat.state);
    assert_string_equal(thread->told_stat.comm, stat.comm);
    assert_int_equal(thread->told_stat.flags, stat.flags);
    assert_int_equal(thread->told_stat.image_hash, stat.image_hash);
    assert_int_equal(thread->told_stat.processor, stat.processor);
    assert_int_equal(thread->fresh.run_ns, counters.run_ns);
    assert_int_equal(thread->fresh.wait_ns, counters.wait_ns);
    assert_int_equal(thread->fresh.slices, counters.slices);
    assert_false(thread->told_on_cpu);
}

static void test_as_in_files(void **state)
{
    (void)state;
    open_view();
    struct sleeper sleeper;
    begin_sleeper(&sleeper);
    struct thread *thread = sleeper.thread;
    assert_same_as_files(thread);
    kill(sleeper.child.pid, SIGSTOP);
    while (state_of(thread) != 'T')
        sched_yield();
    assert_same_as_files(thread);
    thread->has_fresh = false;
    thread->told_ns = 0;
    kill(sleeper.child.pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)sleeper.child.pid, &info, WEXITED | WNOWAIT), 0);
    kernelview_look(&view, &thread, 1, 78, KERNELVIEW_READS_NOBODY);
    assert_int_equal(thread->told_ns, 78);
    assert_int_equal(thread->told_stat.state, 'Z');
    thread->has_fresh = false;
    struct told told;
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.is_known);
    assert_false(told.has_registers); /* it has no memory any more */
    child_end(&sleeper.child);
    kernelview_look(&view, &thread, 1, 79, KERNELVIEW_READS_NOBODY);
    assert_int_equal(thread->told_ns, 78); /* it is gone */
    kernelview_read(&view, &thread, 1, &told);
    assert_false(told.is_known);
    targets_deinit(&sleeper.targets);
}

/* Numbers are used again: another thread under the same one is not told of. */
static void test_other_thread(void **state)
{
    (void)state;
    open_view();
    struct sleeper sleeper;
    begin_sleeper(&sleeper);
    struct thread *thread = sleeper.thread;
    thread->last.run_ns += 1000000000; /* never seen so little of it */
    kernelview_look(&view, &thread, 1, 1, KERNELVIEW_READS_NOBODY);
    assert_false(thread->has_fresh);
    thread->last.run_ns -= 1000000000;
    kernelview_look(&view, &thread, 1, 2, KERNELVIEW_READS_NOBODY);
    assert_true(thread->has_fresh);
    assert_true(thread->began_ns > 0);
    struct told told;
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.is_known);
    thread->began_ns--;
    kernelview_read(&view, &thread, 1, &told);
    assert_false(told.is_known);
    thread->began_ns++;
    thread->process->unreadable = true;
    kernelview_read(&view, &thread, 1, &told);
    assert_false(told.is_known);
    child_end(&sleeper.child);
    targets_deinit(&sleeper.targets);
}

static atomic_int tids[WAITING];
static _Atomic uint64_t stack_words[WAITING]; /* where each has its mark */
static int pipe_fds[2];
static atomic_bool has_end;

#define REGISTER_NUMBERS                                                                                               \
    "push %%rbx\n\tpush %%rbp\n\tmov $0x1111, %%ebx\n\tmov $0x2222, %%ebp\n\tmov $0x3333, %%r12d\n\t"                  \
    "mov $0x4444, %%r13d\n\tmov $0x5555, %%r14d\n\tmov $0x6666, %%r15d\n\t"

static void assert_numbers(const struct told *told)
{
    assert_int_equal(told->registers.known, REGISTERS_ALL & ~(1U << REGISTER_RAX));
    assert_int_equal(told->registers.value[REGISTER_RBX], 0x1111);
    assert_int_equal(told->registers.value[REGISTER_RBP], 0x2222);
    assert_int_equal(told->registers.value[REGISTER_R12], 0x3333);
    assert_int_equal(told->registers.value[REGISTER_R13], 0x4444);
    assert_int_equal(told->registers.value[REGISTER_R14], 0x5555);
    assert_int_equal(told->registers.value[REGISTER_R15], 0x6666);
}

static void *sleep_with_numbers(void *argument)
{
    char byte;
    volatile uint64_t mark = 0x6d61726bULL;
    stack_words[0] = (uint64_t)(uintptr_t)&mark;
    tids[0] = (int)gettid();
    __asm__ volatile(REGISTER_NUMBERS "syscall\n\tpop %%rbp\n\tpop %%rbx"
                     :
                     : "a"(SYS_read), "D"(pipe_fds[0]), "S"(&byte), "d"(1)
                     : "r12", "r13", "r14", "r15", "rcx", "r11", "memory", "cc");
    return argument;
}

static uint64_t word_at(const struct told *told, uint64_t avma)
{
    uint64_t word;
    assert_true(avma >= told->stack_avma && avma - told->stack_avma + sizeof(word) <= told->stack_bytes);
    memcpy(&word, told->stack + (avma - told->stack_avma), sizeof(word));
    return word;
}

static void test_sleeper(void **state)
{
    (void)state;
    open_view();
    pthread_t sleeper;
    struct targets targets;
    struct told told;
    assert_int_equal(targets_init(&targets), 0);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, sleep_with_numbers, NULL), 0);
    while (!tids[0])
        sched_yield();
    struct thread *thread = add_thread(&targets, getpid(), tids[0]);
    struct procfs_syscall call;
    while (thread_read_syscall(thread, &call) || call.number != SYS_read || call.arguments[0] != (uint64_t)pipe_fds[0])
        sched_yield();
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.is_known && told.has_registers && !told.is_on_cpu);
    assert_int_equal(told.stat.state, 'S');
    assert_int_equal(told.call, SYS_read);
    assert_numbers(&told);
    assert_int_equal(told.registers.value[REGISTER_RSP], call.sp_avma);
    assert_int_equal(told.registers.value[REGISTER_PC], call.pc_avma);
    /* Where its stack is nobody has said: what there is, up to a page's end. */
    uint64_t mark_avma = stack_words[0];
    assert_false(told.is_where_it_was);
    assert_int_equal(told.stack_avma, call.sp_avma - 128);
    assert_int_equal(word_at(&told, mark_avma), 0x6d61726b);
    assert_true(told.stack_bytes >= 4096 && (told.stack_avma + told.stack_bytes) % 4096 == 0);
    /* From the red zone up to the end of the stack, */
    thread->stack = (struct extent){.start_avma = call.sp_avma - 4096, .end_avma = mark_avma + 256};
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.is_where_it_was);
    assert_int_equal(told.stack_avma, call.sp_avma - 128);
    assert_int_equal(told.stack_avma + told.stack_bytes, mark_avma + 256);
    assert_int_equal(word_at(&told, mark_avma), 0x6d61726b);
    /* where it begins, if that is in the red zone, */
    thread->stack.start_avma = call.sp_avma - 64;
    kernelview_read(&view, &thread, 1, &told);
    assert_int_equal(told.stack_avma, call.sp_avma - 64);
    /* as far as was needed, */
    thread->shared->top_avma = call.sp_avma + 64;
    thread->stack.end_avma = call.sp_avma + (1 << 12);
    kernelview_read(&view, &thread, 1, &told);
    assert_int_equal(told.stack_avma + told.stack_bytes, call.sp_avma + 64 + 1024);
    thread->shared->top_avma = 0;
    /* or as much as is wanted. */
    thread->shared->copy_bytes = 512;
    kernelview_read(&view, &thread, 1, &told);
    assert_int_equal(told.stack_bytes, 512);
    /* What is more than has room comes without the stack. */
    thread->shared->copy_bytes = BPF_LOOK_STACK_BYTES + 1;
    thread->stack.end_avma = call.sp_avma + (1 << 20);
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.has_registers && told.is_where_it_was);
    assert_int_equal(told.stack_bytes, 0);
    /* In a signal handler it is another stack that counts: the word that leads there lies above the stack pointer. */
    thread->stack = (struct extent){.start_avma = call.sp_avma - 4096, .end_avma = mark_avma + 256};
    thread->shared->interrupted_sp_at_avma = call.sp_avma + 256;
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.has_registers);
    assert_true(told.is_in_handler);
    assert_int_equal(told.stack_bytes, 0);
    thread->shared->interrupted_sp_at_avma = call.sp_avma - 8; /* there it was once */
    kernelview_read(&view, &thread, 1, &told);
    assert_true(told.is_where_it_was);
    assert_false(told.is_in_handler);
    assert_true(told.stack_bytes > 0);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    pthread_join(sleeper, NULL);
    do /* joined is a little before gone */
        kernelview_read(&view, &thread, 1, &told);
    while (told.is_known);
    targets_deinit(&targets);
}

/* Never sleeps. On its stack is a count that it keeps twice: two equal words at each moment but the one between. */
static void *spin_with_numbers(void *argument)
{
    int number = (int)(intptr_t)argument;
    volatile uint64_t words[2] = {0x6d61726bULL, 0};
    stack_words[number] = (uint64_t)(uintptr_t)words;
    tids[number] = (int)gettid();
    __asm__ volatile(REGISTER_NUMBERS
                     "1:\n\tincq 8(%0)\n\tmov $100, %%ecx\n\t2:\n\tdec %%ecx\n\tjnz 2b\n\tcmpb $0, (%1)\n\tje 1b\n\t"
                     "pop %%rbp\n\tpop %%rbx"
                     :
                     : "S"(words), "D"(&has_end)
                     : "r12", "r13", "r14", "r15", "rcx", "memory", "cc");
    return NULL;
}

static void assert_each_has_its_stack(const struct told told[WAITING])
{
    for (int i = 0; i < WAITING; i++) {
        for (int j = 0; j < i; j++)
            assert_true(!told[i].has_registers || !told[j].has_registers || told[i].stack != told[j].stack);
    }
}

/*
 * Some threads on one CPU, one of them on it at a time. Those that wait tell what they have in their registers and on
 * their stacks; who runs does not, or has not told anything that it could have changed meanwhile: its count on the
 * stack grows with its run time only.
 */
static void test_who_waits_for_a_cpu(void **state)
{
    (void)state;
    open_view();
    pthread_t spinners[WAITING];
    struct thread *threads[WAITING];
    struct targets targets;
    cpu_set_t first;
    pthread_attr_t attributes;
    assert_int_equal(targets_init(&targets), 0);
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &all))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET((size_t)cpu, &first);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(first), &first);
    for (int i = 0; i < WAITING; i++) {
        tids[i] = 0;
        assert_int_equal(pthread_create(&spinners[i], &attributes, spin_with_numbers, (void *)(intptr_t)i), 0);
    }
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < WAITING; i++) {
        while (!tids[i])
            usleep(100);
        threads[i] = add_thread(&targets, getpid(), tids[i]);
        threads[i]->stack = (struct extent){.start_avma = stack_words[i] - (1 << 14),
                                            .end_avma = stack_words[i] + 2 * sizeof(uint64_t)};
    }
    uint64_t count[WAITING] = {0};
    struct procfs_schedstat before[WAITING] = {{0}};
    unsigned told_in_all = 0;
    unsigned ran[WAITING] = {0};
    uint64_t until_ns = clock_now_ns() + LONG_NS;
    while ((told_in_all < 1000 || !ran[0] || !ran[1] || !ran[2]) && clock_now_ns() < until_ns) {
        struct told told[WAITING];
        kernelview_read(&view, threads, WAITING, told);
        assert_each_has_its_stack(told);
        for (int i = 0; i < WAITING; i++) {
            assert_true(told[i].is_known);
            assert_int_equal(told[i].stat.state, 'R');
            if (!told[i].has_registers)
                continue;
            assert_int_equal(told[i].is_on_cpu, told[i].interruption.ended_ns != 0);
            if (told[i].registers.value[REGISTER_RBX] != 0x1111)
                continue; /* on its way into the loop */
            told_in_all++;
            assert_numbers(&told[i]);
            assert_int_equal(word_at(&told[i], stack_words[i]), 0x6d61726b);
            if (told[i].is_on_cpu)
                continue; /* that one moves on */
            uint64_t now = word_at(&told[i], stack_words[i] + 8);
            if (told[i].counters.slices == before[i].slices && told[i].counters.run_ns == before[i].run_ns)
                assert_int_equal(now, count[i]); /* it has not had a turn in between */
            else
                ran[i]++;
            before[i] = told[i].counters;
            count[i] = now;
        }
        usleep(100);
    }
    has_end = true;
    for (int i = 0; i < WAITING; i++)
        pthread_join(spinners[i], NULL);
    assert_true(told_in_all >= 1000);
    assert_true(ran[0] > 0 && ran[1] > 0 && ran[2] > 0);
    targets_deinit(&targets);
}

/* The second one of the CPUs that this process may use; skips where there is one only. */
static cpu_set_t second_cpu(void)
{
    cpu_set_t all;
    cpu_set_t second;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    size_t cpu = 0;
    for (int found = 0; found < 2; cpu++)
        found += CPU_ISSET(cpu, &all);
    CPU_ZERO(&second);
    CPU_SET(cpu - 1, &second);
    return second;
}

/* Who runs alone on its CPU runs nearly always; its CPU is interrupted for its registers, and it goes on. */
static void test_who_runs(void **state)
{
    (void)state;
    open_view();
    cpu_set_t there = second_cpu();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(there), &there);
    tids[0] = 0;
    has_end = false;
    pthread_t spinner;
    assert_int_equal(pthread_create(&spinner, &attributes, spin_with_numbers, (void *)0), 0);
    pthread_attr_destroy(&attributes);
    while (!tids[0])
        usleep(100);
    struct targets targets;
    assert_int_equal(targets_init(&targets), 0);
    struct thread *thread = add_thread(&targets, getpid(), tids[0]);
    thread->stack =
        (struct extent){.start_avma = stack_words[0] - (1 << 14), .end_avma = stack_words[0] + 2 * sizeof(uint64_t)};
    uint64_t count = 0;
    unsigned interrupted = 0;
    unsigned went_on = 0; /* interrupted again at once it may not have come far */
    struct told told;
    uint64_t until_ns = clock_now_ns() + LONG_NS;
    while (interrupted < INTERRUPTED && clock_now_ns() < until_ns) {
        kernelview_read(&view, &thread, 1, &told);
        assert_true(told.is_known);
        usleep(100);
        if (!told.has_registers || !told.interruption.ended_ns || told.registers.value[REGISTER_RBX] != 0x1111)
            continue;
        assert_numbers(&told);
        assert_int_equal(word_at(&told, stack_words[0]), 0x6d61726b);
        assert_true(word_at(&told, stack_words[0] + 8) >= count);
        went_on += word_at(&told, stack_words[0] + 8) > count;
        assert_true(CPU_ISSET((size_t)told.stat.processor, &there));
        assert_true(told.is_on_cpu && told.interruption.asked_ns <= told.interruption.began_ns &&
                    told.interruption.began_ns < told.interruption.ended_ns);
        count = word_at(&told, stack_words[0] + 8);
        interrupted++;
    }
    assert_int_equal(interrupted, INTERRUPTED);
    assert_true(went_on > INTERRUPTED / 2);
    has_end = true;
    pthread_join(spinner, NULL);
    targets_deinit(&targets);
}

/* A CPU that is not there, or runs something else: nothing is told. */
static void test_not_there(void **state)
{
    (void)state;
    open_view();
    struct sleeper sleeper;
    begin_sleeper(&sleeper);
    struct bpf_look *look = bpflook_slot(view.bpflook, 0);
    assert_false(bpflook_read_running(view.bpflook, 0, CPU_SETSIZE));
    assert_false(bpflook_read_running(view.bpflook, 0, -1));
    *look = (struct bpf_look){.tid = (unsigned)sleeper.child.pid, .wants = BPF_LOOK_REGISTERS};
    assert_true(bpflook_read_running(view.bpflook, 0, 0));
    assert_false(look->is_there);
    assert_false(look->has_registers);
    child_end(&sleeper.child);
    targets_deinit(&sleeper.targets);
}

/* Of whom registers are likely to be wanted, the look tells them too; they are of then. */
static void test_read_at_the_look(void **state)
{
    (void)state;
    open_view();
    struct sleeper sleepers[2];
    struct thread *threads[2];
    struct told told[2];
    for (size_t i = 0; i < 2; i++) {
        begin_sleeper(&sleepers[i]);
        threads[i] = sleepers[i].thread;
        threads[i]->is_wanted = true;
    }
    do
        kernelview_look(&view, threads, 2, 1, KERNELVIEW_READS_NOBODY);
    while (threads[0]->told_on_cpu || threads[1]->told_on_cpu);
    for (size_t i = 0; i < 2; i++)
        threads[i]->last = threads[i]->fresh;

    /* The first one has not moved since its kept sample; it is read when that is asked. */
    threads[0]->is_kept = true;
    kernelview_look(&view, threads, 2, 2, KERNELVIEW_READS_MOVED);
    child_end(&sleepers[1].child);
    kernelview_read(&view, threads, 2, told);
    assert_true(told[0].is_known && told[0].has_registers);
    assert_int_equal(told[0].call, SYS_pause);
    assert_true(told[1].is_known && told[1].has_registers); /* as the look told */
    assert_int_equal(told[1].call, SYS_pause);
    assert_true(told[1].stack_bytes > 0 && told[1].stack != told[0].stack);
    assert_int_equal(told[1].counters.slices, threads[1]->last.slices);
    kernelview_read(&view, &threads[1], 1, told);
    assert_false(told[0].is_known);

    /* It has moved, by what is known of it. Told of it is the look before its end. */
    threads[0]->last.run_ns--;
    kernelview_look(&view, threads, 1, 3, KERNELVIEW_READS_MOVED);
    threads[0]->last.run_ns++;
    child_end(&sleepers[0].child);
    struct thread *both[] = {threads[1], threads[0]}; /* each has its own slot, in whatever order */
    kernelview_read(&view, both, 2, told);
    assert_false(told[0].is_known);
    assert_true(told[1].is_known && told[1].has_registers);
    for (size_t i = 0; i < 2; i++)
        targets_deinit(&sleepers[i].targets);
}

/* One that sleeps is not read where only those are wanted that may run. */
static void test_only_runnable(void **state)
{
    (void)state;
    open_view();
    struct sleeper sleeper;
    begin_sleeper(&sleeper);
    sleeper.thread->is_wanted = true;
    struct told told;
    do
        kernelview_look(&view, &sleeper.thread, 1, 1, KERNELVIEW_READS_RUNNABLE);
    while (sleeper.thread->told_on_cpu);
    child_end(&sleeper.child);
    kernelview_read(&view, &sleeper.thread, 1, &told);
    assert_false(told.is_known);
    targets_deinit(&sleeper.targets);
}

static void test_shut(void **state)
{
    (void)state;
    struct kernelview shut = {0};
    struct thread thread = {.tid = (pid_t)getpid()};
    struct thread *threads[] = {&thread};
    struct told told = {.is_known = true};
    kernelview_open(&shut, LONG_NS);
    kernelview_begin_tick(&shut, 1);
    assert_null(shut.bpflook);
    struct kernelview late = {.is_wanted = true, .delay_ns = 100};
    kernelview_begin_tick(&late, 1000);
    kernelview_begin_tick(&late, 1099);
    assert_null(late.bpflook);
    assert_false(kernelview_is_open(&shut));
    assert_false(kernelview_is_open(NULL));
    kernelview_look(&shut, threads, 1, 1, KERNELVIEW_READS_NOBODY);
    kernelview_look(NULL, threads, 1, 1, KERNELVIEW_READS_NOBODY);
    assert_false(thread.has_fresh);
    kernelview_read(&shut, threads, 1, &told);
    assert_false(told.is_known);
    kernelview_deinit(&shut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shut),
        cmocka_unit_test(test_as_in_files),
        cmocka_unit_test(test_other_thread),
        cmocka_unit_test(test_sleeper),
        cmocka_unit_test(test_who_waits_for_a_cpu),
        cmocka_unit_test(test_who_runs),
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_read_at_the_look),
        cmocka_unit_test(test_only_runnable),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernelview_deinit(&view);
    return failed;
}
