/* Walks over snapshots of this process, compared with what the program did and with glibc's backtrace(). */
#include "cmocka_all.h"

#include "self_target.h"
#include "unwind/cfitable.h"
#include "unwind/unwind.h"
#include "unwind_chain.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEPTH_MAX = 400 };

static struct self_target self;
static struct moment moment;
static struct cfitable *own_table; /* of this program */

static int unload(void **state)
{
    (void)state;
    cfitable_free(own_table);
    self_target_unload(&self);
    return 0;
}

static int release(void **state)
{
    (void)state;
    moment_release(&moment);
    return 0;
}

static void take(void *context)
{
    moment_take(context);
    __asm__ volatile("" ::: "memory");
}

struct result {
    struct unwinder *unwinder;
    struct unwind_space *space;
    struct stack stack;
};

static struct result walk(enum unwind_mode mode, size_t max_depth, const struct snapshot *snapshot)
{
    struct result result = {.unwinder = unwinder_new(mode, max_depth)};
    assert_non_null(result.unwinder);
    result.space = unwind_space_new(result.unwinder);
    assert_non_null(result.space);
    assert_int_equal(unwind_walk(result.unwinder, result.space, &self.map, snapshot, &self.reader, &result.stack), 0);
    return result;
}

static void result_free(struct result *result)
{
    stack_deinit(&result->stack);
    unwind_space_free(result->space);
    unwinder_free(result->unwinder);
}

/* True for an address in the function of this program, or in the JIT code, that starts there. */
static bool is_in(const struct frame *frame, const void *function)
{
    uint64_t start = (uintptr_t)function;
    uint64_t lookup_avma = frame_lookup_avma(frame->avma, frame->exact);
    const struct code_region *region = codemap_find(&self.map, lookup_avma);
    if (!region || region != codemap_find(&self.map, start))
        return false;
    struct cfi_function found;
    return !region->image || (cfitable_find(own_table, lookup_avma - region->bias, &found) == 0 &&
                              found.start_svma + region->bias == start);
}

static int reload(void)
{
    cfitable_free(own_table);
    own_table = NULL;
    self_target_unload(&self);
    if (self_target_load(&self) < 0)
        return -1;
    const struct code_region *region = codemap_find(&self.map, (uintptr_t)reload);
    return region && region->image ? cfitable_new(region->image, &own_table) : -1;
}

static int load(void **state)
{
    (void)state;
    return reload();
}

static size_t count_in(const struct stack *stack, size_t first, const void *function)
{
    size_t n = 0;
    while (first + n < stack->count && is_in(&stack->frames[first + n], function))
        n++;
    return n;
}

/* From frame 1 on; frame 0 is moment_take, at two of its instructions. */
static void assert_like_backtrace(const struct stack *stack)
{
    assert_int_equal(stack->end, STACK_COMPLETE);
    assert_int_equal(stack->count, moment.backtrace_count);
    assert_true(is_in(&stack->frames[0], (const void *)moment_take));
    assert_true(stack->frames[0].exact);
    assert_int_equal(stack->frames[0].by, FRAME_INNERMOST);
    for (size_t i = 1; i < stack->count; i++)
        assert_int_equal(stack->frames[i].avma, (uintptr_t)moment.backtrace[i]);
}

/* The first `count` frames. */
static void assert_same_frames(const struct stack *a, const struct stack *b, size_t count)
{
    assert_true(count <= a->count && count <= b->count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(a->frames[i].avma, b->frames[i].avma);
        assert_int_equal(a->frames[i].exact, b->frames[i].exact);
        assert_int_equal(a->frames[i].by, b->frames[i].by);
    }
}

static const enum unwind_mode modes[] = {UNWIND_AUTO, UNWIND_FP, UNWIND_DWARF};

static void walks_frames_without_frame_pointers(void **state)
{
    (void)state;
    chain_nofp(100, take, &moment);
    static const enum unwind_mode cfi_modes[] = {UNWIND_AUTO, UNWIND_DWARF};
    for (size_t i = 0; i < 2; i++) {
        struct result result = walk(cfi_modes[i], DEPTH_MAX, &moment.snapshot);
        assert_like_backtrace(&result.stack);
        assert_true(is_in(&result.stack.frames[1], (const void *)take));
        assert_int_equal(count_in(&result.stack, 2, (const void *)chain_nofp), 101);
        struct unwind_counters counters = unwinder_counters(result.unwinder);
        assert_int_equal(counters.frames_by[FRAME_BY_CFI], result.stack.count - 1);
        assert_int_equal(counters.frames_by[FRAME_BY_FP], 0);
        result_free(&result);
    }
}

