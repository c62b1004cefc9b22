#include "cmocka_all.h"

#include "sampler/stoplog.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct stop stop_number(uint64_t number)
{
    return (struct stop){.tid = (pid_t)(number % 1000 + 1),
                         .asked_ns = number,
                         .arrived_ns = number + UINT64_C(1000000000000),
                         .released_ns = UINT64_MAX - number,
                         .is_interruption = number % 3 == 0};
}

static void add(struct stoplog *log, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct stop stop = stop_number(i);
        stoplog_add(log, &stop);
    }
}

/* How many lines there are from the descriptor's beginning: all as they were added, in that order. */
static uint64_t count_lines(FILE *file)
{
    char line[200];
    char wanted[200];
    uint64_t count = 0;
    for (; fgets(line, sizeof(line), file); count++) {
        struct stop stop = stop_number(count);
        snprintf(wanted, sizeof(wanted), "%d %llu %llu %llu %s\n", (int)stop.tid, (unsigned long long)stop.asked_ns,
                 (unsigned long long)stop.arrived_ns, (unsigned long long)stop.released_ns,
                 count % 3 ? "stopped" : "interrupted");
        assert_string_equal(line, wanted);
    }
    return count;
}

static void a_line_for_each_stop(void **state)
{
    (void)state;
    /* None, one, more than one buffer, and as many as may wait. */
    static const uint64_t counts[] = {0, 1, 10000, STOPLOG_WAITING_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        FILE *file = tmpfile();
        struct stoplog *log;
        assert_non_null(file);
        assert_int_equal(stoplog_new(fileno(file), &log), 0);
        add(log, counts[i]);
        assert_int_equal(stoplog_finish(log), 0);
        stoplog_free(log);
        rewind(file);
        assert_int_equal(count_lines(file), counts[i]);
        fclose(file);
    }
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct stoplog *log;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(stoplog_new(fd, &log), 0);
    add(log, 3);
    assert_int_equal(stoplog_finish(log), -ENOSPC);
    stoplog_free(log);
    close(fd);
}

static void *read_all(void *argument)
{
    FILE *file = argument;
    static uint64_t count;
    count = count_lines(file);
    return &count;
}

/* A file that takes nothing for a while: who adds does not wait, and what is missing is told. */
static void a_slow_file_holds_nobody(void **state)
{
    (void)state;
    int ends[2];
    struct stoplog *log;
    pthread_t reader;
    void *lines;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(stoplog_new(ends[1], &log), 0);
    add(log, 4 * (uint64_t)STOPLOG_WAITING_MAX);
    FILE *file = fdopen(ends[0], "r");
    assert_int_equal(pthread_create(&reader, NULL, read_all, file), 0);
    assert_int_equal(stoplog_finish(log), -ENOBUFS);
    stoplog_free(log);
    close(ends[1]);
    pthread_join(reader, &lines);
    /* What waited, and what the pipe and the writer's buffer took of it meanwhile. */
    assert_in_range(*(uint64_t *)lines, STOPLOG_WAITING_MAX, 2 * STOPLOG_WAITING_MAX);
    fclose(file);
}

static void unfinished_is_freed(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    struct stoplog *log;
    assert_int_equal(stoplog_new(fileno(file), &log), 0);
    add(log, 5);
    stoplog_free(log);
    stoplog_free(NULL);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_for_each_stop),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(a_slow_file_holds_nobody),
        cmocka_unit_test(unfinished_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
