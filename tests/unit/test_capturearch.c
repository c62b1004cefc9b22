/* The frame that the kernel makes for a signal handler on a stack of its own, found in copies of stacks. */
#include "cmocka_all.h"

#include "guarded.h"
#include "sampler/capture_arch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum { SIGNAL_STACK_BYTES = 1 << 18, COPY_BYTES = 1 << 16, LEAST_BYTES = 512 };

/* ---- of this process ---- */

/* What a handler copied: its own stack from where it is upward, and where the kernel has put what it interrupted. */
struct moment {
    uint8_t *copy;
    size_t size;
    uint64_t avma;
    uint64_t context_sp_at_avma;
    uint64_t interrupted_sp;
};

static struct moment moment;
static uint8_t *signal_stack;

/* Through the kernel: a sanitizer objects to copying a whole stack with memcpy. */
static void copy_stack(uint64_t avma, uint64_t end_avma)
{
    size_t size = end_avma - avma < COPY_BYTES ? (size_t)(end_avma - avma) : COPY_BYTES;
    struct iovec local = {.iov_base = moment.copy, .iov_len = size};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)avma, .iov_len = size};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    moment.avma = avma;
    moment.size = got > 0 ? (size_t)got : 0;
}

static bool is_on_signal_stack(const void *place)
{
    return (uintptr_t)place - (uintptr_t)signal_stack < SIGNAL_STACK_BYTES;
}

static void note_context(void *context)
{
    const ucontext_t *interrupted = context;
    const greg_t *sp = &interrupted->uc_mcontext.gregs[REG_RSP];
    moment.context_sp_at_avma = (uintptr_t)sp;
    moment.interrupted_sp = (uint64_t)*sp;
}

static void copy_here(void)
{
    const void *here = __builtin_frame_address(0);
    uint64_t end = is_on_signal_stack(here) ? (uintptr_t)signal_stack + SIGNAL_STACK_BYTES : UINT64_MAX;
    copy_stack((uintptr_t)here, end);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    note_context(context);
    copy_here();
}

/* The second signal comes while the first is handled, on the same stack. */
static void on_first_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    raise(SIGUSR1);
    note_context(context);
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    moment = (struct moment){.copy = malloc(COPY_BYTES)};
    signal_stack = mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    return moment.copy && signal_stack != MAP_FAILED && sigaltstack(&stack, NULL) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    munmap(signal_stack, SIGNAL_STACK_BYTES);
    free(moment.copy);
    return 0;
}

static bool find_in_moment(uint64_t *ret_sp_at_avma)
{
    assert_true(moment.size > LEAST_BYTES);
    *ret_sp_at_avma = 4711;
    uint64_t end = 4711;
    bool found = capture_arch.find_interrupted(moment.copy, moment.size, moment.avma, ret_sp_at_avma, &end);
    assert_true(found || *ret_sp_at_avma == 4711);
    assert_int_equal(end, found ? (uintptr_t)signal_stack + SIGNAL_STACK_BYTES : 4711);
    return found;
}

static void expect_found(void)
{
    uint64_t place;
    assert_true(find_in_moment(&place));
    assert_int_equal(place, moment.context_sp_at_avma);
    uint64_t sp;
    memcpy(&sp, moment.copy + (place - moment.avma), sizeof(sp));
    assert_int_equal(sp, moment.interrupted_sp);
    assert_false(is_on_signal_stack((const void *)(uintptr_t)sp));
}

static void finds_what_a_handler_interrupted(void **state)
{
    (void)state;
    handle(SIGUSR1, on_signal, SA_ONSTACK);
    for (int i = 0; i < 3; i++) {
        raise(SIGUSR1);
        expect_found();
    }
}

/* Nested handlers leave two frames there: the outer one leads to another stack. */
static void a_signal_inside_a_handler_is_passed_over(void **state)
{
    (void)state;
    handle(SIGUSR1, on_signal, SA_ONSTACK);
    handle(SIGUSR2, on_first_signal, SA_ONSTACK);
    raise(SIGUSR2);
    expect_found();
}

static void finds_nothing_where_there_is_no_other_stack(void **state)
{
    (void)state;
    uint64_t place;
    /* No signal at all; a handler on the interrupted stack; and one without any signal stack to tell of. */
    copy_here();
    assert_false(find_in_moment(&place));
    handle(SIGUSR1, on_signal, 0);
    raise(SIGUSR1);
    assert_true(moment.context_sp_at_avma - moment.avma < moment.size);
    assert_false(find_in_moment(&place));
    stack_t none = {.ss_flags = SS_DISABLE};
    assert_int_equal(sigaltstack(&none, NULL), 0);
    raise(SIGUSR1);
    assert_false(find_in_moment(&place));
}

/* ---- made up ---- */

/* As the kernel has it, up to what is looked at; see capture_x86_64.c. */
enum { LINK = 1, STACK = 2, STACK_BYTES = 4, RSP = 20, SEGMENTS = 23, CONTEXT_WORDS = 24, CONTEXT_BYTES = 192 };

static const uint64_t AVMA = 0x7f0000;

struct context {
    uint64_t words[CONTEXT_WORDS];
};

/* At `place`, 0x100 bytes above the start of a signal stack of 64 KB. */
static struct context context_at(uint64_t place)
{
    struct context context;
    for (size_t i = 0; i < CONTEXT_WORDS; i++)
        context.words[i] = 0x1111 * i;
    context.words[LINK] = 0;
    context.words[STACK] = place - 0x100;
    context.words[STACK_BYTES] = 0x10000;
    context.words[RSP] = 0x7ffc0000;
    context.words[SEGMENTS] = UINT64_C(0x002b000000000033);
    return context;
}

