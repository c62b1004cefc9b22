#include "cmocka_all.h"

#include "common/fileio.h"
#include "common/rng.h"
#include "output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_DEPTH = 4 };

struct frame_name {
    const char *text;
    enum name_kind kind;
};

/* A sample in words. Frames are named by their text alone here: equal texts are one frame, unless `copy` differs. */
struct sample {
    const char *thread;
    const char *state; /* NULL: none */
    pid_t tid;
    struct frame_name frames[MAX_DEPTH]; /* outermost first */
    enum sample_kind kind;
    uint64_t count;
    uint64_t ns;
    uint32_t copy;
};

static uint32_t string_of(struct profile *profile, const char *text)
{
    uint32_t number;
    assert_int_equal(strings_add(&profile->strings, text, &number), 0);
    return number;
}

static uint32_t thread_of(struct profile *profile, const struct sample *sample)
{
    for (size_t i = 0; i < profile->thread_count; i++)
        if (profile->threads[i].tid == sample->tid)
            return (uint32_t)i;
    struct profile_thread thread = {.pid = 1, .tid = sample->tid, .name = string_of(profile, sample->thread)};
    uint32_t number;
    assert_int_equal(profile_add_thread(profile, &thread, &number), 0);
    return number;
}

static uint32_t frame_of(struct profile *profile, const struct frame_name *name, uint32_t copy)
{
    struct place place = {.image = 1 + copy, .off = string_of(profile, name->text) * 8U + (unsigned)name->kind};
    uint32_t frame;
    assert_int_equal(profile_add_frame(profile, &place, &frame), 0);
    if (profile->frames[frame].name_count == 0)
        assert_int_equal(profile_add_name(profile, frame, name->text, name->kind), 0);
    return frame;
}

static void add_sample(struct profile *profile, const struct sample *sample)
{
    uint32_t frames[MAX_DEPTH];
    size_t depth = 0;
    while (depth < MAX_DEPTH && sample->frames[depth].text)
        depth++;
    for (size_t i = 0; i < depth; i++)
        frames[depth - 1 - i] = frame_of(profile, &sample->frames[i], sample->copy);
    struct profile_sample added = {.thread = thread_of(profile, sample),
                                   .thread_name = string_of(profile, sample->thread),
                                   .state = sample->state ? string_of(profile, sample->state) : 0,
                                   .kind = sample->kind,
                                   .count = sample->count,
                                   .ns = sample->ns};
    assert_int_equal(profile_add_stack(profile, frames, depth, &added.stack), 0);
    assert_int_equal(profile_add_sample(profile, &added), 0);
}

/* The file's text; free it. */
static char *text_of(const struct profile *profile, const struct output_options *options)
{
    int fd = memfd_create("collapsed", MFD_CLOEXEC);
    assert_true(fd >= 0);
    struct sink sink = {.fd = fd};
    collapsed_write(profile, options, &sink);
    assert_int_equal(sink_finish(&sink), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    char *text;
    size_t size;
    assert_int_equal(fileio_read_all(fd, 1 << 24, &text, &size), 0);
    assert_int_equal(strlen(text), size);
    close(fd);
    return text;
}

static void expect(const struct sample *samples, size_t count, const struct output_options *options, const char *wanted)
{
    struct profile *profile = profile_new();
    for (size_t i = 0; i < count; i++)
        add_sample(profile, &samples[i]);
    char *text = text_of(profile, options);
    assert_string_equal(text, wanted);
    free(text);
    profile_free(profile);
}

#define EXPECT(samples, options, wanted) expect(samples, sizeof(samples) / sizeof((samples)[0]), options, wanted)

static const struct output_options by_samples;
static const struct output_options by_ns = {.value_ns = true};
static const struct output_options with_threads = {.show_threads = true};
static const struct output_options with_both = {.value_ns = true, .show_threads = true};

static void test_no_samples(void **state)
{
    (void)state;
    expect(NULL, 0, &by_samples, "");
    expect(NULL, 0, &with_both, "");
}

static void test_root_first(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "app", .tid = 1, .frames = {{.text = "main"}, {.text = "work"}, {.text = "leaf"}}, .count = 3},
        {.thread = "app", .tid = 1, .frames = {{.text = "main"}, {.text = "work"}}, .count = 1},
    };
    EXPECT(samples, &by_samples, "app;main;work 1\napp;main;work;leaf 3\n");
}

