#include "cmocka_all.h"

#include "common/rng.h"
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

static uint32_t frame_of(struct profile *profile, uint32_t image, uint32_t space, uint64_t off)
{
    struct place place = {.image = image, .space = space, .off = off};
    uint32_t frame;
    assert_int_equal(profile_add_frame(profile, &place, &frame), 0);
    return frame;
}

static uint32_t thread_of(struct profile *profile, pid_t tid, uint64_t cpu_ns)
{
    struct profile_thread thread = {.pid = tid, .tid = tid, .cpu_ns = cpu_ns};
    uint32_t number;
    assert_int_equal(profile_add_thread(profile, &thread, &number), 0);
    return number;
}

static void add(struct profile *profile, struct profile_sample sample)
{
    assert_int_equal(profile_add_sample(profile, &sample), 0);
}

static void test_empty(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    assert_non_null(profile);
    assert_int_equal(profile->sample_count, 0);
    assert_int_equal(profile->stack_count, 1);
    assert_int_equal(profile->stacks[0].depth, 0);
    assert_int_equal(profile_scale_by_cpu(profile), 0);
    assert_int_equal(profile->sample_count, 0);
    uint32_t stack = 7;
    assert_int_equal(profile_add_stack(profile, NULL, 0, &stack), 0);
    assert_int_equal(stack, 0);
    profile_free(profile);
    profile_free(NULL);
}

static void test_frames(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t a = frame_of(profile, 1, 0, 0x1000);
    assert_int_equal(frame_of(profile, 1, 0, 0x1000), a);
    uint32_t b = frame_of(profile, 1, 0, 0x1001);
    uint32_t c = frame_of(profile, 2, 0, 0x1000);
    uint32_t d = frame_of(profile, 1, 1, 0x1000);
    uint32_t e = frame_of(profile, 0, 1, 0x1000);
    uint32_t f = frame_of(profile, 0, 0, 0);
    assert_int_equal(profile->frame_count, 6);
    assert_int_equal(a + b + c + d + e + f, 15);
    assert_int_equal(frame_of(profile, 0, 1, 0x1000), e);
    assert_int_equal(profile->frames[d].place.space, 1);
    assert_int_equal(profile->frames[d].name_count, 0);
    profile_free(profile);
}

static void test_many_frames(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct profile *profile = profile_new();
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(frame_of(profile, i % 7, i % 3, i), i);
    assert_int_equal(profile->frame_count, COUNT);
    profile_free(profile);
}

static void test_stacks(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t root = frame_of(profile, 1, 0, 1);
    uint32_t middle = frame_of(profile, 1, 0, 2);
    uint32_t leaf = frame_of(profile, 1, 0, 3);
    uint32_t stack;
    assert_int_equal(profile_add_stack(profile, (const uint32_t[]){leaf, middle, root}, 3, &stack), 0);

    /* Innermost first went in: the stack's own frame is the leaf, the root's caller is the empty stack. */
    const struct profile_stack *at = &profile->stacks[stack];
    assert_int_equal(at->depth, 3);
    assert_int_equal(at->frame, leaf);
    at = &profile->stacks[at->caller];
    assert_int_equal(at->depth, 2);
    assert_int_equal(at->frame, middle);
    uint32_t middle_stack = profile->stacks[stack].caller;
    at = &profile->stacks[at->caller];
    assert_int_equal(at->depth, 1);
    assert_int_equal(at->frame, root);
    assert_int_equal(at->caller, 0);

    /* Equal stacks, common roots and whole recursions are kept once. */
    uint32_t other;
    assert_int_equal(profile_add_stack(profile, (const uint32_t[]){leaf, middle, root}, 3, &other), 0);
    assert_int_equal(other, stack);
    assert_int_equal(profile_add_stack(profile, (const uint32_t[]){middle, root}, 2, &other), 0);
    assert_int_equal(other, middle_stack);
    assert_int_equal(profile->stack_count, 4);
    assert_int_equal(profile_add_stack(profile, (const uint32_t[]){root, middle, leaf}, 3, &other), 0);
    assert_int_not_equal(other, stack);
    assert_int_equal(profile->stack_count, 7);
    profile_free(profile);
}

static void test_deep_stack(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    struct profile *profile = profile_new();
    uint32_t *frames = calloc(DEPTH, sizeof(*frames));
    uint32_t f = frame_of(profile, 1, 0, 1);
    uint32_t g = frame_of(profile, 1, 0, 2);
    for (size_t i = 0; i < DEPTH; i++)
        frames[i] = i % 2 ? f : g;
    uint32_t first;
    uint32_t second;
    assert_int_equal(profile_add_stack(profile, frames, DEPTH, &first), 0);
    assert_int_equal(profile_add_stack(profile, frames, DEPTH, &second), 0);
    assert_int_equal(first, second);
    assert_int_equal(profile->stack_count, DEPTH + 1);
    assert_int_equal(profile->stacks[first].depth, DEPTH);
    free(frames);
    profile_free(profile);
}

