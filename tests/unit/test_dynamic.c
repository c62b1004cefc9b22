#include "cmocka_all.h"

#include "guarded.h"
#include "symbolize/dynamic.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

/* A table at svma 0x1000, its bytes at the end of a page before an unmapped one. */
struct table {
    struct guarded bytes;
    size_t size;
};

static int read_table(void *context, uint64_t svma, void *buffer, size_t size)
{
    const struct table *table = context;
    uint64_t at = svma - 0x1000;
    if (svma < 0x1000 || at > table->size || size > table->size - at)
        return -ENODATA;
    memcpy(buffer, table->bytes.bytes + at, size);
    return 0;
}

static bool count(const void *bytes, size_t size, bool is_gnu, uint64_t *ret_count, uint64_t *ret_bytes)
{
    struct table table = {.bytes = guarded_new(bytes, size), .size = size};
    struct svma_reader reader = {.read = read_table, .context = &table};
    struct dynamic dynamic = {.hash_svma = is_gnu ? 0 : 0x1000, .gnu_hash_svma = is_gnu ? 0x1000 : 0};
    bool good = dynamic_count(&dynamic, &reader, ret_count, ret_bytes);
    guarded_free(&table.bytes);
    return good;
}

/* 3 buckets, symbols from 5 on are hashed, 1 filter word. The last chain begins at 7 and ends at 8. */
static const uint32_t GNU[] = {3, 5, 1, 6, 0xffffffff, 0xffffffff, 5, 0, 7, 0x10, 0x21, 0x30, 0x41};

static void test_gnu_hash(void **state)
{
    (void)state;
    uint64_t number;
    uint64_t bytes;
    assert_true(count(GNU, sizeof(GNU), true, &number, &bytes));
    assert_int_equal(number, 9);
    assert_int_equal(bytes, sizeof(GNU));
    for (size_t size = 0; size < sizeof(GNU); size++)
        assert_false(count(GNU, size, true, &number, &bytes));
}

static void test_gnu_hash_of_nothing(void **state)
{
    (void)state;
    static const uint32_t empty[] = {1, 4, 1, 6, 0, 0, 0};
    uint64_t number;
    uint64_t bytes;
    assert_true(count(empty, sizeof(empty), true, &number, &bytes));
    assert_int_equal(number, 4);
    assert_int_equal(bytes, sizeof(empty));
}

static void test_gnu_hash_that_lies(void **state)
{
    (void)state;
    uint64_t number;
    uint64_t bytes;
    for (size_t word = 0; word < 3; word++) {
        uint32_t bad[sizeof(GNU) / sizeof(GNU[0])];
        memcpy(bad, GNU, sizeof(bad));
        bad[word] = 0xffffffff;
        assert_false(count(bad, sizeof(bad), true, &number, &bytes));
    }
    uint32_t bad[sizeof(GNU) / sizeof(GNU[0])];
    memcpy(bad, GNU, sizeof(bad));
    bad[8] = 0xfffffff0; /* a bucket */
    assert_false(count(bad, sizeof(bad), true, &number, &bytes));
    memcpy(bad, GNU, sizeof(bad));
    bad[12] = 0x40; /* a chain without an end */
    assert_false(count(bad, sizeof(bad), true, &number, &bytes));
}

static void test_hash(void **state)
{
    (void)state;
    static const uint32_t good[] = {2, 11};
    static const uint32_t huge[] = {2, 0xffffffff};
    uint64_t number;
    uint64_t bytes;
    assert_true(count(good, sizeof(good), false, &number, &bytes));
    assert_int_equal(number, 11);
    assert_int_equal(bytes, 15 * 4);
    assert_false(count(good, sizeof(good) - 1, false, &number, &bytes));
    assert_false(count(huge, sizeof(huge), false, &number, &bytes));
}

static bool parse(const Elf64_Dyn *entries, size_t size, struct dynamic *ret)
{
    struct guarded bytes = guarded_new(entries, size);
    bool good = dynamic_parse(bytes.bytes, size, ret);
    guarded_free(&bytes);
    return good;
}

static void test_entries(void **state)
{
    (void)state;
    Elf64_Dyn entries[] = {{DT_NEEDED, {7}},  {DT_SYMTAB, {0x100}},   {DT_STRTAB, {0x200}}, {DT_STRSZ, {0x30}},
                           {DT_SYMENT, {24}}, {DT_GNU_HASH, {0x400}}, {DT_NULL, {0}},       {DT_HASH, {0x500}}};
    struct dynamic dynamic = {0};
    assert_true(parse(entries, sizeof(entries), &dynamic));
    assert_int_equal(dynamic.symbols_svma, 0x100);
    assert_int_equal(dynamic.strings_svma, 0x200);
    assert_int_equal(dynamic.strings_bytes, 0x30);
    assert_int_equal(dynamic.gnu_hash_svma, 0x400);
    assert_int_equal(dynamic.hash_svma, 0); /* behind the end */

    /* Without an end; and each that is needed missing. */
    assert_true(parse(entries, 6 * sizeof(*entries), &dynamic));
    assert_true(parse(entries, 7 * sizeof(*entries) - 1, &dynamic));
    assert_false(parse(entries, 6 * sizeof(*entries) - 1, &dynamic));
    assert_false(parse(entries, 0, &dynamic));
    for (size_t i = 1; i < 6; i++) {
        Elf64_Dyn without[8];
        memcpy(without, entries, sizeof(without));
        without[i].d_tag = i == 4 ? DT_SYMENT : DT_DEBUG;
        without[i].d_un.d_val = 25;
        assert_false(parse(without, sizeof(without), &dynamic));
    }
    assert_true(dynamic_is_address(DT_SYMTAB));
    assert_false(dynamic_is_address(DT_STRSZ));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gnu_hash), cmocka_unit_test(test_gnu_hash_of_nothing),
                                       cmocka_unit_test(test_gnu_hash_that_lies), cmocka_unit_test(test_hash),
                                       cmocka_unit_test(test_entries)};
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
