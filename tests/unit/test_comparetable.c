#include "cmocka_all.h"
#include "near.h"

#include "sampler/comparesummary.h"
#include "sampler/comparetable.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, WINDOWS_MOST = ROUNDS * COMPARE_KINDS };

/* Rounds of all kinds as a run would have left them. */
struct fixture {
    struct options options;
    struct comparerun run;
    struct comparewindow windows[WINDOWS_MOST];
    size_t count;
};

static void init(struct fixture *fixture)
{
    *fixture = (struct fixture){.options = {.rate_hz = 99, .mode = MODE_CPU}};
    fixture->run = (struct comparerun){.options = &fixture->options, .pid = 42, .window_ns = 500000000};
    assert_int_equal(strings_init(&fixture->run.stacks), 0);
}

static void done(struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->count; i++)
        comparewindow_deinit(&fixture->windows[i]);
    strings_deinit(&fixture->run.stacks);
}

static struct comparewindow *add(struct fixture *fixture, enum comparekind kind, double work, const char *profile)
{
    struct comparewindow *window = &fixture->windows[fixture->count++];
    *window = (struct comparewindow){
        .kind = kind, .seconds = 0.5, .work = work, .calls = NAN, .target_cpu = 1, .sampler_cpu_ns = NAN};
    comparestats_init(&window->stats);
    if (kind == COMPARE_NOTHING)
        return window;
    window->sampler_cpu_ns = 2e6;
    assert_int_equal(stackcounts_read(&window->stacks, &fixture->run.stacks, profile, strlen(profile)), 0);
    window->stats.fields[FIELD_SAMPLES] = (double)window->stacks.total;
    return window;
}

/* The work drops by 10 % outside and by 20 % inside. */
static void add_rounds(struct fixture *fixture)
{
    for (int round = 0; round < ROUNDS; round++) {
        add(fixture, COMPARE_NOTHING, 1000, NULL);
        struct comparewindow *outside = add(fixture, COMPARE_OUTSIDE, 900, "t;main;f 60\nt;main;g 30\nt;[failed] 10\n");
        outside->stats.fields[FIELD_HELD_P50] = 1000 * (round + 1);
        outside->stats.fields[FIELD_HELD_MAX] = 1000 * (round + 1);
        outside->stats.fields[FIELD_EINTR_HIDDEN] = 2;
        comparestats_add_cause(&outside->stats, "exec", 10);
        struct comparewindow *inside =
            add(fixture, COMPARE_INSIDE, 800, "t;main;f 40\nt;main;g 50\nt;main;h;i_[i] 10\n");
        inside->stats.fields[FIELD_HANDLER_P99] = 5000;
        inside->stats.fields[FIELD_HELPER_LOST] = 3;
        inside->stats.fields[FIELD_HELPER_EINTR] = 1;
        inside->stats.has_failed = true;
    }
    add(fixture, COMPARE_NOTHING, 1000, NULL);
}

