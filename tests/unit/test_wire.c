#include "cmocka_all.h"

#include "common/wire.h"
#include "guarded.h"

#include <string.h>

static void test_bytes(void **state)
{
    (void)state;
    struct strbuf out = {0};
    wire_put_u32(&out, 0x04030201);
    wire_put_u64(&out, UINT64_C(0xfffefdfcfbfaf9f8));
    wire_put_sized(&out, "ab", 2);
    wire_put_sized(&out, NULL, 0);
    static const uint8_t wanted[] = {1,    2, 3, 4, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe,
                                     0xff, 2, 0, 0, 0,    'a',  'b',  0,    0,    0,    0};
    assert_int_equal(out.size, sizeof(wanted));
    assert_memory_equal(out.data, wanted, sizeof(wanted));
    strbuf_deinit(&out);
}

static void test_get(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 2, 3, 0x84, 0xff, 0, 0, 0, 0, 0, 0, 0x80, 2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0};
    struct guarded guarded = guarded_new(bytes, sizeof(bytes));
    assert_non_null(guarded.bytes);
    struct wire wire = {.at = guarded.bytes, .end = guarded.bytes + sizeof(bytes)};
    size_t size = 9;
    assert_int_equal(wire_get_u32(&wire), 0x84030201);
    assert_true(wire_get_u64(&wire) == UINT64_C(0x80000000000000ff));
    assert_memory_equal(wire_get_sized(&wire, 2, &size), "ab", 2);
    assert_int_equal(size, 2);
    assert_non_null(wire_get_sized(&wire, 2, &size));
    assert_int_equal(size, 0);
    assert_int_equal(wire_left(&wire), 0);
    assert_false(wire.failed);
    assert_int_equal(wire_get_u32(&wire), 0);
    assert_true(wire.failed);
    guarded_free(&guarded);
}

/* Every cut of the bytes of a number fails, and what comes after a failure fails too. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t size = 0; size < 8; size++) {
        struct guarded guarded = guarded_new(NULL, size);
        struct wire wire = {.at = guarded.bytes, .end = guarded.bytes + size};
        assert_true(wire_get_u64(&wire) == 0);
        assert_true(wire.failed);
        assert_null(wire_get_bytes(&wire, 0));
        guarded_free(&guarded);
    }
}

static void test_lengths_that_lie(void **state)
{
    (void)state;
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 'a', 'b'};
    static const uint8_t three[] = {3, 0, 0, 0, 'a', 'b', 'c'};
    size_t size;
    struct wire wire = {.at = huge, .end = huge + sizeof(huge)};
    assert_null(wire_get_sized(&wire, SIZE_MAX, &size));
    assert_true(wire.failed);
    wire = (struct wire){.at = three, .end = three + sizeof(three)};
    assert_null(wire_get_sized(&wire, 2, &size));
    assert_true(wire.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_lengths_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
