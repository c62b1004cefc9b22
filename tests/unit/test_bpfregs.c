/* A thread that enters a system call with numbers of the test's choice in all registers that a call preserves. */
#include "cmocka_all.h"

#include "sampler/bpfregs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int tid;
static int pipe_fds[2];

static void *sleep_with_numbers(void *argument)
{
    char byte;
    tid = (int)gettid();
    __asm__ volatile("push %%rbx\n\tpush %%rbp\n\t"
                     "mov $0x1111, %%ebx\n\tmov $0x2222, %%ebp\n\tmov $0x3333, %%r12d\n\tmov $0x4444, %%r13d\n\t"
                     "mov $0x5555, %%r14d\n\tmov $0x6666, %%r15d\n\t"
                     "syscall\n\t"
                     "pop %%rbp\n\tpop %%rbx"
                     :
                     : "a"(SYS_read), "D"(pipe_fds[0]), "S"(&byte), "d"(1)
                     : "r12", "r13", "r14", "r15", "rcx", "r11", "memory", "cc");
    return argument;
}

static bool is_asleep(pid_t thread)
{
    char path[64];
    char text[64] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    bool ok = fgets(text, sizeof(text), file) && text[0] == '0' && text[1] == ' ';
    fclose(file);
    return ok;
}

static void test_registers(void **state)
{
    (void)state;
    struct bpfregs *bpfregs = bpfregs_new();
    if (!bpfregs)
        skip(); /* not built, not permitted, or another kernel */
    pthread_t thread;
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(pthread_create(&thread, NULL, sleep_with_numbers, NULL), 0);
    while (!tid || !is_asleep(tid))
        sched_yield();
    struct registers told;
    assert_true(bpfregs_read(bpfregs, tid, &told));
    assert_int_equal(told.known, REGISTERS_ALL & ~(1U << REGISTER_RAX));
    assert_int_equal(told.value[REGISTER_RBX], 0x1111);
    assert_int_equal(told.value[REGISTER_RBP], 0x2222);
    assert_int_equal(told.value[REGISTER_R12], 0x3333);
    assert_int_equal(told.value[REGISTER_R13], 0x4444);
    assert_int_equal(told.value[REGISTER_R14], 0x5555);
    assert_int_equal(told.value[REGISTER_R15], 0x6666);
    assert_int_equal(told.value[REGISTER_RDX], 1);
    assert_int_equal(told.value[REGISTER_RCX], told.value[REGISTER_PC]); /* by the instruction itself */
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    pthread_join(thread, NULL);
    assert_false(bpfregs_read(bpfregs, tid, &told));
    bpfregs_free(bpfregs);
}

static void test_nobody(void **state)
{
    (void)state;
    bpfregs_free(NULL);
    struct bpfregs *bpfregs = bpfregs_new();
    if (!bpfregs)
        skip();
    struct registers told;
    assert_false(bpfregs_read(bpfregs, 0x3fffffff, &told));
    assert_false(bpfregs_read(bpfregs, 2, &told)); /* a kernel thread has none */
    bpfregs_free(bpfregs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
