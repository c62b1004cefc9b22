#include "cmocka_all.h"

#include "common/strings.h"
#include "guarded.h"

#include <stdio.h>
#include <string.h>

static void test_equal_bytes_equal_numbers(void **state)
{
    (void)state;
    struct strings strings;
    assert_int_equal(strings_init(&strings), 0);
    uint32_t empty = 9;
    uint32_t a;
    uint32_t b;
    uint32_t again;
    assert_int_equal(strings_add(&strings, "", &empty), 0);
    assert_int_equal(empty, 0);
    assert_string_equal(strings_get(&strings, 0), "");
    assert_int_equal(strings_add(&strings, "a", &a), 0);
    assert_int_equal(strings_add(&strings, "a ", &b), 0);
    assert_int_not_equal(a, b);
    char copy[] = "a";
    assert_int_equal(strings_add(&strings, copy, &again), 0);
    assert_int_equal(again, a);
    copy[0] = 'x'; /* ours, not the table's */
    assert_string_equal(strings_get(&strings, a), "a");
    assert_int_equal(strings.count, 3);
    strings_deinit(&strings);
    strings_deinit(&strings);
}

static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    struct strings strings;
    assert_int_equal(strings_init(&strings), 0);
    const char *first = NULL;
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            char text[32];
            snprintf(text, sizeof(text), "function_%u", i);
            uint32_t number;
            assert_int_equal(strings_add(&strings, text, &number), 0);
            assert_int_equal(number, i + 1);
            if (i == 0 && turn == 0)
                first = strings_get(&strings, number);
        }
    }
    assert_int_equal(strings.count, COUNT + 1);
    /* Borrowed until the end: growth moves no string. */
    assert_ptr_equal(strings_get(&strings, 1), first);
    assert_string_equal(strings_get(&strings, COUNT), "function_49999");
    strings_deinit(&strings);
}

static void test_at_page_end(void **state)
{
    (void)state;
    struct strings strings;
    assert_int_equal(strings_init(&strings), 0);
    for (size_t size = 0; size < 40; size++) {
        char text[41];
        memset(text, '\377', sizeof(text));
        text[size] = '\0';
        struct guarded bytes = guarded_new(text, size + 1);
        uint32_t number;
        assert_int_equal(strings_add(&strings, (const char *)bytes.bytes, &number), 0);
        assert_int_equal(number, size);
        assert_string_equal(strings_get(&strings, number), text);
        guarded_free(&bytes);
    }
    strings_deinit(&strings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_bytes_equal_numbers),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_at_page_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
