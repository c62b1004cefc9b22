/*
 * Where a stack's beginning is near: behind frames that have never set rbp. Stacks are arrays of words; code is one
 * image with an entry point, and anonymous memory.
 */
#include "cmocka_all.h"

#include "frameimage.h"
#include "unwind/origin.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_AVMA = 0x400000, CODE_BYTES = 0x100, BIAS = 0x10000000, STACK_AVMA = 0x7f0000, WORDS = 80, NEAR = 64 };

/* In the image: the entry point has a call at its start, and one at the last place that is near enough. */
enum { ENTRY = FRAMEIMAGE_TEXT + 0x100, CALL_BYTES = 5, LAST_CALL = ENTRY + 96, ELSEWHERE = ENTRY + 97 };
#define START_RETURN ((uint64_t)BIAS + ENTRY + CALL_BYTES)

/* In anonymous memory: behind a call, and where a thread's first function returns to, behind none. */
enum { ORDINARY = CODE_AVMA + 0x20, THREAD_END = CODE_AVMA + 0x80 };

static uint8_t code[CODE_BYTES];

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    if (avma < CODE_AVMA || avma + size > CODE_AVMA + CODE_BYTES)
        return false;
    memcpy(buffer, code + (avma - CODE_AVMA), size);
    return true;
}

struct fixture {
    uint64_t words[WORDS];
    struct code_region regions[2];
    struct codemap map;
    struct snapshot snapshot;
    struct memory_reader reader;
    struct view view;
    struct callsites callsites;
    struct registers registers;
    struct image *image;
};

static struct image *open_image(void)
{
    static uint8_t text[0x400];
    memset(text, 0x90, sizeof(text));
    text[ENTRY - FRAMEIMAGE_TEXT] = 0xe8;
    text[LAST_CALL - FRAMEIMAGE_TEXT - CALL_BYTES] = 0xe8;
    text[ELSEWHERE - FRAMEIMAGE_TEXT - CALL_BYTES] = 0xe8;
    struct frameimage parts = {.text = text, .text_bytes = sizeof(text), .entry_svma = ENTRY};
    return frameimage_open(&parts);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (!fixture)
        return -1;
    *state = fixture;
    static const uint8_t exit_call[] = {0xb0, 0x3c, 0x0f, 0x05};
    memset(code, 0x90, sizeof(code));
    code[ORDINARY - CODE_AVMA - CALL_BYTES] = 0xe8;
    memcpy(code + THREAD_END - CODE_AVMA, exit_call, sizeof(exit_call));
    fixture->image = open_image();
    fixture->regions[0] = (struct code_region){.start_avma = CODE_AVMA, .end_avma = CODE_AVMA + CODE_BYTES};
    fixture->regions[1] = (struct code_region){.start_avma = BIAS + FRAMEIMAGE_TEXT,
                                               .end_avma = BIAS + FRAMEIMAGE_TEXT + 0x400,
                                               .map_off = FRAMEIMAGE_TEXT,
                                               .bias = BIAS,
                                               .image = fixture->image,
                                               .has_bias = true};
    fixture->map = (struct codemap){.generation = 1, .regions = fixture->regions, .count = 2};
    fixture->snapshot = (struct snapshot){
        .stack_start_avma = STACK_AVMA,
        .stack_end_avma = STACK_AVMA + 0x10000,
        .ranges = {{.avma = STACK_AVMA, .bytes = (const uint8_t *)fixture->words, .size = sizeof(fixture->words)}},
        .range_count = 1,
    };
    fixture->reader = (struct memory_reader){.read = read_code};
    fixture->view = (struct view){.map = &fixture->map, .snapshot = &fixture->snapshot, .reader = &fixture->reader};
    fixture->callsites.images = calloc(1, sizeof(struct callsite_cache));
    fixture->callsites.anonymous = calloc(1, sizeof(struct callsite_cache));
    fixture->registers.known = 1U << REGISTER_RBP | 1U << REGISTER_RSP;
    fixture->registers.value[REGISTER_RSP] = STACK_AVMA;
    return fixture->image && fixture->callsites.images && fixture->callsites.anonymous ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    image_free(fixture->image);
    free(fixture->callsites.images);
    free(fixture->callsites.anonymous);
    free(fixture);
    return 0;
}

static bool is_near(struct fixture *fixture, unsigned *ret_words)
{
    *ret_words = 999;
    bool found = origin_is_near(&fixture->view, fixture->callsites, &fixture->registers, ret_words);
    assert_true(found || *ret_words == 999);
    return found;
}

