/*
 * Every single instruction of a child: prologues, epilogues, lazily bound PLT entries and the resolver behind them,
 * vfork, libc. At each of them the walk must come to the function that is stepped through, and to its caller right
 * behind it.
 */
#include "cmocka_all.h"

#include "self_target.h"
#include "unwind/unwind.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 16, STEPS_MAX = 2000000 };

/* The sanitizer's own functions, which replace those of libc, have no unwind information: there, only that nothing
 * breaks. */
#ifdef __has_feature
#define FEATURE(x) __has_feature(x)
#else
#define FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || FEATURE(address_sanitizer)
static const bool judged = false;
#else
static const bool judged = true;
#endif

static struct self_target self;

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Not inlined and not a tail call; library functions that nothing has called before, so that each is bound here. */
__attribute__((noinline)) static void stepped(const char *text)
{
    int numbers[] = {4, 8, 1, 9, 2, 7};
    qsort(numbers, 6, sizeof(numbers[0]), compare);
    char line[100];
    snprintf(line, sizeof(line), "%g %s %d", strtod(text, NULL), text, numbers[0]);
    free(strdup(line));
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noreturn)) static void be_stepped(void)
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    stepped("1.5e10");
    _exit(0);
}

static bool child_step(pid_t pid, struct user_regs_struct *ret)
{
    int status;
    return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) &&
           ptrace(PTRACE_GETREGS, pid, NULL, ret) == 0;
}

static struct snapshot take_snapshot(pid_t pid, const struct user_regs_struct *regs, uint8_t *copy)
{
    uint64_t start = regs->rsp - 128;
    struct iovec local = {.iov_base = copy, .iov_len = COPY_BYTES};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)start, .iov_len = COPY_BYTES};
    ssize_t size = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    assert_true(size > 128);
    return (struct snapshot){
        .registers = {.value = {regs->rax, regs->rdx, regs->rcx, regs->rbx, regs->rsi, regs->rdi, regs->rbp, regs->rsp,
                                regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15,
                                regs->rip},
                      .known = (1U << REGISTER_COUNT) - 1},
        .stack_start_avma = start,
        .stack_end_avma = start + (uint64_t)size,
        .ranges = {{.avma = start, .bytes = copy, .size = (size_t)size}},
        .range_count = 1,
    };
}

/* The frame of the function, then the one that it returns to, then the rest of main's stack. */
static bool has_both(const struct stack *stack, uint64_t return_avma)
{
    for (size_t i = 1; i < stack->count; i++) {
        if (stack->frames[i].avma != return_avma)
            continue;
        uint64_t inner = stack->frames[i - 1].avma;
        return inner >= (uintptr_t)stepped && inner < (uintptr_t)stepped + 2048;
    }
    return false;
}

static void every_instruction_has_the_right_callers(void **state)
{
    (void)state;
    static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_DWARF};
    struct unwinder *unwinders[2];
    struct unwind_space *spaces[2];
    struct stack stack = {0};
    for (size_t i = 0; i < 2; i++) {
        unwinders[i] = unwinder_new(modes[i], 200);
        assert_non_null(unwinders[i]);
        spaces[i] = unwind_space_new(unwinders[i]);
        assert_non_null(spaces[i]);
    }
    uint8_t *copy = malloc(COPY_BYTES);
    assert_non_null(copy);
    pid_t pid = fork();
    if (pid == 0)
        be_stepped();
    assert_true(pid > 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));

    struct user_regs_struct regs = {0};
    while (regs.rip != (uintptr_t)stepped)
        assert_true(child_step(pid, &regs));
    uint64_t return_avma = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, (void *)(uintptr_t)regs.rsp, NULL);
    size_t steps = 0;
    size_t wrong = 0;
    while (regs.rip != return_avma && steps < STEPS_MAX) {
        struct snapshot snapshot = take_snapshot(pid, &regs, copy);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(unwind_walk(unwinders[i], spaces[i], &self.map, &snapshot, NULL, &stack), 0);
            if (!judged || (stack.end == STACK_COMPLETE && has_both(&stack, return_avma)))
                continue;
            if (wrong++ < 10)
                print_message("mode %d at %#llx: %s, %zu frames\n", (int)modes[i], regs.rip, stack_end_name(stack.end),
                              stack.count);
        }
        steps++;
        assert_true(child_step(pid, &regs));
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    print_message("%zu steps\n", steps);
    assert_true(steps > 2000 && steps < STEPS_MAX);
    assert_int_equal(wrong, 0);
    free(copy);
    stack_deinit(&stack);
    for (size_t i = 0; i < 2; i++) {
        unwind_space_free(spaces[i]);
        unwinder_free(unwinders[i]);
    }
}

static int load(void **state)
{
    (void)state;
    return self_target_load(&self);
}

static int unload(void **state)
{
    (void)state;
    self_target_unload(&self);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_instruction_has_the_right_callers)};
    return cmocka_run_group_tests(tests, load, unload) ? 1 : 0;
}