static void walks_frames_with_frame_pointers(void **state)
{
    (void)state;
    chain_fp(100, take, &moment);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        assert_int_equal(result.stack.end, STACK_COMPLETE);
        assert_true(is_in(&result.stack.frames[1], (const void *)take));
        assert_int_equal(count_in(&result.stack, 2, (const void *)chain_fp), 101);
        assert_true(is_in(&result.stack.frames[103], (const void *)walks_frames_with_frame_pointers));
        if (modes[i] != UNWIND_FP)
            assert_like_backtrace(&result.stack);
        struct unwind_counters counters = unwinder_counters(result.unwinder);
        if (modes[i] == UNWIND_FP)
            assert_true(counters.frames_by[FRAME_BY_FP] > 100);
        else
            assert_int_equal(counters.frames_by[FRAME_BY_FP], 0);
        result_free(&result);
    }
}

/* Under main, glibc's rbp is 1. The walk goes on by CFI to where it is marked as the outermost frame. */
static void frame_pointers_end_in_the_start_code(void **state)
{
    (void)state;
    chain_fp(3, take, &moment);
    struct result result = walk(UNWIND_FP, DEPTH_MAX, &moment.snapshot);
    assert_int_equal(result.stack.end, STACK_COMPLETE);
    assert_int_equal(result.stack.frames[result.stack.count - 1].avma,
                     (uintptr_t)moment.backtrace[moment.backtrace_count - 1]);
    assert_int_equal(result.stack.frames[result.stack.count - 1].by, FRAME_BY_CFI);
    result_free(&result);
}

static void evaluates_expressions(void **state)
{
    (void)state;
    realigned_nofp(5, take, &moment);
    struct result result = walk(UNWIND_AUTO, DEPTH_MAX, &moment.snapshot);
    assert_like_backtrace(&result.stack);
    assert_int_equal(count_in(&result.stack, 2, (const void *)chain_nofp), 6);
    assert_true(is_in(&result.stack.frames[8], (const void *)realigned_nofp));
    assert_true(is_in(&result.stack.frames[9], (const void *)evaluates_expressions));
    result_free(&result);
}

static int compare(const void *a, const void *b)
{
    if (!moment.bytes[0])
        take(&moment);
    return *(const int *)a - *(const int *)b;
}

static void walks_through_libc(void **state)
{
    (void)state;
    int numbers[] = {5, 3, 9, 1, 7};
    qsort(numbers, 5, sizeof(numbers[0]), compare);
    static const enum unwind_mode cfi_modes[] = {UNWIND_AUTO, UNWIND_DWARF};
    for (size_t i = 0; i < 2; i++) {
        struct result result = walk(cfi_modes[i], DEPTH_MAX, &moment.snapshot);
        assert_like_backtrace(&result.stack);
        result_free(&result);
    }
}

static void on_signal(int signal)
{
    (void)signal;
    take(&moment);
}

/* The instruction that raises the signal is the first of its function: the address before it belongs to another one. */
__asm__(".text\n.type trap_at_entry, @function\ntrap_at_entry:\n.cfi_startproc\nud2\nret\n.cfi_endproc\n"
        ".size trap_at_entry, . - trap_at_entry\n");
void trap_at_entry(void);

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)info;
    on_signal(signal);
    ucontext_t *interrupted = context;
    interrupted->uc_mcontext.gregs[REG_RIP] += 2;
}

static void trap(void *context)
{
    (void)context;
    trap_at_entry();
    __asm__ volatile("" ::: "memory");
}

static void assert_stack_of_trap(const struct stack *stack, const void *chain)
{
    assert_int_equal(stack->end, STACK_COMPLETE);
    size_t i = 0;
    while (i < stack->count && stack->frames[i].avma != (uintptr_t)trap_at_entry)
        i++;
    assert_true(i > 2 && i < stack->count);
    assert_true(stack->frames[i].exact);
    for (size_t n = 1; n < stack->count; n++)
        assert_int_equal(stack->frames[n].exact, n == i);
    assert_true(is_in(&stack->frames[i + 1], (const void *)trap));
    assert_int_equal(count_in(stack, i + 2, chain), 4);
}

static void trap_with(int flags)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | flags}, old;
    assert_int_equal(sigaction(SIGILL, &action, &old), 0);
    chain_fp(3, trap, NULL);
    sigaction(SIGILL, &old, NULL);
}

