#include "cmocka_all.h"

#include "sampler/codebytes.h"

#include <string.h>

static void expect(const struct codebytes *store, uint64_t avma, const char *bytes)
{
    char found[256];
    size_t size = strlen(bytes);
    assert_true(codebytes_read(store, avma, found, size));
    assert_memory_equal(found, bytes, size);
}

static void test_read_what_was_set(void **state)
{
    (void)state;
    char byte;
    struct codebytes *store = codebytes_new();
    assert_non_null(store);
    assert_false(codebytes_read(store, 100, &byte, 1));
    /* Across two blocks of any size that divides 1024. */
    assert_int_equal(codebytes_set(store, 1024 - 3, "abcdef", 6), 0);
    expect(store, 1024 - 3, "abcdef");
    expect(store, 1024, "def");
    assert_false(codebytes_read(store, 1024 - 4, &byte, 1));
    assert_false(codebytes_read(store, 1024 + 3, &byte, 1));
    char many[7];
    assert_false(codebytes_read(store, 1024 - 3, many, 7));
    assert_int_equal(codebytes_set(store, 1024 - 1, "XY", 2), 0);
    expect(store, 1024 - 3, "abXYef");
    codebytes_free(store);
}

static void test_forget(void **state)
{
    (void)state;
    char bytes[6];
    struct codebytes *store = codebytes_new();
    assert_int_equal(codebytes_set(store, 4096, "abcdef", 6), 0);
    codebytes_forget(store, 4098, 2);
    codebytes_forget(store, 1, 100);
    assert_false(codebytes_read(store, 4096, bytes, 6));
    assert_false(codebytes_read(store, 4098, bytes, 1));
    expect(store, 4096, "ab");
    expect(store, 4100, "ef");
    assert_int_equal(codebytes_set(store, 4097, "123", 3), 0);
    expect(store, 4096, "a123ef");
    codebytes_free(store);
}

/* However much is put into it, it stays small; and it does the same with the same calls. */
static void test_limit(void **state)
{
    (void)state;
    struct codebytes *one = codebytes_new();
    struct codebytes *two = codebytes_new();
    size_t known = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        assert_int_equal(codebytes_set(one, i * 1024, &i, sizeof(i)), 0);
        assert_int_equal(codebytes_set(two, i * 1024, &i, sizeof(i)), 0);
    }
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t found;
        bool is_known = codebytes_read(one, i * 1024, &found, sizeof(found));
        assert_true(!is_known || found == i);
        assert_int_equal(is_known, codebytes_read(two, i * 1024, &found, sizeof(found)));
        known += is_known;
    }
    assert_in_range(known, 1, 65536);
    codebytes_free(one);
    codebytes_free(two);
}

static void test_ends_of_the_address_space(void **state)
{
    (void)state;
    struct codebytes *store = codebytes_new();
    assert_int_equal(codebytes_set(store, UINT64_MAX - 4, "abcd", 4), 0);
    assert_int_equal(codebytes_set(store, 0, "xyz", 3), 0);
    expect(store, UINT64_MAX - 4, "abcd");
    expect(store, 0, "xyz");
    codebytes_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_what_was_set),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_ends_of_the_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
