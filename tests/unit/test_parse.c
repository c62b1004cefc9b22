#include "cmocka_all.h"

#include "common/parse.h"
#include "guarded.h"

typedef bool parse_one(const char **cursor, const char *end, uint64_t *ret);

/* `used` of the text is the number; 0: there is none, and nothing may have moved. */
static void expect(parse_one *parse, const char *text, size_t used, uint64_t value)
{
    struct guarded bytes = guarded_new(text, strlen(text));
    const char *start = (const char *)bytes.bytes;
    const char *cursor = start;
    uint64_t got = 4711;
    bool found = parse(&cursor, start + strlen(text), &got);
    if (found != (used > 0) || (size_t)(cursor - start) != used || got != (used ? value : 4711))
        fail_msg("'%s': %d, %zu bytes, %llu", text, found, (size_t)(cursor - start), (unsigned long long)got);
    guarded_free(&bytes);
}

static void test_u64(void **state)
{
    (void)state;
    expect(parse_u64, "0", 1, 0);
    expect(parse_u64, "42", 2, 42);
    expect(parse_u64, "42 x", 2, 42);
    expect(parse_u64, "00042", 5, 42);
    expect(parse_u64, "12a", 2, 12);
    expect(parse_u64, "18446744073709551615", 20, UINT64_MAX);
    expect(parse_u64, "018446744073709551615", 21, UINT64_MAX);
    expect(parse_u64, "18446744073709551616", 0, 0);
    expect(parse_u64, "18446744073709551620", 0, 0);
    expect(parse_u64, "99999999999999999999", 0, 0);
    expect(parse_u64, "100000000000000000000000000000000", 0, 0);
    expect(parse_u64, "", 0, 0);
    expect(parse_u64, " 1", 0, 0);
    expect(parse_u64, "-1", 0, 0);
    expect(parse_u64, "+1", 0, 0);
    expect(parse_u64, "a", 0, 0);
    expect(parse_u64, "/", 0, 0);
    expect(parse_u64, ":", 0, 0);
    expect(parse_u64, "\377", 0, 0);
}

static void test_hex(void **state)
{
    (void)state;
    expect(parse_hex, "0", 1, 0);
    expect(parse_hex, "ff", 2, 255);
    expect(parse_hex, "DeadBeef-", 8, 0xdeadbeef);
    expect(parse_hex, "7fffffffffffffff", 16, INT64_MAX);
    expect(parse_hex, "ffffffffffffffff", 16, UINT64_MAX);
    expect(parse_hex, "00ffffffffffffffff", 18, UINT64_MAX);
    expect(parse_hex, "10000000000000000", 0, 0);
    expect(parse_hex, "fffffffffffffffff", 0, 0);
    expect(parse_hex, "0x10", 1, 0);
    expect(parse_hex, "g", 0, 0);
    expect(parse_hex, "`", 0, 0);
    expect(parse_hex, "@", 0, 0);
    expect(parse_hex, "", 0, 0);
}

static void test_end_is_the_end(void **state)
{
    (void)state;
    static const char text[] = "123456";
    for (size_t size = 0; size < 6; size++) {
        const char *cursor = text;
        uint64_t value = 0;
        uint64_t wanted = 0;
        for (size_t i = 0; i < size; i++)
            wanted = wanted * 10 + i + 1;
        assert_int_equal(parse_u64(&cursor, text + size, &value), size > 0);
        assert_int_equal(value, wanted);
        assert_ptr_equal(cursor, text + size);
    }
}

static void test_number(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", " ", "1 ", " 1", "1x", "x", "-1", "1.0", "18446744073709551616"};
    uint64_t value = 5;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct guarded bytes = guarded_new(wrong[i], strlen(wrong[i]) + 1);
        assert_false(parse_number((const char *)bytes.bytes, &value));
        assert_int_equal(value, 5);
        guarded_free(&bytes);
    }
    assert_true(parse_number("18446744073709551615", &value));
    assert_true(value == UINT64_MAX);
    assert_true(parse_number("007", &value));
    assert_int_equal(value, 7);
}

static void blanks(const char *text, size_t used)
{
    struct guarded bytes = guarded_new(text, strlen(text));
    const char *start = (const char *)bytes.bytes;
    const char *cursor = start;
    assert_int_equal(parse_blanks(&cursor, start + strlen(text)), used > 0);
    assert_int_equal(cursor - start, used);
    guarded_free(&bytes);
}

static void test_blanks(void **state)
{
    (void)state;
    blanks("", 0);
    blanks("x", 0);
    blanks("\n", 0);
    blanks(" ", 1);
    blanks(" \t \t", 4);
    blanks("\t x ", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u64),    cmocka_unit_test(test_hex),    cmocka_unit_test(test_end_is_the_end),
        cmocka_unit_test(test_number), cmocka_unit_test(test_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