static void walks_through_a_signal_frame(void **state)
{
    (void)state;
    trap_with(0);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        assert_stack_of_trap(&result.stack, (const void *)chain_fp);
        if (modes[i] != UNWIND_FP)
            assert_like_backtrace(&result.stack);
        result_free(&result);
    }
}

static void walks_from_an_alternate_stack(void **state)
{
    (void)state;
    stack_t stack = {.ss_size = 1 << 17}, old;
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stack.ss_sp, MAP_FAILED);
    assert_int_equal(sigaltstack(&stack, &old), 0);
    char here;
    moment.other_stack_avma = (uintptr_t)&here - 0x2000;
    trap_with(SA_ONSTACK);
    moment.other_stack_avma = 0;
    sigaltstack(&old, NULL);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        assert_stack_of_trap(&result.stack, (const void *)chain_fp);
        result_free(&result);
    }
    /* Without the other stack, the walk says what it lacks: no larger copy of this stack helps. */
    moment.snapshot.range_count = 1;
    struct result result = walk(UNWIND_DWARF, DEPTH_MAX, &moment.snapshot);
    assert_int_equal(result.stack.end, STACK_CUT_MEMORY);
    assert_int_equal(result.stack.frames[result.stack.count - 1].avma, (uintptr_t)trap_at_entry);
    result_free(&result);
    munmap(stack.ss_sp, stack.ss_size);
}

static sigjmp_buf after_fault;

static void on_fault(int signal)
{
    on_signal(signal);
    siglongjmp(after_fault, 1);
}

static void call_nothing(void *context)
{
    (void)context;
    void (*volatile nothing)(void) = NULL;
    if (sigsetjmp(after_fault, 1) == 0)
        nothing();
    __asm__ volatile("" ::: "memory");
}

static void finds_who_called_a_bad_pointer(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_fault}, old;
    assert_int_equal(sigaction(SIGSEGV, &action, &old), 0);
    chain_fp(3, call_nothing, NULL);
    sigaction(SIGSEGV, &old, NULL);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        const struct stack *stack = &result.stack;
        assert_int_equal(stack->end, STACK_COMPLETE);
        size_t n = 1;
        while (n < stack->count && stack->frames[n].avma != 0)
            n++;
        assert_true(n + 5 < stack->count);
        assert_true(stack->frames[n].exact);
        assert_true(is_in(&stack->frames[n + 1], (const void *)call_nothing));
        assert_int_equal(count_in(stack, n + 2, (const void *)chain_fp), 4);
        result_free(&result);
    }
}

static void keeps_a_pc_that_is_no_code(void **state)
{
    (void)state;
    static const uint64_t words[8];
    struct snapshot snapshot = {
        .registers = {.known = 1U << REGISTER_PC | 1U << REGISTER_RSP},
        .ranges = {{.avma = 0x7000, .bytes = (const uint8_t *)words, .size = sizeof(words)}},
        .range_count = 1,
    };
    snapshot.registers.value[REGISTER_PC] = 0x10;
    snapshot.registers.value[REGISTER_RSP] = 0x7000;
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &snapshot);
        assert_int_equal(result.stack.count, 1);
        assert_int_equal(result.stack.frames[0].avma, 0x10);
        assert_int_equal(result.stack.end, STACK_CUT_BAD_PC);
        result_free(&result);
    }
}

/* push %rbp; mov %rsp,%rbp; mov %rsi,%rax; mov %rdx,%rdi; call *%rax; pop %rbp; ret: context in rdx, function in rsi */
static const uint8_t jit_with_fp[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf0,
                                      0x48, 0x89, 0xd7, 0xff, 0xd0, 0x5d, 0xc3};
/* push %rbx; xor %ebp,%ebp would lose the caller's, so: push %rbp; mov $10,%ebp; mov %rdx,%rdi; call *%rsi; pop %rbp;
 * ret */
static const uint8_t jit_without_fp[] = {0x55, 0xbd, 0x0a, 0x00, 0x00, 0x00, 0x48, 0x89, 0xd7, 0xff, 0xd6, 0x5d, 0xc3};

struct jit {
    void *code;
    const uint8_t *bytes;
    size_t size;
};

static struct jit jit_new(const uint8_t *bytes, size_t size)
{
    struct jit jit = {.bytes = bytes, .size = size};
    jit.code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(jit.code, MAP_FAILED);
    memcpy(jit.code, bytes, size);
    assert_int_equal(reload(), 0);
    return jit;
}

static void jit_free(struct jit *jit)
{
    munmap(jit->code, 4096);
}

static void call_jit(void *context)
{
    struct jit *jit = context;
    void (*function)(unsigned, chain_end *, void *);
    memcpy(&function, &jit->code, sizeof(function));
    function(0, take, &moment);
    __asm__ volatile("" ::: "memory");
}