static void test_kinds(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "t",
         .tid = 1,
         .frames = {{.text = "f"}, {.text = "g"}},
         .kind = SAMPLE_TRUNCATED,
         .count = 2,
         .ns = 20},
        {.thread = "t", .tid = 1, .kind = SAMPLE_FAILED, .count = 3, .ns = 30},
        {.thread = "t", .tid = 1, .kind = SAMPLE_NOT_SAMPLED, .count = 0, .ns = 40},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}, {.text = "g"}}, .count = 5, .ns = 50},
    };
    EXPECT(samples, &by_samples, "t;[failed] 3\nt;[truncated];f;g 2\nt;f;g 5\n");
    EXPECT(samples, &by_ns, "t;[failed] 30\nt;[not sampled] 40\nt;[truncated];f;g 20\nt;f;g 50\n");
}

static void test_values(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .count = 7, .ns = 123456789012345},
        {.thread = "t", .tid = 1, .frames = {{.text = "max"}}, .count = UINT64_MAX, .ns = 0},
    };
    EXPECT(samples, &by_samples, "t;f 7\nt;max 18446744073709551615\n");
    EXPECT(samples, &by_ns, "t;f 123456789012345\n");
}

static void test_threads(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "pool", .tid = 12, .frames = {{.text = "f"}}, .count = 1},
        {.thread = "pool", .tid = 7, .frames = {{.text = "f"}}, .count = 2},
        {.thread = "renamed", .tid = 7, .frames = {{.text = "f"}}, .count = 4},
        {.thread = " ", .tid = 8, .frames = {{.text = "f"}}, .count = 8},
        {.thread = "a;b 5", .tid = 9, .kind = SAMPLE_FAILED, .count = 16},
    };
    EXPECT(samples, &by_samples, "[unknown];f 8\na:b 5;[failed] 16\npool;f 3\nrenamed;f 4\n");
    EXPECT(samples, &with_threads,
           "[unknown] (8);f 8\na:b 5 (9);[failed] 16\npool (12);f 1\npool (7);f 2\nrenamed (7);f 4\n");
}

/* The innermost frame, in brackets; without the option all states of a stack are one line. */
static void test_states(void **state)
{
    (void)state;
    static const struct output_options with_states = {.show_states = true};
    const struct sample samples[] = {
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .state = "running", .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .state = "runnable", .count = 2},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .state = "disk wait", .count = 4},
        {.thread = "t", .tid = 1, .frames = {{.text = "f 1"}}, .state = "epoll_wait", .count = 8},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .count = 16},
        {.thread = "t", .tid = 1, .kind = SAMPLE_FAILED, .state = "running", .count = 32},
    };
    EXPECT(samples, &with_states,
           "t;[failed];[running] 32\nt;f 16\nt;f;[disk wait] 4\nt;f;[runnable] 2\nt;f;[running] 1\n"
           "t;f_1;[epoll_wait] 8\n");
    EXPECT(samples, &by_samples, "t;[failed] 32\nt;f 23\nt;f_1 8\n");
}

static void test_no_tid(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "[exited threads]", .tid = 0, .kind = SAMPLE_NOT_SAMPLED, .ns = 5},
    };
    EXPECT(samples, &with_both, "[exited threads];[not sampled] 5\n");
}

static void test_suffixes(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "t",
         .tid = 1,
         .frames = {{.text = "jit ", .kind = NAME_JIT},
                    {.text = "k;", .kind = NAME_KERNEL},
                    {.text = "f 12", .kind = NAME_JIT}},
         .count = 1},
        {.thread = "t",
         .tid = 1,
         .frames = {{.text = "[anon]", .kind = NAME_NONE}, {.text = "\n", .kind = NAME_JIT}},
         .count = 1},
    };
    EXPECT(samples, &by_samples, "t;[anon];[unknown]_[j] 1\nt;jit_[j];k:_[k];f_12_[j] 1\n");
}

