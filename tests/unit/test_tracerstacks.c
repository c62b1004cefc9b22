/* The tracer's copies of two stacks: a thread in a signal handler on a stack of its own, and what that interrupted. */
#include "child.h"
#include "onestop.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>

enum { BUFFER_BYTES = 1 << 16, RED_ZONE = 128, WORD = sizeof(uint64_t), PAGE_BYTES = 4096 };

/* Behind each buffer. The kernel writes there: a page that is not mapped would only make it stop, and tell nobody. */
enum { BEHIND_BYTES = BUFFER_BYTES, UNTOUCHED = 0xa5 };

/* What the child tells of itself, in memory that is shared with it. */
struct facts {
    uint64_t stack_start_avma; /* the handler's */
    uint64_t stack_end_avma;
    uint64_t interrupted_sp_at_avma;
    uint64_t interrupted_sp;
};

static struct facts *facts;
static struct child_page *child_page;

/* ---- the child ---- */

static void sleep_in_handler(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    const ucontext_t *interrupted = context;
    const greg_t *sp = &interrupted->uc_mcontext.gregs[REG_RSP];
    facts->interrupted_sp_at_avma = (uintptr_t)sp;
    facts->interrupted_sp = (uint64_t)*sp;
    child_page->ready = 1;
    for (;;)
        pause();
}

/* The signal stack lies between two pages that cannot be read. */
_Noreturn static void be_in_handler(struct child_page *page)
{
    enum { STACK_BYTES = 1 << 15 };
    uint8_t *area = mmap(NULL, STACK_BYTES + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *start = area + PAGE_BYTES;
    mprotect(start, STACK_BYTES, PROT_READ | PROT_WRITE);
    stack_t stack = {.ss_sp = start, .ss_size = STACK_BYTES};
    sigaltstack(&stack, NULL);
    facts->stack_start_avma = (uintptr_t)start;
    facts->stack_end_avma = (uintptr_t)start + STACK_BYTES;
    child_page = page;
    struct sigaction action = {.sa_sigaction = sleep_in_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    _exit(1);
}

/* ---- one sample ---- */

struct fixture {
    struct child child;
    uint8_t *buffer;
    struct tracer_request request;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    facts = mmap(NULL, sizeof(*facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!fixture || facts == MAP_FAILED)
        return -1;
    *state = fixture;
    fixture->child = child_start(be_in_handler);
    child_wait_state(fixture->child.pid, 'S');
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    free(fixture->buffer);
    child_end(&fixture->child);
    munmap(facts, sizeof(*facts));
    free(fixture);
    return 0;
}

/* A request with a new buffer; nothing is known of the thread's stacks. */
static struct tracer_request *new_request(struct fixture *fixture, size_t buffer_bytes)
{
    free(fixture->buffer);
    fixture->buffer = malloc(buffer_bytes + BEHIND_BYTES);
    assert_non_null(fixture->buffer);
    memset(fixture->buffer, UNTOUCHED, buffer_bytes + BEHIND_BYTES);
    fixture->request = (struct tracer_request){.pid = fixture->child.pid,
                                               .tid = fixture->child.pid,
                                               .buffer = fixture->buffer,
                                               .buffer_bytes = buffer_bytes,
                                               .mem_fd = -1};
    return &fixture->request;
}

/* The handler's stack is known from the last time. */
static void know_stack(struct tracer_request *request)
{
    request->stack_start_avma = facts->stack_start_avma;
    request->stack_end_avma = facts->stack_end_avma;
}

static bool is_in_memory(pid_t pid, uint64_t avma, const uint8_t *bytes, size_t size)
{
    uint8_t *there = malloc(size + 1);
    struct iovec local = {.iov_base = there, .iov_len = size};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)avma, .iov_len = size};
    bool same = process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size && memcmp(there, bytes, size) == 0;
    free(there);
    return same;
}

/* What is true of every sample. */
static void sample(struct fixture *fixture)
{
    struct tracer_request *request = &fixture->request;
    onestop_run(request);
    assert_int_equal(request->bytes_avma, request->registers.value[REGISTER_RSP] - RED_ZONE);
    assert_true(request->bytes <= request->buffer_bytes);
    for (size_t i = 0; i < BEHIND_BYTES; i++)
        assert_true(request->buffer[request->buffer_bytes + i] == UNTOUCHED);
    assert_true(is_in_memory(request->pid, request->bytes_avma, request->buffer, request->bytes));
    if (request->other_bytes == 0)
        return;
    assert_true(request->other >= request->buffer + request->bytes);
    assert_int_equal((request->other - request->buffer) % WORD, 0);
    assert_true(request->other_bytes <= request->buffer_bytes - (size_t)(request->other - request->buffer));
    assert_int_equal(request->other_avma, facts->interrupted_sp - RED_ZONE);
    assert_true(is_in_memory(request->pid, request->other_avma, request->other, request->other_bytes));
}

/* How much of the handler's stack must be copied for the interrupted stack pointer to be in it. */
static size_t bytes_to_place(struct fixture *fixture)
{
    know_stack(new_request(fixture, BUFFER_BYTES));
    sample(fixture);
    size_t bytes = facts->interrupted_sp_at_avma + WORD - fixture->request.bytes_avma;
    assert_true(bytes > RED_ZONE && bytes < fixture->request.bytes);
    return bytes;
}

static void the_interrupted_stack_is_copied_too(void **state)
{
    struct fixture *fixture = *state;
    struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
    know_stack(request);
    request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
    sample(fixture);
    assert_int_equal(request->bytes_avma + request->bytes, facts->stack_end_avma);
    assert_true(request->other_bytes > RED_ZONE);
    /* Again: what the last sample had is not taken for this one's. */
    request->interrupted_sp_at_avma = 0;
    sample(fixture);
    assert_int_equal(request->other_bytes, 0);
}

static void on_an_unknown_stack_it_is_looked_for(void **state)
{
    struct fixture *fixture = *state;
    struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
    sample(fixture);
    assert_true(request->other_bytes > RED_ZONE);
    /* Also when there is a place from before, on another stack, and when the thread was elsewhere. */
    request = new_request(fixture, BUFFER_BYTES);
    request->interrupted_sp_at_avma = 0x1000;
    request->stack_start_avma = facts->stack_end_avma;
    request->stack_end_avma = facts->stack_end_avma + PAGE_BYTES;
    sample(fixture);
    assert_true(request->other_bytes > RED_ZONE);
}

/* A thread that was on its own stack at the last sample, which lies above the handler's, and is in a handler now. */
static void the_stack_of_the_last_sample_is_the_other_now(void **state)
{
    struct fixture *fixture = *state;
    assert_true(facts->interrupted_sp > facts->stack_end_avma);
    const uint64_t places[] = {0, facts->interrupted_sp_at_avma};
    for (size_t i = 0; i < 2; i++) {
        struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
        request->stack_start_avma = facts->interrupted_sp - PAGE_BYTES;
        request->stack_end_avma = facts->interrupted_sp + PAGE_BYTES;
        request->interrupted_sp_at_avma = places[i];
        sample(fixture);
        assert_true(request->other_bytes > RED_ZONE);
    }
}

static void a_place_that_does_not_lead_there_is_of_no_use(void **state)
{
    struct fixture *fixture = *state;
    size_t to_place = bytes_to_place(fixture);
    const uint64_t start = fixture->request.bytes_avma;
    const uint64_t places[] = {
        1, start - 1, start - WORD, facts->stack_end_avma - WORD + 1, facts->stack_end_avma, UINT64_MAX - WORD};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
        know_stack(request);
        request->interrupted_sp_at_avma = places[i];
        sample(fixture);
        if (request->other_bytes > 0)
            fail_msg("place %zu", i);
    }
    /* Where it leads lies above, in the stack that is being copied. */
    struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
    request->stack_start_avma = facts->stack_start_avma;
    request->stack_end_avma = UINT64_MAX;
    request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
    assert_true(facts->interrupted_sp > facts->stack_start_avma);
    sample(fixture);
    assert_int_equal(request->other_bytes, 0);
    /* It must be in the copy as a whole: also when what the buffer had there before would complete it. */
    for (size_t less = 0; less < 2; less++) {
        request = new_request(fixture, BUFFER_BYTES);
        memset(request->buffer, 0, request->buffer_bytes);
        know_stack(request);
        request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
        request->stack_bytes_max = to_place - less;
        sample(fixture);
        assert_int_equal(request->bytes, to_place - less);
        assert_int_equal(request->other_bytes, less ? 0 : to_place);
    }
}