static void test_threads_are_never_merged(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    assert_int_equal(thread_of(profile, 5, 0), 0);
    assert_int_equal(thread_of(profile, 5, 0), 1);
    assert_int_equal(profile->thread_count, 2);
    profile_free(profile);
}

static void test_samples(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t thread = thread_of(profile, 5, 0);
    uint32_t other = thread_of(profile, 6, 0);
    uint32_t frame = frame_of(profile, 1, 0, 1);
    uint32_t stack;
    assert_int_equal(profile_add_stack(profile, &frame, 1, &stack), 0);
    uint32_t name;
    assert_int_equal(strings_add(&profile->strings, "name", &name), 0);
    struct profile_sample sample = {.thread = thread, .thread_name = name, .stack = stack, .count = 2, .ns = 10};
    add(profile, sample);
    sample.count = 3;
    sample.ns = 5;
    add(profile, sample);
    assert_int_equal(profile->sample_count, 1);
    assert_int_equal(profile->samples[0].count, 5);
    assert_int_equal(profile->samples[0].ns, 15);

    struct profile_sample different[] = {sample, sample, sample, sample, sample};
    different[0].thread = other;
    different[1].thread_name = 0; /* it renamed itself */
    different[2].stack = 0;
    different[3].kind = SAMPLE_TRUNCATED;
    different[4].kind = SAMPLE_FAILED;
    for (size_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < 5; i++)
            add(profile, different[i]);
    assert_int_equal(profile->sample_count, 6);
    for (size_t i = 1; i < 6; i++)
        assert_int_equal(profile->samples[i].count, 9);
    assert_int_equal(profile->samples[0].count, 5);
    profile_free(profile);
}

static void test_scale_sums_exactly(void **state)
{
    (void)state;
    struct rng rng = {.state = 4};
    for (size_t turn = 0; turn < 200; turn++) {
        struct profile *profile = profile_new();
        size_t threads = 1 + rng_below(&rng, 5);
        uint64_t count[5] = {0};
        uint64_t ns[5] = {0};
        for (size_t i = 0; i < threads; i++)
            thread_of(profile, (pid_t)i + 1, rng_next(&rng) >> rng_below(&rng, 64));
        for (size_t i = 0; i < 50; i++) {
            struct profile_sample sample = {.thread = (uint32_t)rng_below(&rng, threads),
                                            .thread_name = (uint32_t)rng_below(&rng, 20),
                                            .count = 1 + rng_below(&rng, 1000),
                                            .ns = 0};
            add(profile, sample);
            count[sample.thread] += sample.count;
        }
        assert_int_equal(profile_scale_by_cpu(profile), 0);
        for (size_t i = 0; i < profile->sample_count; i++) {
            const struct profile_sample *sample = &profile->samples[i];
            uint64_t total_ns = profile->threads[sample->thread].cpu_ns;
            ns[sample->thread] += sample->ns;
            if (sample->kind == SAMPLE_NOT_SAMPLED)
                continue;
            /* Its share, to one nanosecond. */
            unsigned __int128 exact = (unsigned __int128)total_ns * sample->count;
            uint64_t below = (uint64_t)(exact / count[sample->thread]);
            assert_true(sample->ns >= (below ? below - 1 : 0) && sample->ns <= below + 1);
        }
        for (size_t i = 0; i < threads; i++)
            assert_true(ns[i] == profile->threads[i].cpu_ns);
        profile_free(profile);
    }
}

static void test_scale_without_samples(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t name;
    assert_int_equal(strings_add(&profile->strings, "lazy", &name), 0);
    struct profile_thread unseen = {.pid = 1, .tid = 2, .name = name, .cpu_ns = 1234};
    uint32_t number;
    assert_int_equal(profile_add_thread(profile, &unseen, &number), 0);
    thread_of(profile, 3, 0); /* no time: nothing to show */
    uint32_t seen = thread_of(profile, 4, 99);
    add(profile, (struct profile_sample){.thread = seen, .kind = SAMPLE_FAILED, .count = 3, .ns = 5});
    assert_int_equal(profile_scale_by_cpu(profile), 0);
    assert_int_equal(profile->sample_count, 2);
    assert_int_equal(profile->samples[0].ns, 99);
    const struct profile_sample *sample = &profile->samples[1];
    assert_int_equal(sample->kind, SAMPLE_NOT_SAMPLED);
    assert_int_equal(sample->thread, number);
    assert_int_equal(sample->thread_name, name);
    assert_int_equal(sample->stack, 0);
    assert_int_equal(sample->count, 0);
    assert_int_equal(sample->ns, 1234);
    profile_free(profile);
}