static void test_numbers(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    init(&fixture);
    fixture.options.compare.work_command = "x";
    add_rounds(&fixture);
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    const double *outside = summary.columns[COMPARE_OUTSIDE].rows;
    const double *inside = summary.columns[COMPARE_INSIDE].rows;
    const double *nothing = summary.columns[COMPARE_NOTHING].rows;
    assert_near(outside[ROW_WINDOWS], ROUNDS, 0);
    assert_near(outside[ROW_SECONDS], 2, 1e-9);
    assert_near(outside[ROW_SAMPLES], 400, 0);
    assert_near(outside[ROW_FAILED], 40, 0);
    assert_near(inside[ROW_FAILED], 0, 0);
    assert_near(outside[ROW_HELD_P50], 2500, 0); /* of 1, 2, 3 and 4 us */
    assert_near(outside[ROW_HELD_MAX], 4000, 0);
    assert_near(outside[ROW_EINTR_SEEN], 0, 0);
    assert_near(outside[ROW_EINTR_HIDDEN], 8, 0);
    assert_near(inside[ROW_EINTR_SEEN], 4, 0);
    assert_near(inside[ROW_LOST], 12, 0);
    assert_true(isnan(outside[ROW_LOST]));
    assert_true(isnan(inside[ROW_HELD_P50]));
    assert_near(outside[ROW_DEPTH_MEAN], 2, 1e-9); /* failed ones have no depth */
    assert_near(inside[ROW_DEPTH_MEAN], 2.1, 1e-9);
    assert_near(inside[ROW_DEPTH_P50], 2, 0);
    assert_near(inside[ROW_DEPTH_MAX], 3, 0);
    assert_near(outside[ROW_STACKS], 3, 0);
    assert_near(outside[ROW_SLOWDOWN], 10, 1e-6);
    assert_near(inside[ROW_SLOWDOWN], 20, 1e-6);
    assert_near(inside[ROW_SLOWDOWN_LOW], 20, 1e-3);
    assert_near(nothing[ROW_WORK], 1000, 1e-9);
    assert_true(isnan(nothing[ROW_SLOWDOWN]));
    assert_true(isnan(nothing[ROW_EINTR_SEEN]));
    assert_int_equal(summary.pair_count, 1);
    assert_near(summary.pairs[0].distance.tvd, 0.3, 1e-9);
    assert_int_equal(summary.pairs[0].distance.verdict, VERDICT_DIFFERENT);
    assert_near(summary.pairs[0].innermost.tvd, 0.3, 1e-9);
    assert_int_equal(summary.pairs[0].hot, 4);
    assert_int_equal(summary.pairs[0].hot_in_both, 2);
    assert_int_equal(summary.hot_count, 4);
    assert_string_equal(summary.hottest[0].stack, "t;main;f");
    assert_near(summary.hottest[0].shares[COMPARE_OUTSIDE], 0.6, 1e-9);
    assert_near(summary.hottest[0].shares[COMPARE_INSIDE], 0.4, 1e-9);
    assert_string_equal(summary.hottest[1].stack, "t;main;g");
    done(&fixture);
}

static json_t *json_of(const struct fixture *fixture, const struct comparesummary *summary, struct strbuf *text)
{
    struct comparetable table = {.run = &fixture->run,
                                 .summary = summary,
                                 .windows = fixture->windows,
                                 .window_count = fixture->count,
                                 .target = "na\xffme"};
    assert_int_equal(comparetable_json(&table, text), 0);
    json_t *root = json_loads(text->data, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(root));
    strbuf_clear(text);
    comparetable_text(&table, text);
    assert_int_equal(strbuf_error(text), 0);
    return root;
}

/* A window without samples is not one that differs. */
static void test_windows_without_samples(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    struct strbuf text = {0};
    init(&fixture);
    for (int round = 0; round < ROUNDS - 1; round++) {
        add(&fixture, COMPARE_OUTSIDE, NAN, "t;f 50\n");
        add(&fixture, COMPARE_INSIDE, NAN, "t;g 50\n");
    }
    add(&fixture, COMPARE_OUTSIDE, NAN, "");
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_near(summary.columns[COMPARE_OUTSIDE].rows[ROW_WINDOWS], ROUNDS, 0);
    assert_int_equal(summary.pairs[0].distance.verdict, VERDICT_FEW_WINDOWS);
    done(&fixture);
    init(&fixture);
    add(&fixture, COMPARE_OUTSIDE, NAN, "");
    add(&fixture, COMPARE_INSIDE, NAN, "t;g 50\n");
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.pair_count, 1);
    json_decref(json_of(&fixture, &summary, &text));
    assert_non_null(strstr(text.data, "no samples on one side"));
    strbuf_deinit(&text);
    done(&fixture);
}

/* Who ran is the same, the stacks were followed differently far. */
static void test_innermost_functions(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    init(&fixture);
    for (int round = 0; round < ROUNDS; round++) {
        add(&fixture, COMPARE_OUTSIDE, NAN, "t;_start;main;f 60\nu;_start;main;g 40\n");
        add(&fixture, COMPARE_INSIDE, NAN, "t;[truncated];f 50\nu;main;g 40\nv;main;f 10\n");
    }
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_near(summary.pairs[0].distance.tvd, 1, 1e-9);
    assert_near(summary.pairs[0].innermost.tvd, 0.1, 1e-9);
    done(&fixture);
}

