#include "cmocka_all.h"

#include "guarded.h"
#include "output/clean.h"

#include <string.h>

static void expect_as(const char *name, bool is_last, const char *wanted)
{
    struct guarded bytes = guarded_new(name, strlen(name) + 1);
    struct strbuf text = {0};
    strbuf_adds(&text, "before;");
    clean_name(&text, (const char *)bytes.bytes, is_last);
    assert_int_equal(strbuf_error(&text), 0);
    assert_string_equal(text.data + 7, wanted);
    assert_int_equal(text.size, 7 + strlen(wanted));
    assert_memory_equal(text.data, "before;", 7);
    strbuf_deinit(&text);
    guarded_free(&bytes);
}

/* The same, wherever the name stands. */
static void expect(const char *name, const char *wanted)
{
    expect_as(name, false, wanted);
    expect_as(name, true, wanted);
}

static void test_plain(void **state)
{
    (void)state;
    expect("main", "main");
    expect("std::map<int, char *>::operator[](int const&)", "std::map<int, char *>::operator[](int const&)");
    expect("operator delete[](void*, unsigned long)", "operator delete[](void*, unsigned long)");
    expect("[libc.so.6]", "[libc.so.6]");
    expect("a  b", "a  b");
    expect("\"\\`$'", "\"\\`$'");
}

static void test_separator(void **state)
{
    (void)state;
    expect(";", ":");
    expect("a;b;;c", "a:b::c");
    expect("Lcom/Class;::method", "Lcom/Class:::method");
}

static void test_control_bytes(void **state)
{
    (void)state;
    for (char c = 1; c < 0x20; c++) {
        expect((const char[]){'a', c, 'b', '\0'}, "a b");
        expect((const char[]){c, 'b', '\0'}, "b");
        expect((const char[]){'a', c, '\0'}, "a");
        expect((const char[]){c, '\0'}, "[unknown]");
    }
    expect("a\x7f"
           "b",
           "a b");
    expect("\x7f", "[unknown]");
    expect("a\nb\tc\rd\033[0m", "a b c d [0m");
    expect("a\n\nb", "a  b");
}

static void test_blanks(void **state)
{
    (void)state;
    expect("  a b  ", "a b");
    expect(" \t\n a \r\n ", "a");
    expect("", "[unknown]");
    expect(" ", "[unknown]");
    expect("\t \n", "[unknown]");
}

static void test_valid_utf8(void **state)
{
    (void)state;
    static const char *const valid[] = {
        "\xc2\x80x",        "\xdf\xbf",         "\xe0\xa0\x80",
        "\xed\x9f\xbf",     "\xee\x80\x80",     "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 end",
        "\xc2\xa0" /* a no-break space is no blank */
    };
    for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++)
        expect(valid[i], valid[i]);
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *wanted;
    } cases[] = {
        /* lone continuation bytes */
        {"\x80", "?"},
        {"a\xbf"
         "b",
         "a?b"},
        {"\x80\x80\x80", "???"},
        {"\xc3\xa9\xa9", "\xc3\xa9?"},
        /* overlong forms */
        {"\xc0\x80", "??"},
        {"\xc0\xaf", "??"},
        {"\xc1\xbf", "??"},
        {"\xe0\x80\xaf", "???"},
        {"\xe0\x9f\xbf", "???"},
        {"\xf0\x80\x80\xaf", "????"},
        {"\xf0\x8f\xbf\xbf", "????"},
        /* surrogates */
        {"\xed\xa0\x80", "???"},
        {"\xed\xbf\xbf", "???"},
        {"\xed\xa0\xbd\xed\xb8\x80", "??????"},
        /* beyond U+10FFFF */
        {"\xf4\x90\x80\x80", "????"},
        {"\xf5\x80\x80\x80", "????"},
        {"\xf8\x88\x80\x80\x80", "?????"},
        {"\xfc\x84\x80\x80\x80\x80", "??????"},
        {"\xfe\xff", "??"},
        /* truncated, at the end and before a good byte */
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xf0\x9f\x98", "???"},
        {"\xf0\x9f", "??"},
        {"\xc3x", "?x"},
        {"\xe2\x82x", "??x"},
        {"\xf0\x9f\x98x", "???x"},
        {"\xe2\xc3\xa9", "?\xc3\xa9"},
        /* what hides behind a bad start is still cleaned */
        {"\xe2;\n;", "?: :"},
        {"\xc3 ", "?"},
        {" \xff ", "?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect(cases[i].name, cases[i].wanted);
}

static void expect_last(const char *name, const char *wanted)
{
    expect_as(name, true, wanted);
    /* Anywhere else the number stays. */
    struct strbuf inner = {0};
    clean_name(&inner, name, false);
    assert_int_equal(inner.size, strlen(wanted));
    for (size_t i = 0; i < inner.size; i++)
        assert_true(inner.data[i] == wanted[i] || (inner.data[i] == ' ' && wanted[i] == '_'));
    assert_int_equal(strcmp(inner.data, wanted) != 0, strchr(wanted, '_') != NULL);
    strbuf_deinit(&inner);
}

static void test_number_at_the_end(void **state)
{
    (void)state;
    expect_last("name 12", "name_12");
    expect_last("f 1.5", "f_1.5");
    expect_last("f 1.", "f_1.");
    expect_last("name  12", "name _12");
    expect_last("name 3 12", "name 3_12");
    expect_last("name\t12", "name_12");
    expect_last("name\n12\n", "name_12");
    expect_last("name 12 ", "name_12");
    expect_last("name\xff 0", "name?_0");
    expect_last(" a 00000000000000000000000000001", "a_00000000000000000000000000001");
}

static void test_no_number_at_the_end(void **state)
{
    (void)state;
    expect("12", "12");
    expect(" 12", "12");
    expect("name12", "name12");
    expect("name 12x", "name 12x");
    expect("name x12", "name x12");
    expect("name -12", "name -12");
    expect("name 12)", "name 12)");
    expect("name\xc2\xa0"
           "12",
           "name\xc2\xa0"
           "12");
    expect("name .", "name .");
}

static void test_suffixes(void **state)
{
    (void)state;
    assert_string_equal(clean_suffix(NAME_FUNCTION), "");
    assert_string_equal(clean_suffix(NAME_NONE), "");
    assert_string_equal(clean_suffix(NAME_INLINED), "_[i]");
    assert_string_equal(clean_suffix(NAME_JIT), "_[j]");
    assert_string_equal(clean_suffix(NAME_KERNEL), "_[k]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_separator),
        cmocka_unit_test(test_control_bytes),
        cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_valid_utf8),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_number_at_the_end),
        cmocka_unit_test(test_no_number_at_the_end),
        cmocka_unit_test(test_suffixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
