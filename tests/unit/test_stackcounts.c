#include "cmocka_all.h"

#include "guarded.h"
#include "sampler/stackcounts.h"

#include <stdbool.h>
#include <string.h>

struct fixture {
    struct strings stacks;
    struct stackcounts counts;
};

static void read_text(struct fixture *fixture, const char *text)
{
    *fixture = (struct fixture){0};
    assert_int_equal(strings_init(&fixture->stacks), 0);
    struct guarded guarded = guarded_new(text, strlen(text));
    assert_non_null(guarded.bytes);
    assert_int_equal(stackcounts_read(&fixture->counts, &fixture->stacks, (const char *)guarded.bytes, strlen(text)),
                     0);
    guarded_free(&guarded);
}

static void done(struct fixture *fixture)
{
    stackcounts_deinit(&fixture->counts);
    strings_deinit(&fixture->stacks);
}

static const char *stack_at(const struct fixture *fixture, size_t i)
{
    return strings_get(&fixture->stacks, fixture->counts.items[i].stack);
}

static void test_lines(void **state)
{
    (void)state;
    struct fixture fixture;
    read_text(&fixture, "my thread;main;do it 12\nb;[failed] 3\nmy thread;main;do it 1");
    assert_int_equal(fixture.counts.count, 3);
    assert_int_equal(fixture.counts.total, 16);
    assert_int_equal(fixture.counts.left_out, 0);
    assert_string_equal(stack_at(&fixture, 0), "my thread;main;do it");
    assert_string_equal(stack_at(&fixture, 1), "b;[failed]");
    assert_int_equal(fixture.counts.items[0].stack, fixture.counts.items[2].stack);
    assert_int_equal(fixture.counts.items[0].count, 12);
    done(&fixture);
}

static void test_what_is_no_line(void **state)
{
    (void)state;
    static const char *const bad[] = {"a;b",
                                      "a;b ",
                                      "a;b x",
                                      "a;b 1x",
                                      " 5",
                                      "5",
                                      "a;b -1",
                                      "a;b 99999999999999999999999",
                                      "a;b 18446744073709551615",
                                      "\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fixture fixture;
        read_text(&fixture, bad[i]);
        assert_int_equal(fixture.counts.count, 0);
        assert_int_equal(fixture.counts.left_out, 1);
        assert_int_equal(fixture.counts.total, 0);
        done(&fixture);
    }
    struct fixture fixture;
    read_text(&fixture, "");
    assert_int_equal(fixture.counts.left_out, 0);
    done(&fixture);
    *(&fixture) = (struct fixture){0};
    assert_int_equal(strings_init(&fixture.stacks), 0);
    assert_int_equal(stackcounts_read(&fixture.counts, &fixture.stacks, "a\0b;c 1\nd 2\n", 12), 0);
    assert_int_equal(fixture.counts.left_out, 1);
    assert_int_equal(fixture.counts.total, 2);
    done(&fixture);
}

/* Two counts that would not fit together: the second one is left out, and the total stays true. */
static void test_a_total_that_does_not_fit(void **state)
{
    (void)state;
    struct fixture fixture;
    read_text(&fixture, "a;b 9223372036854775807\na;c 1\na;d 0\n");
    assert_int_equal(fixture.counts.total, INT64_MAX);
    assert_int_equal(fixture.counts.left_out, 1);
    assert_int_equal(fixture.counts.count, 2);
    done(&fixture);
}

static void test_depths(void **state)
{
    (void)state;
    assert_int_equal(stackcounts_depth("thread"), 0);
    assert_int_equal(stackcounts_depth("thread;main"), 1);
    assert_int_equal(stackcounts_depth("thread;main;f;g"), 3);
    assert_int_equal(stackcounts_depth("thread;[failed]"), 0);
    assert_int_equal(stackcounts_depth("thread;[truncated];f;g"), 2);
    assert_int_equal(stackcounts_depth("thread;[truncated]"), 0);
    assert_int_equal(stackcounts_depth("thread;[truncated]x;g"), 2);
    assert_int_equal(stackcounts_depth("thread;[failed];g"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_what_is_no_line),
        cmocka_unit_test(test_a_total_that_does_not_fit),
        cmocka_unit_test(test_depths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