/* perf's stacks are compared as it tells them. */
static void test_perf_is_compared_in_its_own_words(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    init(&fixture);
    fixture.options.compare.with_perf = true;
    for (int round = 0; round < ROUNDS; round++) {
        add(&fixture, COMPARE_OUTSIDE, NAN, "t;main;f;g_[i] 60\nt;[truncated];h_[j] 40\n");
        add(&fixture, COMPARE_PERF, NAN, "t;main;f 60\nt;h 40\n");
    }
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.pair_count, 1);
    assert_int_equal(summary.pairs[0].b, COMPARE_PERF);
    assert_near(summary.pairs[0].distance.tvd, 0, 1e-9);
    assert_near(summary.pairs[0].innermost.tvd, 0, 1e-9);
    assert_near(summary.hottest[0].shares[COMPARE_PERF], 0.6, 1e-9);
    assert_true(isnan(summary.hottest[0].shares[COMPARE_INSIDE]));
    assert_true(isnan(summary.columns[COMPARE_INSIDE].rows[ROW_SAMPLES]));
    done(&fixture);
}

/* Reads and writes are work only where there are always many of them. */
static void test_signs_of_work(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    init(&fixture);
    add_rounds(&fixture);
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.work, WORK_UNKNOWN);
    assert_true(isnan(summary.columns[COMPARE_OUTSIDE].rows[ROW_WORK]));
    assert_true(isnan(summary.columns[COMPARE_OUTSIDE].rows[ROW_SLOWDOWN]));
    for (size_t i = 0; i < fixture.count; i++)
        fixture.windows[i].calls = fixture.windows[i].kind == COMPARE_INSIDE ? 500 : 1000;
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.work, WORK_CALLS);
    assert_near(summary.columns[COMPARE_INSIDE].rows[ROW_SLOWDOWN], 50, 1e-6);
    fixture.windows[0].calls = 3;
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.work, WORK_UNKNOWN);
    done(&fixture);
}

static void test_text_and_json(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    struct strbuf text = {0};
    init(&fixture);
    fixture.options.compare.work_command = "x";
    add_rounds(&fixture);
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    json_t *root = json_of(&fixture, &summary, &text);
    json_t *inside = json_object_get(json_object_get(root, "columns"), "inside");
    assert_near(json_number_value(json_object_get(inside, "lost")), 12, 0);
    assert_near(json_number_value(json_object_get(inside, "handler_ns_p99")), 5000, 0);
    assert_true(json_is_null(json_object_get(inside, "held_ns_p50")));
    assert_string_equal(json_string_value(json_object_get(root, "name")), "na?me");
    assert_int_equal(json_array_size(json_object_get(root, "windows")), fixture.count);
    json_t *pair = json_array_get(json_object_get(root, "distances"), 0);
    assert_near(json_number_value(json_object_get(json_object_get(pair, "stacks"), "tvd")), 0.3, 1e-5);
    assert_null(json_object_get(json_object_get(root, "columns"), "perf"));
    json_decref(root);
    assert_non_null(strstr(text.data, "lost, ring was full                  -          12           -\n"));
    assert_non_null(strstr(text.data, "in the handler, us, p99              -         5.0           -\n"));
    assert_non_null(strstr(text.data, "outside, failed by cause: exec 40\n"));
    assert_non_null(strstr(text.data, "whole stacks: 30.00 % of the samples are elsewhere"));
    assert_null(strstr(text.data, "faults")); /* known in no column */
    strbuf_deinit(&text);
    done(&fixture);
}

static void test_nothing_at_all(void **state)
{
    (void)state;
    struct fixture fixture;
    struct comparesummary summary;
    struct strbuf text = {0};
    init(&fixture);
    fixture.run.target_ended = true;
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, 0, &summary), 0);
    json_t *root = json_of(&fixture, &summary, &text);
    assert_true(json_is_true(json_object_get(root, "target_ended")));
    json_decref(root);
    assert_non_null(strstr(text.data, "the target ended"));
    strbuf_clear(&text);
    /* Refused inside: why stands in the table. */
    add(&fixture, COMPARE_OUTSIDE, NAN, "");
    add(&fixture, COMPARE_INSIDE, NAN, "")->refusal = strdup("not here");
    assert_int_equal(comparesummary_make(&fixture.run, fixture.windows, fixture.count, &summary), 0);
    assert_int_equal(summary.pair_count, 0);
    json_decref(json_of(&fixture, &summary, &text));
    assert_non_null(strstr(text.data, "inside: not here\n"));
    strbuf_deinit(&text);
    done(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_without_samples),
        cmocka_unit_test(test_innermost_functions),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_perf_is_compared_in_its_own_words),
        cmocka_unit_test(test_signs_of_work),
        cmocka_unit_test(test_text_and_json),
        cmocka_unit_test(test_nothing_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