static void test_inlined(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    const struct sample sample = {.thread = "t", .tid = 1};
    /* A frame with the names outermost first: the function, then what was inlined into it. */
    uint32_t frames[2];
    assert_int_equal(profile_add_frame(profile, &(struct place){.image = 1, .off = 1}, &frames[1]), 0);
    assert_int_equal(profile_add_frame(profile, &(struct place){.image = 1, .off = 2}, &frames[0]), 0);
    assert_int_equal(profile_add_name(profile, frames[1], "main", NAME_FUNCTION), 0);
    assert_int_equal(profile_add_name(profile, frames[0], "outer 1", NAME_FUNCTION), 0);
    assert_int_equal(profile_add_name(profile, frames[0], "middle", NAME_INLINED), 0);
    assert_int_equal(profile_add_name(profile, frames[0], "inner 2", NAME_INLINED), 0);
    struct profile_sample added = {
        .thread = thread_of(profile, &sample), .thread_name = string_of(profile, "t"), .count = 1};
    assert_int_equal(profile_add_stack(profile, frames, 2, &added.stack), 0);
    assert_int_equal(profile_add_sample(profile, &added), 0);
    char *text = text_of(profile, &by_samples);
    assert_string_equal(text, "t;main;outer 1;middle_[i];inner_2_[i] 1\n");
    free(text);
    profile_free(profile);
}

static void test_frame_without_name(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    const struct sample sample = {.thread = "t", .tid = 1};
    uint32_t frame;
    assert_int_equal(profile_add_frame(profile, &(struct place){0}, &frame), 0);
    struct profile_sample added = {
        .thread = thread_of(profile, &sample), .thread_name = string_of(profile, "t"), .count = 1};
    assert_int_equal(profile_add_stack(profile, &frame, 1, &added.stack), 0);
    assert_int_equal(profile_add_sample(profile, &added), 0);
    char *text = text_of(profile, &by_samples);
    assert_string_equal(text, "t;[unknown] 1\n");
    free(text);
    profile_free(profile);
}

static void test_equal_texts_are_one_line(void **state)
{
    (void)state;
    const struct sample samples[] = {
        {.thread = "t", .tid = 1, .frames = {{.text = "main"}, {.text = "f"}}, .count = 1, .ns = 10, .copy = 0},
        {.thread = "t", .tid = 2, .frames = {{.text = "main"}, {.text = "f"}}, .count = 2, .ns = 20, .copy = 1},
        {.thread = "t ", .tid = 3, .frames = {{.text = "main"}, {.text = " f\n"}}, .count = 4, .ns = 40, .copy = 2},
        {.thread = "t", .tid = 1, .frames = {{.text = "main"}, {.text = "f", .kind = NAME_JIT}}, .count = 8, .ns = 80},
    };
    EXPECT(samples, &by_samples, "t;main;f 7\nt;main;f_[j] 8\n");
    EXPECT(samples, &by_ns, "t;main;f 70\nt;main;f_[j] 80\n");
}

static void test_sorted_as_whole_lines(void **state)
{
    (void)state;
    /* Blank sorts before ';', '1' and letters; bytes above 0x7f behind all; the number belongs to the line. */
    const struct sample samples[] = {
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .count = 9},
        {.thread = "t", .tid = 1, .frames = {{.text = "f !"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "f 5 x"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}, {.text = "g"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "f!"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "\xc3\xa9"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "Z"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "~"}}, .count = 1},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}, {.text = "10"}}, .count = 10},
        {.thread = "t", .tid = 1, .frames = {{.text = "f"}, {.text = "1"}}, .count = 9},
    };
    EXPECT(samples, &by_samples,
           "t;Z 1\nt;f ! 1\nt;f 5 x 1\nt;f 9\nt;f! 1\nt;f;1 9\nt;f;10 10\nt;f;g 1\nt;~ 1\nt;\xc3\xa9 1\n");
}

/* What LC_ALL=C sort says: bytes of whole lines. */
static void expect_sorted(const char *text)
{
    const char *before = NULL;
    size_t before_size = 0;
    for (const char *line = text; *line;) {
        const char *stop = strchr(line, '\n');
        assert_non_null(stop);
        size_t size = (size_t)(stop - line);
        if (before) {
            int order = memcmp(before, line, before_size < size ? before_size : size);
            assert_true(order < 0 || (order == 0 && before_size < size));
        }
        before = line;
        before_size = size;
        line = stop + 1;
    }
}

/* One character of the byte-order traps: blank, '!', '0', ';', letter, more than ASCII, control, invalid. */
static const char *const letters[] = {" ", "!", "0", "9", ";", "a", "_", "\xc3\xa9", "\n", "\xff", "~"};

