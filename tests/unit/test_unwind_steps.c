/*
 * Every single instruction of a child: prologues, epilogues, lazily bound PLT entries and the resolver behind them,
 * vfork, libc. At each of them the walk must come to the function that is stepped through, and to its caller right
 * behind it. The same for functions with frame pointers and without unwind information (unwind_steps_bare.c): there
 * only the instructions themselves tell where the frame pointer is not that of the function yet, or not any more.
 */
#include "cmocka_all.h"

#include "self_target.h"
#include "unwind/unwind.h"
#include "unwind_steps_bare.h"

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

/* The child's part: `function` is stepped through. */
__attribute__((noreturn)) static void be_stepped(void (*function)(const char *text))
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    function("1.5e10");
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

/* What a walk found where the child stands. */
struct place {
    enum unwind_mode mode;
    const struct stack *stack;
    uint64_t return_avma; /* of the function that is stepped through */
};

/* The frame of the function, then the one that it returns to, then the rest of main's stack. */
static bool has_both(const struct place *place)
{
    const struct stack *stack = place->stack;
    if (!judged)
        return true;
    for (size_t i = 1; i < stack->count && stack->end == STACK_COMPLETE; i++) {
        if (stack->frames[i].avma != place->return_avma)
            continue;
        uint64_t inner = stack->frames[i - 1].avma;
        return inner >= (uintptr_t)stepped && inner < (uintptr_t)stepped + 2048;
    }
    return false;
}

static bool lies_in(uint64_t avma, const char *start, const char *end)
{
    return avma >= (uintptr_t)start && avma < (uintptr_t)end;
}

static bool is_frame(const struct stack *stack, size_t n, const char *start, const char *end)
{
    return n < stack->count && lies_in(frame_lookup_avma(stack->frames[n].avma, stack->frames[n].exact), start, end);
}

/* From frame n on: outer, and what it was called from. */
static bool goes_on_with_outer(const struct place *place, size_t n)
{
    return is_frame(place->stack, n, __start_bare_outer_code, __stop_bare_outer_code) && n + 1 < place->stack->count &&
           place->stack->frames[n + 1].avma == place->return_avma;
}

static bool goes_on_with_middle(const struct place *place, size_t n)
{
    return is_frame(place->stack, n, __start_bare_middle_code, __stop_bare_middle_code) &&
           goes_on_with_outer(place, n + 1);
}

static bool has_middle_and_outer(const struct place *place)
{
    uint64_t pc = place->stack->frames[0].avma;
    if (lies_in(pc, __start_bare_outer_code, __stop_bare_outer_code))
        return goes_on_with_outer(place, 0);
    if (lies_in(pc, __start_bare_middle_code, __stop_bare_middle_code))
        return goes_on_with_middle(place, 0);
    if (lies_in(pc, bare_edges_start, bare_open_start))
        return goes_on_with_middle(place, 1);
    /* There the caller can be missing. */
    if (lies_in(pc, bare_open_start, bare_edges_end))
        return goes_on_with_middle(place, 1) || goes_on_with_outer(place, 1);
    /* Libraries have no frame pointers: from inside they lead past the caller. */
    if (!judged || place->mode == UNWIND_FP)
        return true;
    size_t n = 1;
    while (n < place->stack->count && !is_frame(place->stack, n, __start_bare_middle_code, __stop_bare_middle_code))
        n++;
    return goes_on_with_middle(place, n);
}

enum { MODES = 2 };

/* Steps a child through `function` and has `is_right` judge each instruction in each mode. Returns their number. */
static size_t step_through(void (*function)(const char *text), const enum unwind_mode modes[MODES],
                           bool (*is_right)(const struct place *place))
{
    struct unwinder *unwinders[MODES];
    struct unwind_space *spaces[MODES];
    struct stack stack = {0};
    for (size_t i = 0; i < MODES; i++) {
        unwinders[i] = unwinder_new(modes[i], 200);
        assert_non_null(unwinders[i]);
        spaces[i] = unwind_space_new(unwinders[i]);
        assert_non_null(spaces[i]);
    }
    uint8_t *copy = malloc(COPY_BYTES);
    assert_non_null(copy);
    pid_t pid = fork();
    if (pid == 0)
        be_stepped(function);
    assert_true(pid > 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));

    struct user_regs_struct regs = {0};
    while (regs.rip != (uintptr_t)function)
        assert_true(child_step(pid, &regs));
    uint64_t return_avma = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, (void *)(uintptr_t)regs.rsp, NULL);
    size_t steps = 0;
    size_t wrong = 0;
    while (regs.rip != return_avma && steps < STEPS_MAX) {
        struct snapshot snapshot = take_snapshot(pid, &regs, copy);
        for (size_t i = 0; i < MODES; i++) {
            assert_int_equal(unwind_walk(unwinders[i], spaces[i], &self.map, &snapshot, NULL, &stack), 0);
            struct place place = {.mode = modes[i], .stack = &stack, .return_avma = return_avma};
            if (is_right(&place))
                continue;
            if (wrong++ < 20)
                print_message("mode %d at %#llx, %s: %s, %zu frames\n", (int)modes[i], regs.rip, bare_name(regs.rip),
                              stack_end_name(stack.end), stack.count);
        }
        steps++;
        assert_true(child_step(pid, &regs));
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(copy);
    stack_deinit(&stack);
    for (size_t i = 0; i < MODES; i++) {
        unwind_space_free(spaces[i]);
        unwinder_free(unwinders[i]);
    }
    print_message("%zu steps\n", steps);
    assert_true(steps < STEPS_MAX);
    assert_int_equal(wrong, 0);
    return steps;
}

static void every_instruction_has_the_right_callers(void **state)
{
    (void)state;
    static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_DWARF};
    assert_true(step_through(stepped, modes, has_both) > 2000);
}

static void so_it_has_without_cfi_by_frame_pointers(void **state)
{
    (void)state;
    static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_FP};
    assert_true(step_through(bare_outer, modes, has_middle_and_outer) > 500);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_has_the_right_callers),
        cmocka_unit_test(so_it_has_without_cfi_by_frame_pointers),
    };
    return cmocka_run_group_tests(tests, load, unload) ? 1 : 0;
}
