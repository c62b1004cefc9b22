#include "cmocka_all.h"
#include "near.h"

#include "guarded.h"
#include "sampler/comparestats.h"
#include "sampler/comparework.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int parse(const char *text, struct comparestats *stats)
{
    struct guarded guarded = guarded_new(text, strlen(text));
    assert_non_null(guarded.bytes);
    int error = comparestats_parse((const char *)guarded.bytes, strlen(text), stats);
    guarded_free(&guarded);
    return error;
}

static void test_all_fields(void **state)
{
    (void)state;
    struct comparestats stats;
    assert_int_equal(
        parse("{\"samples\": 12, \"stops\": 3, \"held_ns\": {\"p50\": 7, \"p99\": 9, \"max\": 10, \"sum\": 20},"
              " \"samples_failed\": {\"exec\": 2, \"traced\": 0}, \"eintr_restarted\": 4,"
              " \"helper\": {\"lost\": 5, \"eintr\": 6, \"handler_ns\": {\"p50\": 100}, \"delivery_ns\": 3}}",
              &stats),
        0);
    assert_near(stats.fields[FIELD_SAMPLES], 12, 0);
    assert_near(stats.fields[FIELD_HELD_P50], 7, 0);
    assert_near(stats.fields[FIELD_HELD_MAX], 10, 0);
    assert_near(stats.fields[FIELD_EINTR_HIDDEN], 4, 0);
    assert_near(stats.fields[FIELD_HELPER_LOST], 5, 0);
    assert_near(stats.fields[FIELD_HELPER_EINTR], 6, 0);
    assert_near(stats.fields[FIELD_HANDLER_P50], 100, 0);
    assert_true(isnan(stats.fields[FIELD_HANDLER_P99]));
    assert_true(isnan(stats.fields[FIELD_DELIVERY_P50])); /* no object */
    assert_true(isnan(stats.fields[FIELD_TICKS_MISSED]));
    assert_true(isnan(stats.fields[FIELD_INTERRUPTED_P50]));
    assert_true(stats.has_failed);
    assert_int_equal(stats.cause_count, 1);
    assert_string_equal(stats.causes[0].name, "exec");
    assert_near(stats.causes[0].samples, 2, 0);
}

static void test_zeros_of_nothing_are_no_times(void **state)
{
    (void)state;
    struct comparestats stats;
    assert_int_equal(parse("{\"stops\": 0, \"held_ns\": {\"p50\": 0, \"p99\": 0, \"max\": 0}}", &stats), 0);
    assert_true(isnan(stats.fields[FIELD_HELD_P50]));
    assert_true(isnan(stats.fields[FIELD_HELD_MAX]));
    assert_near(stats.fields[FIELD_STOPS], 0, 0);
    assert_false(stats.has_failed);
}

static void test_what_is_no_stats(void **state)
{
    (void)state;
    struct comparestats stats;
    assert_int_equal(parse("", &stats), -EPROTO);
    assert_int_equal(parse("{", &stats), -EPROTO);
    assert_int_equal(parse("[1]", &stats), -EPROTO);
    assert_int_equal(parse("{\"samples\": 1, \"samples\": 2}", &stats), -EPROTO);
    assert_int_equal(parse("{\"samples\": \"12\", \"ticks_missed\": -1, \"helper\": 3, \"held_ns\": [1]}", &stats), 0);
    assert_true(isnan(stats.fields[FIELD_SAMPLES]));
    assert_true(isnan(stats.fields[FIELD_TICKS_MISSED]));
    assert_true(isnan(stats.fields[FIELD_HELPER_LOST]));
}

static void test_more_causes_than_are_kept(void **state)
{
    (void)state;
    struct comparestats stats;
    double total = 0;
    comparestats_init(&stats);
    for (int i = 0; i < 40; i++) {
        char name[80];
        snprintf(name, sizeof(name), "cause %d with a name that is much longer than what is kept of it", i);
        comparestats_add_cause(&stats, name, 1);
    }
    assert_int_equal(stats.cause_count, CAUSES_MAX);
    for (size_t i = 0; i < stats.cause_count; i++)
        total += stats.causes[i].samples;
    assert_near(total, 40, 0);
    assert_string_equal(stats.causes[CAUSES_MAX - 1].name, "other");
}

static void assert_number(const char *text, double expected)
{
    double value = -1;
    struct guarded guarded = guarded_new(text, strlen(text));
    bool good = comparework_parse((const char *)guarded.bytes, strlen(text), &value);
    guarded_free(&guarded);
    assert_true(good == (expected >= 0));
    assert_near(value, expected, 1e-9);
}

static void test_numbers_of_work(void **state)
{
    (void)state;
    assert_number("12", 12);
    assert_number("  12\n", 12);
    assert_number("\n12 requests\n13", 12);
    assert_number("12.25\n", 12.25);
    assert_number("12.", 12);
    assert_number("0", 0);
    assert_number("", -1);
    assert_number("x", -1);
    assert_number("12x", -1);
    assert_number("-12", -1);
    assert_number("1e5", -1);
    assert_number("99999999999999999999999", -1);
}

static void test_asking_a_command(void **state)
{
    (void)state;
    double value = 0;
    uint64_t ns = 0;
    sigset_t mask;
    sigemptyset(&mask);
    assert_int_equal(comparework_ask("echo 41; echo 42", &mask, &value, &ns), 0);
    assert_near(value, 41, 0);
    assert_true(ns > 0);
    assert_int_equal(comparework_ask("echo no number", &mask, &value, &ns), -EINVAL);
    assert_int_equal(comparework_ask("true", &mask, &value, &ns), -EINVAL);
    assert_int_equal(comparework_ask("echo 1; exit 3", &mask, &value, &ns), -ECHILD);
    /* More than is kept does not stop it. */
    assert_int_equal(comparework_ask("echo 7; head -c 300000 /dev/zero", &mask, &value, &ns), 0);
    assert_near(value, 7, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fields),       cmocka_unit_test(test_zeros_of_nothing_are_no_times),
        cmocka_unit_test(test_what_is_no_stats), cmocka_unit_test(test_more_causes_than_are_kept),
        cmocka_unit_test(test_numbers_of_work),  cmocka_unit_test(test_asking_a_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
