#include "cmocka_all.h"

#include "common/strbuf.h"
#include "guarded.h"

#include <errno.h>

static void test_append(void **state)
{
    (void)state;
    struct strbuf buf = {0};
    assert_null(buf.data);
    strbuf_adds(&buf, "");
    assert_string_equal(buf.data, "");
    strbuf_adds(&buf, "one");
    strbuf_add(&buf, "two, cut here", 3);
    strbuf_addf(&buf, " %d %s", 3, "four");
    assert_string_equal(buf.data, "onetwo 3 four");
    assert_int_equal(buf.size, 13);
    assert_int_equal(strbuf_error(&buf), 0);
    strbuf_deinit(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.size, 0);
    strbuf_deinit(&buf);
}

static void test_bytes_not_text(void **state)
{
    (void)state;
    struct guarded bytes = guarded_new("a\0b\xff", 4);
    struct strbuf buf = {0};
    strbuf_add(&buf, (const char *)bytes.bytes, 4);
    strbuf_add(&buf, (const char *)bytes.bytes + 4, 0);
    assert_int_equal(buf.size, 4);
    assert_memory_equal(buf.data, "a\0b\xff\0", 5);
    strbuf_deinit(&buf);
    guarded_free(&bytes);
}

static void test_growth(void **state)
{
    (void)state;
    struct strbuf buf = {0};
    for (size_t i = 0; i < 20000; i++) {
        strbuf_addf(&buf, "%05zu,", i);
        assert_int_equal(buf.size, (i + 1) * 6);
        assert_true(buf.capacity > buf.size);
        assert_int_equal(buf.data[buf.size], 0);
    }
    assert_memory_equal(buf.data, "00000,00001,", 12);
    assert_string_equal(buf.data + buf.size - 12, "19998,19999,");
    strbuf_deinit(&buf);
}

static void test_long_format(void **state)
{
    (void)state;
    struct strbuf buf = {0};
    strbuf_adds(&buf, "<");
    strbuf_addf(&buf, "%*s", 100000, "x");
    strbuf_adds(&buf, ">");
    assert_int_equal(buf.size, 100002);
    assert_int_equal(buf.data[0], '<');
    assert_string_equal(buf.data + 99999, " x>");
    strbuf_deinit(&buf);
}

static void test_clear_keeps_memory(void **state)
{
    (void)state;
    struct strbuf buf = {0};
    strbuf_clear(&buf);
    strbuf_adds(&buf, "some text that is longer than the first growth");
    char *data = buf.data;
    buf.error = -ENOMEM;
    strbuf_clear(&buf);
    assert_int_equal(strbuf_error(&buf), 0);
    assert_int_equal(buf.size, 0);
    assert_ptr_equal(buf.data, data);
    assert_string_equal(buf.data, "");
    strbuf_adds(&buf, "again");
    assert_string_equal(buf.data, "again");
    strbuf_deinit(&buf);
}

static void test_error_is_kept(void **state)
{
    (void)state;
    struct strbuf buf = {0};
    strbuf_adds(&buf, "kept");
    strbuf_add(&buf, "x", SIZE_MAX - 100);
    assert_int_equal(strbuf_error(&buf), -ENOMEM);
    strbuf_adds(&buf, "not added");
    strbuf_addf(&buf, "%d", 1);
    assert_int_equal(strbuf_error(&buf), -ENOMEM);
    assert_string_equal(buf.data, "kept");
    assert_int_equal(buf.size, 4);
    strbuf_deinit(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_bytes_not_text),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_long_format),
        cmocka_unit_test(test_clear_keeps_memory),
        cmocka_unit_test(test_error_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
