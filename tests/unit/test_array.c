#include "cmocka_all.h"

#include "common/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void test_push(void **state)
{
    (void)state;
    uint32_t *items = NULL;
    size_t capacity = 0;
    size_t growths = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = capacity;
        assert_int_equal(array_room(&items, &capacity, i + 1), 0);
        assert_true(capacity > i);
        if (capacity != before) {
            assert_true(capacity >= 2 * before);
            growths++;
        }
        items[i] = i * 3;
    }
    assert_true(growths <= 17);
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i * 3);
    free(items);
}

static void test_room_is_there(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t capacity = 0;
    assert_int_equal(array_room(&bytes, &capacity, 0), 0);
    assert_null(bytes);
    assert_int_equal(capacity, 0);
    assert_int_equal(array_room(&bytes, &capacity, 1000), 0);
    assert_true(capacity >= 1000);
    memset(bytes, 7, capacity);
    char *before = bytes;
    size_t full = capacity;
    assert_int_equal(array_room(&bytes, &capacity, full), 0);
    assert_ptr_equal(bytes, before);
    assert_int_equal(capacity, full);
    free(bytes);
}

static void test_too_large(void **state)
{
    (void)state;
    static const size_t needed[] = {SIZE_MAX, SIZE_MAX / 2 + 2, SIZE_MAX / 8};
    uint64_t *items = NULL;
    size_t capacity = 0;
    assert_int_equal(array_room(&items, &capacity, 10), 0);
    items[9] = 42;
    uint64_t *before = items;
    size_t old = capacity;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        assert_int_equal(array_room(&items, &capacity, needed[i]), -ENOMEM);
        assert_ptr_equal(items, before);
        assert_int_equal(capacity, old);
        assert_int_equal(items[9], 42);
    }
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push),
        cmocka_unit_test(test_room_is_there),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
