#include "cmocka_all.h"

#include "sampler/keeper.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Generous: other programs may have all CPUs. */
#define PATIENCE_NS (20 * NS_PER_SEC)

static cpu_set_t affinity(pid_t tid)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(tid, sizeof(set), &set);
    return set;
}

static char *read_stat(pid_t tid, char *line, int size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "r");
    char *got = file ? fgets(line, size, file) : NULL;
    if (file)
        fclose(file);
    return got;
}

/* Keepers of this process, of which the last one found is *ret_tid. */
static int find_keepers(pid_t *ret_tid)
{
    char line[512];
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (tid && read_stat(tid, line, sizeof(line)) && strstr(line, "(keeper)")) {
            *ret_tid = tid;
            count++;
        }
    }
    closedir(tasks);
    return count;
}

static char state_of(pid_t tid)
{
    char line[512];
    assert_non_null(read_stat(tid, line, sizeof(line)));
    return strrchr(line, ')')[2];
}

static void wait_asleep(pid_t tid)
{
    uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
    while (state_of(tid) != 'S') {
        assert_true(clock_now_ns() < end_ns);
        sched_yield();
    }
}

/* Nanoseconds on a CPU. */
static unsigned long long run_ns(pid_t tid)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)tid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &ns), 1);
    fclose(file);
    return ns;
}

/* A CPU that is kept now; -1: we have but one. */
static int begin_somewhere(struct keepers *keepers)
{
    cpu_set_t allowed = affinity(0);
    uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
    while (CPU_COUNT(&allowed) > 1) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, &allowed) && keepers_begin(keepers, cpu))
                return cpu;
        assert_true(clock_now_ns() < end_ns);
        sched_yield();
    }
    return -1;
}

static void test_where_and_how(void **state)
{
    (void)state;
    struct keepers *keepers;
    pid_t tid = 0;
    assert_int_equal(keepers_new(&keepers), 0);
    assert_int_equal(find_keepers(&tid), 0); /* none before it is needed */
    int cpu = begin_somewhere(keepers);
    int count = find_keepers(&tid);
    cpu_set_t allowed = affinity(0);
    assert_in_range(count, cpu < 0 ? 0 : 1, CPU_COUNT(&allowed));
    keepers_end(keepers);
    if (count == 1) {
        cpu_set_t own = affinity(tid);
        assert_int_equal(sched_getscheduler(tid), SCHED_IDLE);
        assert_int_equal(CPU_COUNT(&own), 1);
        assert_true(CPU_ISSET((size_t)cpu, &own));
    }
    keepers_free(keepers);
    assert_int_equal(find_keepers(&tid), 0);
}

/* Nobody ends it: it goes to sleep by itself, having kept the CPU, and does so again. */
static void test_bounded(void **state)
{
    (void)state;
    struct keepers *keepers;
    assert_int_equal(keepers_new(&keepers), 0);
    uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
    pid_t tid = 0;
    unsigned long long before_ns = 0;
    for (int kept = 0; kept < 3;) {
        if (begin_somewhere(keepers) < 0)
            break;
        find_keepers(&tid);
        wait_asleep(tid);
        unsigned long long now_ns = run_ns(tid);
        kept += now_ns - before_ns >= KEEPER_NS_MAX / 2; /* else others had its CPU for most of the time */
        before_ns = now_ns;
        assert_true(clock_now_ns() < end_ns);
    }
    keepers_free(keepers);
}

static void test_ended(void **state)
{
    (void)state;
    struct keepers *keepers;
    pid_t tid = 0;
    assert_int_equal(keepers_new(&keepers), 0);
    if (begin_somewhere(keepers) >= 0) {
        find_keepers(&tid);
        keepers_end(keepers);
        wait_asleep(tid);
    }
    keepers_end(keepers); /* nothing to end */
    keepers_free(keepers);
    keepers_free(NULL);
}

static void *refuse(void *argument)
{
    struct keepers *keepers = argument;
    cpu_set_t allowed = affinity(0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    uintptr_t kept = 0;
    for (int cpu = -1; cpu <= CPU_SETSIZE; cpu++)
        kept += keepers_begin(keepers, cpu); /* our own, or not ours */
    sched_setaffinity(0, sizeof(allowed), &allowed);
    return (void *)kept;
}

static void test_refused(void **state)
{
    (void)state;
    struct keepers *keepers;
    pthread_t thread;
    pid_t tid;
    void *kept;
    assert_int_equal(keepers_new(&keepers), 0);
    assert_int_equal(pthread_create(&thread, NULL, refuse, keepers), 0);
    pthread_join(thread, &kept);
    assert_null(kept);
    assert_int_equal(find_keepers(&tid), 0);
    keepers_free(keepers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_and_how),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
