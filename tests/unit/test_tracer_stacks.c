/* A handler on a signal stack of its own: the stack that it interrupted is copied too, wherever the thread was before.
 */
#include "child.h"

#include "common/clock.h"
#include "sampler/tracer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The buffer is what a thread's first sample has: no more than one copy. */
enum { BUFFER_BYTES = 1 << 16, COPY_BYTES = 1 << 16, SIGNAL_STACK_BYTES = 1 << 14, MAPPING_BYTES = 1 << 18 };

static struct child_page *handler_page;

static void spin(int signal)
{
    (void)signal;
    handler_page->ready = 1;
    for (;;)
        handler_page->turns++;
}

static void handle_on_other_stack(struct child_page *page)
{
    handler_page = page;
    stack_t stack = {.ss_sp = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     .ss_size = SIGNAL_STACK_BYTES};
    struct sigaction action = {.sa_handler = spin, .sa_flags = SA_ONSTACK};
    if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) < 0 || sigaction(SIGUSR1, &action, NULL) < 0)
        _exit(1);
    raise(SIGUSR1);
}

/* The main thread's stack, which a forked child has at the same place. */
static void find_main_stack(uint64_t *ret_start, uint64_t *ret_end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), maps)) {
        char *rest;
        *ret_start = strtoull(line, &rest, 16);
        *ret_end = strtoull(rest + 1, NULL, 16);
        found = strstr(line, "[stack]") != NULL;
    }
    fclose(maps);
    assert_true(found);
}

struct job {
    struct tracer *tracer;
    struct tracer_request request;
    int error;
};

static void forget_exit(void *context, pid_t pid, const struct wait_event *event)
{
    (void)context;
    (void)pid;
    (void)event;
}

static void forget_request(void *context, struct tracer_request *request)
{
    (void)context;
    (void)request;
}

/* The owner has no children: the one that is sampled is the test's. */
static void *sample(void *argument)
{
    struct job *job = argument;
    do {
        job->error = tracer_start(job->tracer, &job->request);
        while (!job->error && tracer_in_flight(job->tracer) > 0)
            tracer_wait(job->tracer, -1, clock_now_ns() + NS_PER_SEC, true);
    } while (!job->error && job->request.outcome == TRACER_TIMEOUT);
    tracer_release(job->tracer, 60 * NS_PER_SEC);
    return NULL;
}

/* The thread was last seen where `start` and `end` say. */
static void check_other_stack(uint64_t last_start_avma, uint64_t last_end_avma)
{
    uint64_t main_start;
    uint64_t main_end;
    find_main_stack(&main_start, &main_end);
    struct child child = child_start(handle_on_other_stack);
    struct job job = {.request = {.pid = child.pid,
                                  .tid = child.pid,
                                  .buffer = malloc(BUFFER_BYTES),
                                  .buffer_bytes = BUFFER_BYTES,
                                  .stack_bytes_max = COPY_BYTES,
                                  .mem_fd = -1,
                                  .stack_start_avma = last_start_avma,
                                  .stack_end_avma = last_end_avma}};
    assert_int_equal(tracer_new(forget_exit, NULL, &job.tracer), 0);
    tracer_set_sink(job.tracer, forget_request, NULL);
    pthread_t owner;
    assert_int_equal(pthread_create(&owner, NULL, sample, &job), 0);
    pthread_join(owner, NULL);
    assert_int_equal(job.error, 0);
    assert_int_equal(job.request.outcome, TRACER_CAPTURED);
    uint64_t sp = job.request.registers.value[REGISTER_RSP];
    assert_false(sp >= main_start && sp < main_end);
    assert_true(job.request.other_bytes > 0);
    assert_true(job.request.other_avma >= main_start && job.request.other_avma < main_end);
    free(job.request.buffer);
    tracer_free(job.tracer);
    child_end(&child);
}

static void interrupted_stack_is_copied_at_first_sight(void **state)
{
    (void)state;
    check_other_stack(0, 0);
}

/* Between the signal stack and the end of the main one lies the main one itself, which is not in the first copy. */
static void interrupted_stack_is_copied_after_a_sample_on_it(void **state)
{
    (void)state;
    uint64_t start;
    uint64_t end;
    find_main_stack(&start, &end);
    check_other_stack(start, end);
}

int main(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted_stack_is_copied_at_first_sight),
        cmocka_unit_test(interrupted_stack_is_copied_after_a_sample_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
