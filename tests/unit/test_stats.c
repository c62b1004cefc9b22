#include "cmocka_all.h"

#include "sampler/stats.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- as much of a JSON reader as it takes to be strict: RFC 8259 without escapes in strings ---- */

static const char *skip_value(const char *p);

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *skip_string(const char *p)
{
    if (*p++ != '"')
        return NULL;
    while (*p && *p != '"' && *p != '\\' && (unsigned char)*p >= ' ')
        p++;
    return *p == '"' ? p + 1 : NULL;
}

static const char *skip_number(const char *p)
{
    p += *p == '-';
    if (!isdigit((unsigned char)*p) || (p[0] == '0' && isdigit((unsigned char)p[1])))
        return NULL;
    p += strspn(p, "0123456789");
    if (*p == '.') {
        size_t digits = strspn(p + 1, "0123456789");
        return digits ? p + 1 + digits : NULL;
    }
    return p;
}

static const char *skip_object(const char *p)
{
    p = skip_blanks(p + 1);
    if (*p == '}')
        return p + 1;
    for (;;) {
        p = skip_string(skip_blanks(p));
        if (!p)
            return NULL;
        p = skip_blanks(p);
        if (*p++ != ':')
            return NULL;
        p = skip_value(skip_blanks(p));
        if (!p)
            return NULL;
        p = skip_blanks(p);
        if (*p == '}')
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

static const char *skip_value(const char *p)
{
    return *p == '{' ? skip_object(p) : *p == '"' ? skip_string(p) : skip_number(p);
}

/* The value of a field of the object at `p`, or NULL. Fields of objects inside are not its own. */
static const char *field(const char *p, const char *name)
{
    p = skip_blanks(p);
    assert_int_equal(*p, '{');
    p = skip_blanks(p + 1);
    const char *found = NULL;
    while (*p != '}') {
        const char *key = p + 1;
        p = skip_string(p);
        size_t size = (size_t)(p - 1 - key);
        const char *value = skip_blanks(skip_blanks(p) + 1);
        if (size == strlen(name) && memcmp(key, name, size) == 0) {
            assert_null(found); /* each name once */
            found = value;
        }
        p = skip_blanks(skip_value(value));
        if (*p == ',')
            p = skip_blanks(p + 1);
    }
    return found;
}

static void expect_number(const char *object, const char *name, uint64_t wanted)
{
    const char *value = field(object, name);
    if (!value)
        fail_msg("no field %s", name);
    assert_true(isdigit((unsigned char)*value));
    if (strtoull(value, NULL, 10) != wanted)
        fail_msg("%s is %.20s", name, value);
}

/* ---- a run in numbers ---- */

struct run {
    struct options options;
    struct capture_result capture;
    struct digest_counters pipeline;
    struct tracer_counters tracer;
    struct stats stats;
};

static void run_init(struct run *run)
{
    *run = (struct run){.options = {.rate_hz = 99, .mode = MODE_CPU}};
    run->stats = (struct stats){
        .options = &run->options, .capture = &run->capture, .pipeline = &run->pipeline, .tracer = &run->tracer};
}

static void run_fill(struct run *run)
{
    run_init(run);
    run->capture = (struct capture_result){.ticker = {.ticks = 1980, .late = 3, .missed = 2},
                                           .wall_ns = 20000000000,
                                           .account.cpu_ns_target = 19010000000,
                                           .account.cpu_ns_sampled = 18930000000,
                                           .threads_seen = 5,
                                           .threads_vanished = 4,
                                           .account.threads_unsampled = 1,
                                           .processes_seen = 2,
                                           .execs = 6,
                                           .events = {.source = WATCH_PERF_THREADS, .lost = 15, .repairs = 16}};
    run->pipeline.samples = 1975;
    run->pipeline.failed[FAILURE_NONE] = 1000000;
    run->pipeline.failed[FAILURE_TIMEOUT] = 3;
    run->pipeline.failed[FAILURE_UNWIND] = 4;
    run->pipeline.ends[STACK_COMPLETE] = 2000000;
    run->pipeline.ends[STACK_CUT_COPY] = 10;
    run->pipeline.ends[STACK_CUT_DEPTH] = 20;
    run->pipeline.frames = 12345;
    run->pipeline.unwind = (struct unwind_counters){
        .frames_by = {[FRAME_BY_FP] = 7, [FRAME_BY_CFI] = 8, [FRAME_BY_LIBUNWIND] = 9, [FRAME_BY_INSPECTION] = 10},
        .rule_hits = 90,
        .rules_compiled = 5,
    };
    run->pipeline.unwind_ns = 777;
    run->tracer.stops = 1975;
    histogram_add(&run->capture.interrupted_ns, 7);
    histogram_add(&run->capture.interrupted_ns, 9);
    run->tracer.eintr_restarted = 12;
    run->pipeline.unstopped = 13;
    run->pipeline.inferred = 14;
    run->tracer.signals_forwarded = 11;
    for (uint64_t i = 0; i < 100; i++)
        histogram_add(&run->tracer.stop_ns, 1000 * (i + 1));
    run->stats.symbol_ns = 888;
}

static void json_of(const struct stats *stats, struct strbuf *text)
{
    stats_json(stats, text);
    assert_int_equal(strbuf_error(text), 0);
    assert_int_equal(text->data[text->size - 1], '\n');
    const char *end = skip_value(text->data);
    assert_non_null(end);
    assert_string_equal(skip_blanks(end), "");
}

static void test_json(void **state)
{
    (void)state;
    struct run *run = malloc(sizeof(*run));
    struct strbuf text = {0};
    run_fill(run);
    json_of(&run->stats, &text);
    expect_number(text.data, "ticks", 1980);
    expect_number(text.data, "ticks_late", 3);
    expect_number(text.data, "ticks_missed", 2);
    expect_number(text.data, "samples", 1975);
    expect_number(text.data, "samples_truncated", 30);
    expect_number(text.data, "threads_seen", 5);
    expect_number(text.data, "threads_vanished", 4);
    expect_number(text.data, "threads_unsampled", 1);
    expect_number(text.data, "stops", 1975);
    expect_number(text.data, "interrupted", 2);
    assert_non_null(
        strstr(text.data, "\"interrupted_ns\": {\"p50\": 7, \"p90\": 9, \"p99\": 9, \"max\": 9, \"sum\": 16}"));
    expect_number(text.data, "eintr_restarted", 12);
    expect_number(text.data, "signals_forwarded", 11);
    expect_number(text.data, "cpu_ns_target", 19010000000);
    expect_number(text.data, "cpu_ns_sampled", 18930000000);
    expect_number(text.data, "wall_ns", 20000000000);
    expect_number(text.data, "frames", 12345);
    expect_number(text.data, "symbol_ns", 888);
    expect_number(text.data, "unwind_ns", 777);
    expect_number(text.data, "unstopped", 13);
    expect_number(text.data, "inferred", 14);
    assert_non_null(field(text.data, "stopped"));
    expect_number(text.data, "rate_hz", 99);
    assert_memory_equal(field(text.data, "mode"), "\"cpu\"", 5);
    assert_memory_equal(field(text.data, "events"), "\"perf-threads\"", 14);
    expect_number(text.data, "events_lost", 15);
    expect_number(text.data, "events_repairs", 16);

    const char *object = field(text.data, "samples_failed");
    expect_number(object, failure_name(FAILURE_TIMEOUT), 3);
    expect_number(object, failure_name(FAILURE_UNWIND), 4);
    assert_null(field(object, failure_name(FAILURE_NONE)));
    object = field(text.data, "stop_ns");
    expect_number(object, "p50", histogram_percentile(&run->tracer.stop_ns, 50));
    expect_number(object, "p90", histogram_percentile(&run->tracer.stop_ns, 90));
    expect_number(object, "p99", histogram_percentile(&run->tracer.stop_ns, 99));
    expect_number(object, "max", 100000);
    object = field(text.data, "frames_by");
    expect_number(object, "fp", 7);
    expect_number(object, "cfi", 8);
    expect_number(object, "libunwind", 9);
    expect_number(object, "inspection", 10);
    expect_number(object, "helper", 0);
    object = field(text.data, "unwind_rules");
    expect_number(object, "hits", 90);
    expect_number(object, "compiled", 5);
    strbuf_deinit(&text);
    free(run);
}

static void test_json_of_nothing(void **state)
{
    (void)state;
    struct run *run = malloc(sizeof(*run));
    struct strbuf text = {0};
    run_init(run);
    run->options.mode = MODE_WALL;
    json_of(&run->stats, &text);
    expect_number(text.data, "samples", 0);
    assert_memory_equal(field(text.data, "mode"), "\"wall\"", 6);
    assert_memory_equal(field(text.data, "samples_failed"), "{}", 2);
    expect_number(field(text.data, "stop_ns"), "p99", 0);
    strbuf_deinit(&text);
    free(run);
}

static void test_json_of_huge_numbers(void **state)
{
    (void)state;
    struct run *run = malloc(sizeof(*run));
    struct strbuf text = {0};
    run_init(run);
    run->capture.account.cpu_ns_target = UINT64_MAX;
    for (int i = 0; i < FAILURE_COUNT; i++)
        run->pipeline.failed[i] = 1;
    for (int i = 0; i < STACK_END_COUNT; i++)
        run->pipeline.ends[i] = 1;
    json_of(&run->stats, &text);
    expect_number(text.data, "cpu_ns_target", UINT64_MAX);
    /* Each cause has a name of its own. */
    const char *object = field(text.data, "samples_failed");
    for (int i = FAILURE_NONE + 1; i < FAILURE_COUNT; i++)
        expect_number(object, failure_name((enum failure)i), 1);
    assert_int_equal(stats_failed(&run->stats), FAILURE_COUNT - 1);
    assert_int_equal(stats_truncated(&run->stats), STACK_END_COUNT - 1);
    strbuf_deinit(&text);
    free(run);
}

static size_t count_lines(const struct strbuf *text)
{
    size_t lines = 0;
    for (size_t i = 0; i < text->size; i++)
        lines += text->data[i] == '\n';
    assert_int_equal(text->data[text->size - 1], '\n');
    return lines;
}

static void test_summary(void **state)
{
    (void)state;
    struct run *run = malloc(sizeof(*run));
    struct strbuf text = {0};
    run_fill(run);
    stats_summary(&run->stats, &text);
    assert_in_range(count_lines(&text), 1, 2);
    static const char *const told[] = {
        "1980 ticks", "1975 samples (3 ticks late, 2 missed)", "7 failed",   "30 truncated",
        "20.0 s",     "CPU 18.93 s of 19.01 s sampled",        "stops 1975", "p50 5",
        "p99 100",
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        if (!strstr(text.data, told[i]))
            fail_msg("'%s' is not in: %s", told[i], text.data);
    strbuf_clear(&text);
    run->capture.other_tracer = (struct othertracer){.target_pid = 12, .pid = 34, .comm = "gdb"};
    run->pipeline.failed[FAILURE_TRACED] = 56;
    stats_summary(&run->stats, &text);
    assert_non_null(strstr(text.data, "\n12 was traced by PID 34 (gdb) "));
    assert_non_null(strstr(text.data, ": 56 samples without a stack\n"));
    strbuf_clear(&text);
    run->capture.other_tracer = (struct othertracer){.target_pid = 12};
    stats_summary(&run->stats, &text);
    assert_non_null(strstr(text.data, "\n12 was traced by another process "));
    strbuf_clear(&text);
    /* Who waited longest for a CPU comes first; the others together. */
    struct process_total processes[] = {{.pid = 1, .comm = "a", .run_ns = NS_PER_SEC, .wait_ns = 0},
                                        {.pid = 2, .comm = "b\n", .run_ns = NS_PER_SEC / 2, .wait_ns = 3 * NS_PER_SEC},
                                        {.pid = 3, .comm = "c", .run_ns = 2 * NS_PER_SEC, .wait_ns = 0},
                                        {.pid = 4, .comm = "d", .run_ns = 0, .wait_ns = NS_PER_SEC}};
    run->capture.account.processes = processes;
    run->capture.account.process_count = 4;
    stats_summary(&run->stats, &text);
    assert_non_null(strstr(text.data,
                           "\non CPUs: 2 (b?) ran 0.50 s, waited 3.00 s; 4 (d) ran 0.00 s, waited 1.00 s; 3 (c) ran "
                           "2.00 s, waited 0.00 s; 1 others ran 1.00 s, waited 0.00 s\n"));
    strbuf_clear(&text);
    run->capture.account.process_count = 1;
    run->capture.left_out = 5;
    run->capture.eligible.sum = 50;
    run->options.max_stops = 9;
    run->options.overhead = 0.02;
    run->capture.overhead = 0.0123;
    run->capture.ticker.skipped = 20;
    stats_summary(&run->stats, &text);
    assert_non_null(strstr(text.data, "\non CPUs: 1 (a) ran 1.00 s, waited 0.00 s\n"));
    assert_non_null(strstr(text.data, "\n5 of 50 runnable threads were left out (--max-stops 9); "));
    assert_non_null(strstr(
        text.data, "\nsampling took 1.23 % of a CPU (--overhead 2.00); 20 of 2000 ticks were left out for it\n"));
    strbuf_clear(&text);
    run_init(run);
    run->options.mode = MODE_WALL;
    stats_summary(&run->stats, &text);
    assert_in_range(count_lines(&text), 1, 2);
    assert_non_null(strstr(text.data, "0 ticks, 0 samples"));
    assert_null(strstr(text.data, "CPU"));
    strbuf_deinit(&text);
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_nothing),
        cmocka_unit_test(test_json_of_huge_numbers),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