/* `word` at every place: found in the first ones, and not beyond. */
static void expect_near(struct fixture *fixture, uint64_t word)
{
    for (unsigned at = 0; at < WORDS; at++) {
        memset(fixture->words, 0, sizeof(fixture->words));
        fixture->words[at] = word;
        unsigned words;
        bool found = is_near(fixture, &words);
        if (found != (at < NEAR) || (found && words != at))
            fail_msg("word %u", at);
    }
}

static void refuse(struct fixture *fixture, uint64_t word)
{
    memset(fixture->words, 0, sizeof(fixture->words));
    fixture->words[3] = word;
    unsigned words;
    if (is_near(fixture, &words))
        fail_msg("%#llx", (unsigned long long)word);
}

static void a_return_to_the_entry_point_is_found(void **state)
{
    struct fixture *fixture = *state;
    expect_near(fixture, START_RETURN);
    expect_near(fixture, BIAS + LAST_CALL);
    /* Inside the start code, but behind no call; at the entry point; in a function of the same image. */
    refuse(fixture, START_RETURN + 1);
    refuse(fixture, BIAS + ENTRY);
    refuse(fixture, BIAS + ELSEWHERE);
}

static void a_return_to_the_end_of_a_thread_is_found(void **state)
{
    struct fixture *fixture = *state;
    expect_near(fixture, THREAD_END);
    refuse(fixture, ORDINARY);
    code[THREAD_END - CODE_AVMA + 1] = 0x3d;
    /* What was asked before is remembered. */
    memset(fixture->callsites.anonymous, 0, sizeof(*fixture->callsites.anonymous));
    refuse(fixture, THREAD_END);
}

static void words_that_are_no_code_say_nothing(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t words[] = {0,
                              1,
                              8,
                              STACK_AVMA,
                              STACK_AVMA + 64,
                              CODE_AVMA - 1,
                              CODE_AVMA,
                              CODE_AVMA + CODE_BYTES + 1,
                              BIAS,
                              ENTRY + CALL_BYTES, /* without the bias */
                              UINT64_C(0xffffffffff600000),
                              UINT64_MAX};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        refuse(fixture, words[i]);
    /* They are passed over. */
    memset(fixture->words, 0, sizeof(fixture->words));
    memcpy(fixture->words, words, sizeof(words));
    fixture->words[22] = START_RETURN;
    fixture->words[23] = THREAD_END;
    unsigned found;
    assert_true(is_near(fixture, &found));
    assert_int_equal(found, 22);
    assert_true(fixture->view.top_avma >= STACK_AVMA + 23 * 8);
    /* From where the stack pointer is now. */
    fixture->registers.value[REGISTER_RSP] = STACK_AVMA + 23 * 8;
    assert_true(is_near(fixture, &found));
    assert_int_equal(found, 0);
}

static void only_an_rbp_of_zero_says_that_it_was_never_set(void **state)
{
    struct fixture *fixture = *state;
    expect_near(fixture, THREAD_END);
    static const uint64_t values[] = {1, STACK_AVMA, UINT64_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        fixture->registers.value[REGISTER_RBP] = values[i];
        refuse(fixture, THREAD_END);
    }
    fixture->registers.value[REGISTER_RBP] = 0;
    fixture->registers.known = 1U << REGISTER_RSP;
    refuse(fixture, THREAD_END);
}

/* Where the copy ends nothing is known, though what follows may lie in the stack. */
static void what_was_not_copied_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    memset(fixture->words, 0, sizeof(fixture->words));
    fixture->words[10] = THREAD_END;
    unsigned words;
    for (size_t size = 0; size <= 12 * 8; size += 4) {
        fixture->snapshot.ranges[0].size = size;
        if (is_near(fixture, &words) != (size >= 11 * 8))
            fail_msg("%zu bytes", size);
        assert_false(fixture->view.failed);
        assert_true(fixture->view.top_avma <= STACK_AVMA + size);
    }
    fixture->snapshot.range_count = 0;
    assert_false(is_near(fixture, &words));
}

static void an_image_without_entry_point_has_no_beginning(void **state)
{
    struct fixture *fixture = *state;
    image_free(fixture->image);
    static uint8_t text[0x400];
    memset(text, 0xe8, sizeof(text));
    struct frameimage parts = {.text = text, .text_bytes = sizeof(text)};
    fixture->image = frameimage_open(&parts);
    assert_non_null(fixture->image);
    fixture->regions[1].image = fixture->image;
    refuse(fixture, START_RETURN);
    refuse(fixture, BIAS + FRAMEIMAGE_TEXT + CALL_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_return_to_the_entry_point_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_return_to_the_end_of_a_thread_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(words_that_are_no_code_say_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(only_an_rbp_of_zero_says_that_it_was_never_set, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_not_copied_is_not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_without_entry_point_has_no_beginning, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