static void a_small_buffer_gives_what_there_is_room_for(void **state)
{
    struct fixture *fixture = *state;
    size_t to_place = bytes_to_place(fixture);
    static const bool known[] = {true, false};
    for (size_t k = 0; k < 2; k++) {
        for (size_t room = 0; room < 40; room++) {
            struct tracer_request *request = new_request(fixture, 1024 + to_place + room);
            if (known[k])
                know_stack(request);
            request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
            request->stack_bytes_max = 1024 + to_place - 4;
            sample(fixture);
            assert_int_equal(request->bytes, 1024 + to_place - 4);
            size_t used = (request->bytes + WORD - 1) / WORD * WORD;
            size_t left = request->buffer_bytes > used ? request->buffer_bytes - used : 0;
            assert_int_equal(request->other_bytes, left);
        }
        /* One stack fills all of it. */
        struct tracer_request *request = new_request(fixture, to_place + 13);
        if (known[k])
            know_stack(request);
        request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
        sample(fixture);
        assert_int_equal(request->bytes, to_place + 13);
        assert_int_equal(request->other_bytes, 0);
    }
}

static void no_stack_gets_more_than_its_share(void **state)
{
    struct fixture *fixture = *state;
    /* What is looked for is the kernel's context, which goes on behind the stack pointer. */
    enum { CONTEXT_BEHIND = 3 * WORD };
    size_t least = bytes_to_place(fixture);
    for (size_t more = 0; more < 20; more += 3) {
        struct tracer_request *request = new_request(fixture, BUFFER_BYTES);
        know_stack(request);
        request->interrupted_sp_at_avma = facts->interrupted_sp_at_avma;
        request->stack_bytes_max = least + more;
        sample(fixture);
        assert_int_equal(request->bytes, least + more);
        assert_int_equal(request->other_bytes, least + more);
        request = new_request(fixture, BUFFER_BYTES);
        request->stack_bytes_max = least + CONTEXT_BEHIND + more;
        sample(fixture);
        assert_int_equal(request->bytes, least + CONTEXT_BEHIND + more);
        assert_int_equal(request->other_bytes, least + CONTEXT_BEHIND + more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_interrupted_stack_is_copied_too, setup, teardown),
        cmocka_unit_test_setup_teardown(on_an_unknown_stack_it_is_looked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(the_stack_of_the_last_sample_is_the_other_now, setup, teardown),
        cmocka_unit_test_setup_teardown(a_place_that_does_not_lead_there_is_of_no_use, setup, teardown),
        cmocka_unit_test_setup_teardown(a_small_buffer_gives_what_there_is_room_for, setup, teardown),
        cmocka_unit_test_setup_teardown(no_stack_gets_more_than_its_share, setup, teardown),
    };
    onestop_block_sigchld();
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