static char *random_name(struct rng *rng)
{
    char *name = calloc(1, 16);
    for (size_t i = 1 + rng_below(rng, 3); i > 0; i--)
        strcat(name, letters[rng_below(rng, sizeof(letters) / sizeof(letters[0]))]);
    return name;
}

static void test_any_order_same_bytes(void **state)
{
    (void)state;
    enum { NAMES = 24, SAMPLES = 300, SEEDS = 8 };
    struct rng rng = {.state = 6};
    char *names[NAMES];
    struct sample samples[SAMPLES];
    for (size_t i = 0; i < NAMES; i++)
        names[i] = random_name(&rng);
    for (size_t i = 0; i < SAMPLES; i++) {
        samples[i] = (struct sample){.tid = 1 + (pid_t)rng_below(&rng, 5),
                                     .kind = (enum sample_kind)rng_below(&rng, 3),
                                     .count = 1 + rng_below(&rng, 20),
                                     .ns = rng_below(&rng, 100000),
                                     .copy = (uint32_t)rng_below(&rng, 3)};
        samples[i].thread = names[(size_t)samples[i].tid % 3];
        for (size_t depth = rng_below(&rng, MAX_DEPTH + 1); depth > 0; depth--)
            samples[i].frames[depth - 1] =
                (struct frame_name){.text = names[rng_below(&rng, NAMES)], .kind = (enum name_kind)rng_below(&rng, 5)};
        if (!samples[i].frames[0].text)
            samples[i].kind = SAMPLE_FAILED;
    }
    for (unsigned variant = 0; variant < 4; variant++) {
        const struct output_options options = {.value_ns = variant & 1, .show_threads = variant & 2};
        char *first = NULL;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct rng order = {.state = seed};
            for (size_t i = SAMPLES - 1; i > 0 && seed; i--) {
                size_t j = rng_below(&order, i + 1);
                struct sample moved = samples[i];
                samples[i] = samples[j];
                samples[j] = moved;
            }
            struct profile *profile = profile_new();
            for (size_t i = 0; i < SAMPLES; i++)
                add_sample(profile, &samples[i]);
            char *text = text_of(profile, &options);
            profile_free(profile);
            expect_sorted(text);
            if (first)
                assert_string_equal(text, first);
            else
                first = text;
            if (text != first)
                free(text);
        }
        free(first);
    }
    for (size_t i = 0; i < NAMES; i++)
        free(names[i]);
}

static void test_total_is_kept(void **state)
{
    (void)state;
    enum { STACKS = 20000 };
    struct profile *profile = profile_new();
    uint64_t total = 0;
    for (size_t i = 0; i < STACKS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "function %zu", i % 5000);
        const struct sample sample = {.thread = "t", .tid = 1 + (pid_t)(i % 3), .frames = {{.text = name}}, .count = i};
        total += i;
        add_sample(profile, &sample);
    }
    char *text = text_of(profile, &by_samples);
    expect_sorted(text);
    size_t lines = 0;
    uint64_t sum = 0;
    for (char *line = text; *line; lines++) {
        char *stop = strchr(line, '\n');
        *stop = '\0';
        sum += strtoull(strrchr(line, ' ') + 1, NULL, 10);
        line = stop + 1;
    }
    assert_int_equal(lines, 5000);
    assert_int_equal(sum, total);
    free(text);
    profile_free(profile);
}

static void test_write_error_is_kept(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    const struct sample sample = {.thread = "t", .tid = 1, .frames = {{.text = "f"}}, .count = 1};
    add_sample(profile, &sample);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct sink sink = {.fd = fd};
    collapsed_write(profile, &by_samples, &sink);
    assert_int_equal(sink_finish(&sink), -ENOSPC);
    close(fd);
    profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_samples),
        cmocka_unit_test(test_root_first),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_no_tid),
        cmocka_unit_test(test_suffixes),
        cmocka_unit_test(test_inlined),
        cmocka_unit_test(test_frame_without_name),
        cmocka_unit_test(test_equal_texts_are_one_line),
        cmocka_unit_test(test_sorted_as_whole_lines),
        cmocka_unit_test(test_any_order_same_bytes),
        cmocka_unit_test(test_total_is_kept),
        cmocka_unit_test(test_write_error_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
