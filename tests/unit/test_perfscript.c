#include "cmocka_all.h"

#include "common/rng.h"
#include "guarded.h"
#include "sampler/perfscript.h"

#include <stdio.h>
#include <string.h>

struct fixture {
    struct strings stacks;
    struct stackcounts counts;
    uint64_t failed;
};

static void read_bytes(struct fixture *fixture, const void *bytes, size_t size)
{
    *fixture = (struct fixture){0};
    assert_int_equal(strings_init(&fixture->stacks), 0);
    struct guarded guarded = guarded_new(bytes, size);
    assert_non_null(guarded.bytes);
    assert_int_equal(
        perfscript_read(&fixture->counts, &fixture->stacks, (const char *)guarded.bytes, size, &fixture->failed), 0);
    guarded_free(&guarded);
}

static void done(struct fixture *fixture)
{
    stackcounts_deinit(&fixture->counts);
    strings_deinit(&fixture->stacks);
}

static void assert_stacks(const char *text, const char *const *expected)
{
    struct fixture fixture;
    size_t count = 0;
    read_bytes(&fixture, text, strlen(text));
    for (; expected[count]; count++) {
        assert_true(count < fixture.counts.count);
        assert_string_equal(strings_get(&fixture.stacks, fixture.counts.items[count].stack), expected[count]);
        assert_int_equal(fixture.counts.items[count].count, 1);
    }
    assert_int_equal(fixture.counts.count, count);
    done(&fixture);
}

#define STACKS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char two[] = "spin-0 17570 \n"
                          "\t            15ed spin_loop (/usr/bin/spinners)\n"
                          "\t    7f0000001000 start_thread (/usr/lib/libc.so.6)\n"
                          "\n"
                          "my thread   8 \n"
                          "\tffffffff81000000 do_syscall_64 ([kernel.kallsyms])\n"
                          "\t    7f0000002000 read (/usr/lib/libc.so.6)\n"
                          "\t            1600 main (/usr/bin/spinners)\n"
                          "\n";

static void test_samples(void **state)
{
    (void)state;
    assert_stacks(two, STACKS("spin-0;start_thread;spin_loop", "my thread;main;read"));
}

/* Wherever the text ends, nothing behind it is read, and what was whole is there. */
static void test_every_end(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof(two); size++) {
        struct fixture fixture;
        read_bytes(&fixture, two, size);
        assert_true(fixture.counts.total <= 2);
        assert_true(size < sizeof(two) - 1 || fixture.counts.total == 2);
        done(&fixture);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_stacks("t 1 \n\t 10 std::vector<int (*)(int)>::at(int) const (/a b/lib (2).so)\n\n",
                  STACKS("t;std::vector<int (*)(int)>::at(int) const"));
    assert_stacks("t 1 \n\t 10 [unknown] (/usr/lib/x.so)\n\t 20 [unknown] ([vdso])\n\t 30 [unknown] ([unknown])\n\n",
                  STACKS("t;[unknown];[vdso];[x.so]"));
    assert_stacks("t 1 \n\t 10 a;b (/x)\n\n", STACKS("t;a:b"));
    assert_stacks("t 1 \n\t 10 \n\n", STACKS("t;[unknown]"));
    assert_stacks("t 1 \n\t 10 f\n\n", STACKS("t;f"));
    assert_stacks(":8281 8281 \n\t 10 f (/x)\n\n", STACKS(":8281;f"));
    assert_stacks("t 1 \n\t 10 ) )\n\n", STACKS("t;[unknown]"));
}

static void test_a_sample_without_a_stack(void **state)
{
    (void)state;
    struct fixture fixture;
    static const char text[] = "t 1 \n\tffffffff81000000 schedule ([kernel.kallsyms])\n\nt 1 \n\nt 1 \n";
    read_bytes(&fixture, text, sizeof(text) - 1);
    assert_int_equal(fixture.failed, 3);
    assert_int_equal(fixture.counts.total, 3);
    assert_string_equal(strings_get(&fixture.stacks, fixture.counts.items[0].stack), "t;[failed]");
    done(&fixture);
}

static void test_what_is_no_sample(void **state)
{
    (void)state;
    struct fixture fixture;
    static const char text[] = "warning: something\n\t 10 f (/x)\n\nt 1 \n\tzz f\n\t 10g f\n\t 20 f (/x)\n";
    read_bytes(&fixture, text, sizeof(text) - 1);
    assert_int_equal(fixture.counts.total, 1);
    assert_int_equal(fixture.counts.left_out, 4);
    assert_string_equal(strings_get(&fixture.stacks, fixture.counts.items[0].stack), "t;f");
    done(&fixture);
}

/* More frames than are kept: the innermost ones are. */
static void test_a_deep_stack(void **state)
{
    (void)state;
    enum { FRAMES = 3000 };
    static char text[FRAMES * 16 + 16];
    size_t size = (size_t)sprintf(text, "t 1 \n");
    for (int i = 0; i < FRAMES; i++)
        size += (size_t)sprintf(text + size, "\t 10 f%d (/x)\n", i);
    struct fixture fixture;
    read_bytes(&fixture, text, size);
    const char *stack = strings_get(&fixture.stacks, fixture.counts.items[0].stack);
    assert_int_equal(fixture.counts.count, 1);
    assert_int_equal(stackcounts_depth(stack), 1024);
    assert_string_equal(strrchr(stack, ';'), ";f0");
    done(&fixture);
}

/* Anything at all: no byte beyond the end, and no more samples than lines. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "\n\n\t\t  ()[]10af;x\0\xff";
    struct rng rng = {.state = 77};
    for (int trial = 0; trial < 3000; trial++) {
        char bytes[120];
        size_t size = (size_t)rng_below(&rng, sizeof(bytes) + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = alphabet[rng_below(&rng, sizeof(alphabet) - 1)];
        struct fixture fixture;
        read_bytes(&fixture, bytes, size);
        assert_true(fixture.counts.total <= size);
        done(&fixture);
    }
}

static void assert_likewise(const char *stack, const char *expected)
{
    struct strbuf text = {0};
    perfscript_likewise(stack, &text);
    assert_string_equal(text.data, expected);
    strbuf_deinit(&text);
}

static void test_likewise(void **state)
{
    (void)state;
    assert_likewise("t;main;f", "t;main;f");
    assert_likewise("t;[truncated];main;g_[i];f", "t;main;f");
    assert_likewise("t;main;script.js_[j];g_[i]", "t;main;script.js");
    assert_likewise("t;main;schedule_[k]", "t;main");
    assert_likewise("t;[failed]", "t;[failed]");
    assert_likewise("t", "t");
    assert_likewise("t;a<b>::c() [clone .isra.0] [clone .cold];d.part.0;e [clone", "t;a<b>::c();d.part.0;e [clone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_every_end),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_sample_without_a_stack),
        cmocka_unit_test(test_what_is_no_sample),
        cmocka_unit_test(test_a_deep_stack),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_likewise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