static void believes_frame_pointers_of_code_without_cfi(void **state)
{
    (void)state;
    struct jit jit = jit_new(jit_with_fp, sizeof(jit_with_fp));
    chain_nofp(3, call_jit, &jit);
    struct result result = walk(UNWIND_AUTO, DEPTH_MAX, &moment.snapshot);
    const struct stack *stack = &result.stack;
    assert_int_equal(stack->end, STACK_COMPLETE);
    assert_true(is_in(&stack->frames[1], (const void *)take));
    assert_true(is_in(&stack->frames[2], jit.code));
    assert_int_equal(stack->frames[2].by, FRAME_BY_CFI);
    assert_true(is_in(&stack->frames[3], (const void *)call_jit));
    assert_int_equal(stack->frames[3].by, FRAME_BY_FP);
    assert_int_equal(count_in(stack, 4, (const void *)chain_nofp), 4);
    assert_int_equal(unwinder_counters(result.unwinder).frames_by[FRAME_BY_FP], 1);
    result_free(&result);

    result = walk(UNWIND_DWARF, DEPTH_MAX, &moment.snapshot);
    assert_int_equal(result.stack.end, STACK_CUT_NO_RULE);
    assert_int_equal(result.stack.count, 3);
    result_free(&result);
    jit_free(&jit);
}

static void invents_nothing_where_there_is_no_rule(void **state)
{
    (void)state;
    struct jit jit = jit_new(jit_without_fp, sizeof(jit_without_fp));
    chain_nofp(3, call_jit, &jit);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        assert_int_equal(result.stack.end, STACK_CUT_NO_RULE);
        assert_int_equal(result.stack.count, 3);
        assert_true(is_in(&result.stack.frames[2], jit.code));
        result_free(&result);
    }
    jit_free(&jit);
}

static void a_short_copy_cuts_the_stack_and_nothing_else(void **state)
{
    (void)state;
    chain_fp(100, take, &moment);
    for (size_t i = 0; i < 3; i++) {
        struct result whole = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        struct snapshot copy = moment.snapshot;
        size_t steps = 0;
        for (copy.ranges[0].size = 8; copy.ranges[0].size < 12000; copy.ranges[0].size += 104) {
            struct result result = walk(modes[i], DEPTH_MAX, &copy);
            const struct stack *stack = &result.stack;
            if (stack->end == STACK_COMPLETE) {
                result_free(&result);
                break;
            }
            assert_int_equal(stack->end, STACK_CUT_COPY);
            assert_true(stack->count <= whole.stack.count);
            assert_same_frames(stack, &whole.stack, stack->count);
            /* What it would have needed lies in the stack, above the copy. */
            assert_true(stack->top_avma > copy.ranges[0].avma + copy.ranges[0].size);
            assert_true(stack->top_avma <= copy.stack_end_avma);
            steps++;
            result_free(&result);
        }
        assert_true(steps > 10);
        result_free(&whole);
    }
}

/* With exactly what a walk says that it needed, the next walk is as good. */
static void says_how_much_of_the_stack_it_needed(void **state)
{
    (void)state;
    chain_nofp(50, take, &moment);
    struct result whole = walk(UNWIND_AUTO, DEPTH_MAX, &moment.snapshot);
    struct snapshot copy = moment.snapshot;
    assert_true(whole.stack.top_avma > copy.ranges[0].avma);
    copy.ranges[0].size = whole.stack.top_avma - copy.ranges[0].avma;
    struct result again = walk(UNWIND_AUTO, DEPTH_MAX, &copy);
    assert_int_equal(again.stack.end, STACK_COMPLETE);
    assert_int_equal(again.stack.count, whole.stack.count);
    assert_int_equal(again.stack.top_avma, whole.stack.top_avma);
    result_free(&again);
    copy.ranges[0].size -= 8;
    again = walk(UNWIND_AUTO, DEPTH_MAX, &copy);
    assert_int_equal(again.stack.end, STACK_CUT_COPY);
    assert_int_equal(again.stack.top_avma, whole.stack.top_avma);
    result_free(&again);
    result_free(&whole);
}

