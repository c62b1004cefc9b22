#include "cmocka_all.h"

#include "sampler/pinning.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

static cpu_set_t affinity(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
}

static int first_cpu(const cpu_set_t *set)
{
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, set))
        cpu++;
    return cpu;
}

/* On a thread of its own, which is the one that moves. */
struct job {
    int how;
    int error;
    int cpu;
    cpu_set_t after;
};

static void *apply(void *argument)
{
    struct job *job = argument;
    job->error = pinning_apply(job->how);
    job->after = affinity();
    job->cpu = sched_getcpu();
    return NULL;
}

static struct job run(int how)
{
    struct job job = {.how = how};
    cpu_set_t before = affinity();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, apply, &job), 0);
    pthread_join(thread, NULL);
    cpu_set_t after = affinity();
    assert_true(CPU_EQUAL(&before, &after)); /* nobody else is moved */
    return job;
}

static void nothing_moves_unless_named(void **state)
{
    (void)state;
    static const int hows[] = {PIN_AUTO, PIN_OFF};
    cpu_set_t allowed = affinity();
    for (int i = 0; i < 2; i++) {
        struct job job = run(hows[i]);
        assert_int_equal(job.error, 0);
        assert_true(CPU_EQUAL(&job.after, &allowed));
    }
}

static void one_cpu_may_be_named(void **state)
{
    (void)state;
    cpu_set_t allowed = affinity();
    int cpu = first_cpu(&allowed);
    assert_true(pinning_may_use(cpu));
    struct job job = run(cpu);
    assert_int_equal(job.error, 0);
    assert_int_equal(job.cpu, cpu);
    assert_int_equal(CPU_COUNT(&job.after), 1);
    assert_true(CPU_ISSET((size_t)cpu, &job.after));
}

static void other_cpus_are_refused(void **state)
{
    (void)state;
    cpu_set_t allowed = affinity();
    if (!CPU_ISSET(CPU_SETSIZE - 1, &allowed)) {
        assert_false(pinning_may_use(CPU_SETSIZE - 1));
        assert_int_equal(run(CPU_SETSIZE - 1).error, -EINVAL);
    }
    assert_false(pinning_may_use(-1));
    assert_false(pinning_may_use(CPU_SETSIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_moves_unless_named),
        cmocka_unit_test(one_cpu_may_be_named),
        cmocka_unit_test(other_cpus_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