/* The context alone in a copy that starts at `avma`, `off` bytes above it, and has `size`. */
static bool find_context(struct context context, uint64_t avma, size_t off, size_t size, uint64_t *ret_sp_at_avma)
{
    struct guarded copy = guarded_new(NULL, size);
    assert_non_null(copy.bytes);
    size_t room = size > off ? size - off : 0;
    if (room > 0)
        memcpy(copy.bytes + off, &context, room < sizeof(context) ? room : sizeof(context));
    uint64_t end;
    bool found = capture_arch.find_interrupted(copy.bytes, size, avma, ret_sp_at_avma, &end);
    guarded_free(&copy);
    return found;
}

static bool is_found(struct context context)
{
    uint64_t place;
    return find_context(context, AVMA, 64, 1024, &place);
}

static void each_word_counts(void **state)
{
    (void)state;
    struct context right = context_at(AVMA + 64);
    assert_true(is_found(right));
    struct context wrong = right;
    wrong.words[LINK] = 8;
    assert_false(is_found(wrong));
    static const uint16_t segments[] = {0, 0x23, 0x32, 0x2b, 0x133};
    for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++) {
        wrong = right;
        wrong.words[SEGMENTS] = (right.words[SEGMENTS] & ~UINT64_C(0xffff)) | segments[i];
        assert_false(is_found(wrong));
    }
    /* Those that are for others do not. */
    for (size_t i = 0; i < CONTEXT_WORDS; i++) {
        bool is_for_us = i == LINK || i == STACK || i == STACK_BYTES || i == RSP || i == SEGMENTS;
        wrong = right;
        wrong.words[i] = ~wrong.words[i];
        if (!is_for_us && !is_found(wrong))
            fail_msg("word %zu", i);
    }
}

static void it_lies_on_the_stack_that_it_tells_of(void **state)
{
    (void)state;
    const uint64_t place = AVMA + 64;
    const struct {
        uint64_t stack;
        uint64_t bytes;
        bool found;
    } stacks[] = {
        {place, 0x10000, true},
        {place + 8, 0x10000, false},
        {place + 1, UINT64_MAX, false},
        {place - 0x100, 0x101, true},
        {place - 0x100, 0x100, false},
        {place - 0x100, 0, false},
        {0, 0, false},
        {0, place + 1, true},
        {UINT64_MAX, 0x10000, false},
    };
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
        struct context context = context_at(place);
        context.words[STACK] = stacks[i].stack;
        context.words[STACK_BYTES] = stacks[i].bytes;
        if (is_found(context) != stacks[i].found)
            fail_msg("stack %zu", i);
    }
    /* And what it interrupted does not. */
    struct context context = context_at(place);
    const uint64_t start = context.words[STACK];
    const uint64_t end = start + context.words[STACK_BYTES];
    const uint64_t sps[] = {start - 8, start, place, end - 8, end, 0, UINT64_MAX};
    const bool found[] = {true, false, false, false, true, true, true};
    for (size_t i = 0; i < sizeof(sps) / sizeof(sps[0]); i++) {
        context.words[RSP] = sps[i];
        if (is_found(context) != found[i])
            fail_msg("stack pointer %zu", i);
    }
}

/* A copy may start and end anywhere; the context lies at a multiple of 8. Nothing behind the copy is looked at. */
static void it_is_wholly_in_the_copy(void **state)
{
    (void)state;
    for (size_t start = 0; start < 8; start++) {
        uint64_t avma = AVMA + start;
        size_t aligned = (8 - start) % 8;
        for (size_t off = aligned; off < aligned + 32; off += 8) {
            struct context context = context_at(avma + off);
            uint64_t place = 0;
            assert_true(find_context(context, avma, off, off + CONTEXT_BYTES, &place));
            assert_int_equal(place, avma + off + RSP * sizeof(uint64_t));
            assert_true(find_context(context, avma, off, off + CONTEXT_BYTES + 3, &place));
            assert_false(find_context(context, avma, off, off + CONTEXT_BYTES - 1, &place));
            /* Not aligned, it is none. */
            assert_false(find_context(context, avma, off + 1, off + CONTEXT_BYTES + 8, &place));
            assert_false(find_context(context, avma, off + 4, off + CONTEXT_BYTES + 8, &place));
        }
        for (size_t size = 0; size < 16; size++) {
            uint64_t place;
            assert_false(find_context(context_at(avma), avma, 0, size, &place));
        }
    }
}

static void only_the_lowest_part_is_looked_at(void **state)
{
    (void)state;
    enum { LOOK_BYTES = 64 << 10 };
    uint64_t place;
    size_t off = LOOK_BYTES - CONTEXT_BYTES;
    struct context context = context_at(AVMA + off);
    context.words[STACK] = AVMA;
    context.words[STACK_BYTES] = 4 * LOOK_BYTES;
    assert_true(find_context(context, AVMA, off, 2 * LOOK_BYTES, &place));
    assert_false(find_context(context, AVMA, off + 8, 2 * LOOK_BYTES, &place));
    /* A stack that begins above the stack pointer is not the one that we are on. */
    context.words[STACK] = AVMA + 128;
    assert_true(find_context(context, AVMA, off, 2 * LOOK_BYTES, &place));
    context.words[STACK] = AVMA + 136;
    assert_false(find_context(context, AVMA, off, 2 * LOOK_BYTES, &place));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_what_a_handler_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signal_inside_a_handler_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(finds_nothing_where_there_is_no_other_stack, setup, teardown),
        cmocka_unit_test(each_word_counts),
        cmocka_unit_test(it_lies_on_the_stack_that_it_tells_of),
        cmocka_unit_test(it_is_wholly_in_the_copy),
        cmocka_unit_test(only_the_lowest_part_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