static void stops_at_the_limit(void **state)
{
    (void)state;
    chain_fp(100, take, &moment);
    for (size_t i = 0; i < 3; i++) {
        struct result result = walk(modes[i], 20, &moment.snapshot);
        assert_int_equal(result.stack.end, STACK_CUT_DEPTH);
        assert_int_equal(result.stack.count, 20);
        result_free(&result);
        result = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        size_t count = result.stack.count;
        result_free(&result);
        /* A stack of exactly the limit is whole. */
        result = walk(modes[i], count, &moment.snapshot);
        assert_int_equal(result.stack.end, STACK_COMPLETE);
        assert_int_equal(result.stack.count, count);
        result_free(&result);
    }
}

static void needs_pc_and_stack_pointer(void **state)
{
    (void)state;
    struct unwinder *unwinder = unwinder_new(UNWIND_AUTO, DEPTH_MAX);
    struct unwind_space *space = unwind_space_new(unwinder);
    struct stack stack = {0};
    struct snapshot snapshot = {.registers = {.known = 1U << REGISTER_PC}};
    assert_int_equal(unwind_walk(unwinder, space, &self.map, &snapshot, NULL, &stack), -EINVAL);
    snapshot.registers.known = 1U << REGISTER_RSP;
    assert_int_equal(unwind_walk(unwinder, space, &self.map, &snapshot, NULL, &stack), -EINVAL);
    assert_int_equal(stack.count, 0);
    stack_deinit(&stack);
    unwind_space_free(space);
    unwinder_free(unwinder);
    unwind_space_free(NULL);
    unwinder_free(NULL);
}

/* The second walk of the same snapshot runs on rules and call sites that the first one found. */
static void gives_the_same_from_its_caches(void **state)
{
    (void)state;
    chain_nofp(20, take, &moment);
    for (size_t i = 0; i < 3; i++) {
        struct result first = walk(modes[i], DEPTH_MAX, &moment.snapshot);
        struct stack second = {0};
        assert_int_equal(unwind_walk(first.unwinder, first.space, &self.map, &moment.snapshot, &self.reader, &second),
                         0);
        assert_int_equal(second.count, first.stack.count);
        assert_int_equal(second.end, first.stack.end);
        assert_same_frames(&second, &first.stack, second.count);
        stack_deinit(&second);
        result_free(&first);
    }
}

/* Registers and stack of a snapshot replaced by noise: any answer, but one, and no fault. */
static void survives_noise(void **state)
{
    (void)state;
    chain_nofp(20, take, &moment);
    struct snapshot snapshot = moment.snapshot;
    /* How much there is depends on the environment, which lies above it. */
    size_t size = snapshot.ranges[0].size < 8192 ? snapshot.ranges[0].size : 8192;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    snapshot.ranges[0].bytes = bytes;
    snapshot.ranges[0].size = size;
    uint64_t random = 1;
    for (unsigned round = 0; round < 3000; round++) {
        memcpy(bytes, moment.snapshot.ranges[0].bytes, size);
        for (unsigned n = 0; n < 40; n++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[(random >> 33) % size] = (uint8_t)(random >> 25);
            if (n < 2)
                snapshot.registers.value[(random >> 40) % REGISTER_COUNT] += (random >> 50) % 256;
        }
        struct result result = walk(modes[round % 3], 64, &snapshot);
        assert_true(result.stack.count >= 1 && result.stack.count <= 64);
        result_free(&result);
        snapshot.registers = moment.snapshot.registers;
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(walks_frames_without_frame_pointers, release),
        cmocka_unit_test_teardown(walks_frames_with_frame_pointers, release),
        cmocka_unit_test_teardown(frame_pointers_end_in_the_start_code, release),
        cmocka_unit_test_teardown(evaluates_expressions, release),
        cmocka_unit_test_teardown(walks_through_libc, release),
        cmocka_unit_test_teardown(walks_through_a_signal_frame, release),
        cmocka_unit_test_teardown(walks_from_an_alternate_stack, release),
        cmocka_unit_test_teardown(finds_who_called_a_bad_pointer, release),
        cmocka_unit_test(keeps_a_pc_that_is_no_code),
        cmocka_unit_test_teardown(believes_frame_pointers_of_code_without_cfi, release),
        cmocka_unit_test_teardown(invents_nothing_where_there_is_no_rule, release),
        cmocka_unit_test_teardown(a_short_copy_cuts_the_stack_and_nothing_else, release),
        cmocka_unit_test_teardown(says_how_much_of_the_stack_it_needed, release),
        cmocka_unit_test_teardown(stops_at_the_limit, release),
        cmocka_unit_test(needs_pc_and_stack_pointer),
        cmocka_unit_test_teardown(gives_the_same_from_its_caches, release),
        cmocka_unit_test_teardown(survives_noise, release),
    };
    return cmocka_run_group_tests(tests, load, unload) ? 1 : 0;
}
