#include "cmocka_all.h"

#include "sampler/slice.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct job {
    int before; /* niceness that it gives itself */
    int after;
    int set_error;
};

static int own_niceness(void)
{
    return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

static void *run(void *argument)
{
    struct job *job = argument;
    job->set_error = setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), job->before);
    slice_ask_short();
    job->after = own_niceness();
    return NULL;
}

static struct job on_thread(int niceness)
{
    struct job job = {.before = niceness};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, &job), 0);
    pthread_join(thread, NULL);
    return job;
}

/* For one thread only; where it is not permitted nothing changes. */
static void test_niceness(void **state)
{
    (void)state;
    int own = own_niceness();
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NICE, &limit), 0);
    if (own == 0) {
        int after = on_thread(0).after;
        assert_true(after == -10 || (after == 0 && (geteuid() != 0 || limit.rlim_cur < 30)));
    }
    /* Whoever asks to be nice is left so. */
    struct job nice = on_thread(own + 5 < 19 ? own + 5 : 19);
    assert_int_equal(nice.set_error, 0);
    assert_int_equal(nice.after, nice.before);
    assert_int_equal(own_niceness(), own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_niceness)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