/* What the samples stood for so far counts, if it is known. */
static void test_scale_by_time(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t thread = thread_of(profile, 1, 1000);
    add(profile, (struct profile_sample){.thread = thread, .state = 1, .count = 1, .ns = 30});
    add(profile, (struct profile_sample){.thread = thread, .state = 2, .count = 1, .ns = 10});
    assert_int_equal(profile_scale_by_cpu(profile), 0);
    assert_int_equal(profile->samples[0].ns, 750);
    assert_int_equal(profile->samples[1].ns, 250);
    profile_free(profile);
}

/* Of each thread: the accounts, its samples' time in each of them, and what they are to be. */
static void test_scale_by_accounts(void **state)
{
    (void)state;
    static const struct {
        uint64_t cpu_ns, wait_ns;
        uint64_t sampled_ns[ACCOUNT_COUNT];
        uint64_t wanted_ns[ACCOUNT_COUNT];
    } cases[] = {
        {300, 100, {600, 250, 150}, {600, 300, 100}},
        {300, 100, {1000, 0, 0}, {1000, 0, 0}}, /* never seen in these: the rest has it */
        {300, 100, {900, 100, 0}, {700, 300, 0}},
        {300, 100, {0, 800, 200}, {0, 300, 700}}, /* what no account has */
        {300, 0, {0, 1000, 0}, {0, 1000, 0}},
        {5000, 100, {500, 400, 100}, {0, 1000, 0}}, /* more than there was */
        {700, 5000, {500, 400, 100}, {0, 700, 300}},
        {0, 0, {500, 400, 100}, {500, 400, 100}}, /* not known */
        {1, 1, {0, 0, 0}, {0, 0, 0}},
    };
    struct profile *profile = profile_new();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t thread = thread_of(profile, (pid_t)i + 1, cases[i].cpu_ns);
        profile->threads[thread].wait_ns = cases[i].wait_ns;
        for (unsigned account = 0; account < ACCOUNT_COUNT; account++)
            for (unsigned part = 0; part < 2; part++) /* a third and the rest */
                add(profile,
                    (struct profile_sample){.thread = thread,
                                            .state = 2 * account + part,
                                            .account = (enum sample_account)account,
                                            .count = 1,
                                            .ns = part ? cases[i].sampled_ns[account] - cases[i].sampled_ns[account] / 3
                                                       : cases[i].sampled_ns[account] / 3});
    }
    assert_int_equal(profile_scale_by_accounts(profile), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct profile_sample *samples = &profile->samples[2 * ACCOUNT_COUNT * i];
        for (unsigned account = 0; account < ACCOUNT_COUNT; account++) {
            uint64_t wanted_ns = cases[i].wanted_ns[account];
            uint64_t sampled_ns = cases[i].sampled_ns[account];
            assert_int_equal(samples[2 * account].ns + samples[2 * account + 1].ns, wanted_ns);
            if (sampled_ns)
                assert_int_equal(samples[2 * account].ns, wanted_ns * (sampled_ns / 3) / sampled_ns);
        }
    }
    profile_free(profile);
}

static void test_names(void **state)
{
    (void)state;
    struct profile *profile = profile_new();
    uint32_t a = frame_of(profile, 1, 0, 1);
    uint32_t b = frame_of(profile, 1, 0, 2);
    assert_int_equal(profile_add_name(profile, a, "outer", NAME_FUNCTION), 0);
    assert_int_equal(profile_add_name(profile, a, "inlined", NAME_INLINED), 0);
    assert_int_equal(profile_add_name(profile, b, "outer", NAME_JIT), 0);
    const struct profile_frame *frame = &profile->frames[a];
    assert_int_equal(frame->name_count, 2);
    const struct name *names = &profile->names[frame->first_name];
    assert_string_equal(strings_get(&profile->strings, names[0].text), "outer");
    assert_int_equal(names[0].kind, NAME_FUNCTION);
    assert_string_equal(strings_get(&profile->strings, names[1].text), "inlined");
    assert_int_equal(names[1].kind, NAME_INLINED);
    frame = &profile->frames[b];
    assert_int_equal(frame->name_count, 1);
    assert_int_equal(profile->names[frame->first_name].text, names[0].text);
    assert_int_equal(profile->names[frame->first_name].kind, NAME_JIT);
    profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_many_frames),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_deep_stack),
        cmocka_unit_test(test_threads_are_never_merged),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_scale_sums_exactly),
        cmocka_unit_test(test_scale_by_time),
        cmocka_unit_test(test_scale_by_accounts),
        cmocka_unit_test(test_scale_without_samples),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
