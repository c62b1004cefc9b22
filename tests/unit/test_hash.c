#include "cmocka_all.h"

#include "common/hash.h"
#include "guarded.h"

#include <stdlib.h>

static void test_bytes_at_page_end(void **state)
{
    (void)state;
    static const char text[] = "abcdefghijklmnopqrstuvwxyz";
    for (size_t size = 0; size < sizeof(text); size++) {
        struct guarded bytes = guarded_new(text, size);
        /* The same bytes at another address, aligned otherwise. */
        assert_true(hash_bytes(bytes.bytes, size) == hash_bytes(text, size));
        guarded_free(&bytes);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void expect_distinct(uint64_t *hashes, size_t count)
{
    qsort(hashes, count, sizeof(*hashes), compare);
    for (size_t i = 1; i < count; i++)
        assert_true(hashes[i - 1] != hashes[i]);
}

static void test_every_bit_and_the_length_count(void **state)
{
    (void)state;
    uint64_t hashes[1 + 24 * 8 + 24];
    size_t count = 0;
    unsigned char bytes[24] = {0};
    hashes[count++] = hash_bytes(bytes, 24);
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] = (unsigned char)(1U << bit % 8);
        hashes[count++] = hash_bytes(bytes, 24);
        bytes[bit / 8] = 0;
    }
    for (size_t size = 0; size < 24; size++)
        hashes[count++] = hash_bytes(bytes, size);
    assert_int_equal(count, sizeof(hashes) / sizeof(hashes[0]));
    expect_distinct(hashes, count);
}

static void test_pairs(void **state)
{
    (void)state;
    enum { SIDE = 64 };
    uint64_t *hashes = calloc(SIDE * SIDE, sizeof(*hashes));
    for (uint64_t a = 0; a < SIDE; a++)
        for (uint64_t b = 0; b < SIDE; b++)
            hashes[a * SIDE + b] = hash_pair(a, b);
    expect_distinct(hashes, SIDE * SIDE);
    free(hashes);
}

/* Tables use the low bits: small numbers must spread there. 4096 in 256 slots: mean 16, six deviations are 24. */
static void test_low_bits_spread(void **state)
{
    (void)state;
    size_t seen[256] = {0};
    for (uint64_t i = 1; i <= 4096; i++)
        seen[hash_u64(i << 12) & 255]++;
    for (size_t i = 0; i < 256; i++)
        assert_true(seen[i] < 16 + 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_at_page_end),
        cmocka_unit_test(test_every_bit_and_the_length_count),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_low_bits_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
