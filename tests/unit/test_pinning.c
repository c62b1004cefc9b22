#include "cmocka_all.h"

#include "sampler/pinning.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static cpu_set_t affinity(pid_t tid)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(tid, sizeof(set), &set);
    return set;
}

static int first_cpu(const cpu_set_t *set)
{
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, set))
        cpu++;
    return cpu;
}

/* Each job runs on a thread of its own, which is the one that moves, and asserts nothing: it counts what is wrong. */
struct job {
    int how;
    int error;
    int wrong;
    int entered;
};

static void run(struct job *job, void *(*body)(void *job))
{
    cpu_set_t before = affinity(0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, job), 0);
    pthread_join(thread, NULL);
    cpu_set_t after = affinity(0);
    assert_true(CPU_EQUAL(&before, &after)); /* nobody else is moved */
    assert_int_equal(job->wrong, 0);
}

static void *visit_all(void *argument)
{
    struct job *job = argument;
    cpu_set_t allowed = affinity(0);
    struct pinning *pinning;
    job->error = pinning_new(job->how, &pinning);
    if (job->error)
        return NULL;
    for (int round = 0; round < 20; round++) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!pinning_can_enter(pinning, cpu))
                continue;
            job->wrong += !CPU_ISSET((size_t)cpu, &allowed);
            job->wrong += !pinning_enter(pinning, cpu) || sched_getcpu() != cpu;
            pinning_leave(pinning);
            cpu_set_t others = affinity(0);
            job->wrong += sched_getcpu() == cpu || CPU_ISSET((size_t)cpu, &others);
            CPU_SET((size_t)cpu, &others);
            job->wrong += !CPU_EQUAL(&others, &allowed);
            job->entered++;
        }
    }
    job->wrong += pinning_can_enter(pinning, -1) || pinning_can_enter(pinning, CPU_SETSIZE);
    pinning_free(pinning);
    return NULL;
}

static void every_cpu_is_visited(void **state)
{
    (void)state;
    struct job job = {.how = PIN_TARGET};
    cpu_set_t allowed = affinity(0);
    run(&job, visit_all);
    assert_int_equal(job.error, 0);
    assert_int_equal(job.entered, CPU_COUNT(&allowed) > 1 ? 20 * CPU_COUNT(&allowed) : 0);
}

static void nothing_moves_when_off(void **state)
{
    (void)state;
    struct job job = {.how = PIN_OFF};
    run(&job, visit_all);
    assert_int_equal(job.error, 0);
    assert_int_equal(job.entered, 0);
}

static void *stay(void *argument)
{
    struct job *job = argument;
    struct pinning *pinning;
    job->error = pinning_new(job->how, &pinning);
    if (job->error)
        return NULL;
    cpu_set_t set = affinity(0);
    job->wrong += CPU_COUNT(&set) != 1 || sched_getcpu() != job->how || pinning_can_enter(pinning, job->how);
    pinning_free(pinning);
    return NULL;
}

static void one_cpu_may_be_named(void **state)
{
    (void)state;
    cpu_set_t allowed = affinity(0);
    struct job job = {.how = first_cpu(&allowed)};
    assert_true(pinning_may_use(job.how));
    run(&job, stay);
    assert_int_equal(job.error, 0);
}

static void other_cpus_are_refused(void **state)
{
    (void)state;
    cpu_set_t allowed = affinity(0);
    struct job job = {.how = CPU_SETSIZE - 1};
    if (!CPU_ISSET(CPU_SETSIZE - 1, &allowed)) {
        assert_false(pinning_may_use(job.how));
        run(&job, stay);
        assert_int_equal(job.error, -EINVAL);
    }
    assert_false(pinning_may_use(-1));
    assert_false(pinning_may_use(CPU_SETSIZE));
}

static void *visit_from_one(void *argument)
{
    cpu_set_t allowed = affinity(0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)first_cpu(&allowed), &one);
    sched_setaffinity(0, sizeof(one), &one);
    return visit_all(argument);
}

static void nothing_moves_on_one_cpu(void **state)
{
    (void)state;
    struct job job = {.how = PIN_TARGET};
    run(&job, visit_from_one);
    assert_int_equal(job.error, 0);
    assert_int_equal(job.entered, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cpu_is_visited),     cmocka_unit_test(nothing_moves_when_off),
        cmocka_unit_test(one_cpu_may_be_named),     cmocka_unit_test(other_cpus_are_refused),
        cmocka_unit_test(nothing_moves_on_one_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
