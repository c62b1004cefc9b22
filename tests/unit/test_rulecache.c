/* What the cache of rules finds again, and what it does when it is full. */
#include "cmocka_all.h"

#include "common/hash.h"
#include "unwind/rulecache.h"

#include <dwarf.h>

/* Images are told apart by their address alone. */
static const struct image *image_number(uintptr_t number)
{
    return (const struct image *)(number * 64); // NOLINT: never followed
}

static const uint64_t FUNCTION = 0x1000;

static struct rulecache cache;

static int set_up(void **state)
{
    (void)state;
    return rulecache_init(&cache);
}

static int tear_down(void **state)
{
    (void)state;
    rulecache_deinit(&cache);
    return 0;
}

/* A rule that is known again by its number. */
static struct rule plain(int32_t number)
{
    return (struct rule){.kind = RULE_PLAIN, .cfa_register = REGISTER_RSP, .cfa_off = number};
}

static const struct rule *add_plain(const struct image *image, uint64_t function_svma, uint64_t svma, uint64_t start,
                                    uint64_t end, int32_t number)
{
    struct rule rule = plain(number);
    assert_true(rulecache_make_room(&cache, 0));
    return rulecache_add(&cache, image, function_svma, svma, start, end, &rule, NULL, NULL, 0);
}

static void finds_by_address_and_by_row(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    const struct rule *added = add_plain(image, FUNCTION, 0x1014, 0x1010, 0x1020, 7);
    assert_ptr_equal(rulecache_find(&cache, image, 0x1014), added);
    assert_int_equal(added->cfa_off, 7);
    assert_int_equal(cache.hits, 1);
    /* Another address of the row: by the function first, then by itself. */
    assert_null(rulecache_find(&cache, image, 0x101f));
    assert_ptr_equal(rulecache_find_row(&cache, image, FUNCTION, 0x101f), added);
    assert_int_equal(cache.row_hits, 1);
    assert_ptr_equal(rulecache_find(&cache, image, 0x101f), added);
    assert_int_equal(cache.hits, 2);
    assert_ptr_equal(rulecache_find_row(&cache, image, FUNCTION, 0x1010), added);
}

static void does_not_find_what_is_outside(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    add_plain(image, FUNCTION, 0x1014, 0x1010, 0x1020, 7);
    static const uint64_t outside[] = {0, 0x1000, 0x100f, 0x1020, UINT64_MAX};
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        assert_null(rulecache_find(&cache, image, outside[i]));
        assert_null(rulecache_find_row(&cache, image, FUNCTION, outside[i]));
    }
    assert_null(rulecache_find(&cache, image_number(2), 0x1014));
    assert_null(rulecache_find_row(&cache, image_number(2), FUNCTION, 0x1014));
    assert_null(rulecache_find_row(&cache, image, FUNCTION + 1, 0x1014));
    assert_int_equal(cache.hits + cache.row_hits, 0);
}

static void a_function_has_many_rows(void **state)
{
    (void)state;
    enum { ROWS = 200 };
    for (uint64_t n = 0; n < ROWS; n++)
        add_plain(image_number(1), FUNCTION, FUNCTION + n * 4, FUNCTION + n * 4, FUNCTION + n * 4 + 4, (int32_t)n);
    for (uint64_t n = 0; n < ROWS; n++) {
        const struct rule *rule = rulecache_find_row(&cache, image_number(1), FUNCTION, FUNCTION + n * 4 + 3);
        assert_non_null(rule);
        assert_int_equal(rule->cfa_off, n);
    }
    assert_null(rulecache_find_row(&cache, image_number(1), FUNCTION, FUNCTION + ROWS * 4));
}

/* The next address after `svma` that shares the set of `like`, and its tag too if so wanted. */
static uint64_t find_collision(uint64_t svma, uint64_t like, bool same_tag)
{
    uint32_t number = rulecache_image_number(&cache, image_number(1));
    struct rulecache_key wanted = rulecache_key(number, like);
    for (uint64_t other = svma + 1;; other++) {
        struct rulecache_key key = rulecache_key(number, other);
        if (key.set == wanted.set && (!same_tag || key.tag == wanted.tag))
            return other;
    }
}

static const struct rule *add_one(uint64_t svma, int32_t mark)
{
    return add_plain(image_number(1), svma, svma, svma, svma + 1, mark);
}

static void the_oldest_address_of_a_full_set_goes(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    uint64_t svma[RULECACHE_WAYS + 1] = {0x5000};
    const struct rule *rules[RULECACHE_WAYS + 1];
    for (unsigned i = 0; i <= RULECACHE_WAYS; i++) {
        if (i > 0)
            svma[i] = find_collision(svma[i - 1], svma[0], false);
        assert_null(rulecache_find(&cache, image, svma[i]));
        rules[i] = add_one(svma[i], (int32_t)i);
    }
    assert_null(rulecache_find(&cache, image, svma[0])); /* lost its place, not its row */
    for (unsigned i = 1; i <= RULECACHE_WAYS; i++)
        assert_ptr_equal(rulecache_find(&cache, image, svma[i]), rules[i]);
    assert_ptr_equal(rulecache_find_row(&cache, image, svma[0], svma[0]), rules[0]);
    assert_ptr_equal(rulecache_find(&cache, image, svma[0]), rules[0]);
    assert_null(rulecache_find(&cache, image, svma[1]));
}

static void addresses_that_look_alike_are_not_mixed_up(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    uint64_t first = 0x5000;
    uint64_t second = find_collision(first, first, true);
    const struct rule *rule = add_one(first, 1);
    assert_null(rulecache_find(&cache, image, second));
    const struct rule *other = add_one(second, 2);
    assert_ptr_equal(rulecache_find(&cache, image, second), other);
    assert_ptr_equal(rulecache_find(&cache, image, first), rule);
}

/* So many images that their numbers are used up. */
static void forgets_all_when_the_images_are_too_many(void **state)
{
    (void)state;
    static char places[RULECACHE_IMAGES + 1];
    for (size_t i = 0; i < RULECACHE_IMAGES; i++)
        add_plain((const struct image *)(const void *)&places[i], FUNCTION, FUNCTION, FUNCTION, FUNCTION + 1,
                  (int32_t)i);
    assert_int_equal(cache.flushes, 0);
    for (size_t i = 0; i < RULECACHE_IMAGES; i++)
        assert_int_equal(
            rulecache_find_row(&cache, (const struct image *)(const void *)&places[i], FUNCTION, FUNCTION)->cfa_off, i);
    assert_null(rulecache_find(&cache, (const struct image *)(const void *)&places[RULECACHE_IMAGES], FUNCTION));
    assert_int_equal(cache.flushes, 1);
    for (size_t i = 0; i < RULECACHE_IMAGES; i++)
        assert_null(rulecache_find(&cache, (const struct image *)(const void *)&places[i], FUNCTION));
}

/* As hash_pair has it for chains; found by trying. */
static void functions_that_share_a_chain_are_not_mixed_up(void **state)
{
    (void)state;
    uint64_t first = 0x1000;
    uint64_t other = first + 1;
    const struct image *image = image_number(1);
    uint32_t number = rulecache_image_number(&cache, image);
    while (hash_pair(number, other) % RULECACHE_ROWS != hash_pair(number, first) % RULECACHE_ROWS)
        other++;
    const struct rule *rule = add_plain(image, first, first, first, first + 1, 1);
    assert_null(rulecache_find_row(&cache, image, other, other));
    const struct rule *of_other = add_plain(image, other, other, other, other + 1, 2);
    assert_ptr_equal(rulecache_find_row(&cache, image, first, first), rule);
    assert_ptr_equal(rulecache_find_row(&cache, image, other, other), of_other);
}

static void assert_forgotten(uint64_t flushes)
{
    assert_int_equal(cache.flushes, flushes);
    assert_int_equal(cache.row_count, 1);
    assert_int_equal(cache.general_count, 0);
    assert_int_equal(cache.op_count, 0);
    assert_int_equal(rulecache_bytes(&cache), 0);
}

static void forgets_all_when_the_rows_are_full(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    for (uint32_t n = 1; n < RULECACHE_ROWS; n++)
        add_plain(image, n * UINT64_C(16), n * UINT64_C(16), n * UINT64_C(16), n * UINT64_C(16) + 16, (int32_t)n);
    assert_int_equal(cache.flushes, 0);
    size_t bytes = rulecache_bytes(&cache);
    assert_true(bytes <= (RULECACHE_ROWS - 1) * 64);
    assert_true(bytes >= (RULECACHE_ROWS - 1) * sizeof(struct rule));
    for (uint32_t n = 1; n < RULECACHE_ROWS; n += 97) {
        const struct rule *rule = rulecache_find_row(&cache, image, n * UINT64_C(16), n * UINT64_C(16) + 15);
        assert_non_null(rule);
        assert_int_equal(rule->cfa_off, n);
    }
    assert_true(rulecache_make_room(&cache, 0));
    assert_forgotten(1);
    /* Nothing of before is found, neither now nor when its row has another one's contents. */
    for (uint32_t n = 1; n < RULECACHE_ROWS; n++) {
        assert_null(rulecache_find(&cache, image, n * UINT64_C(16)));
        assert_null(rulecache_find_row(&cache, image, n * UINT64_C(16), n * UINT64_C(16)));
    }
    const struct rule *added = add_plain(image, 0, 0, 0, 16, -1);
    assert_ptr_equal(rulecache_find(&cache, image, 0), added);
    for (uint32_t n = 1; n < RULECACHE_ROWS; n++)
        assert_null(rulecache_find_row(&cache, image, n * UINT64_C(16), n * UINT64_C(16)));
}

/* `first` places of operations from the first one on, each with the number as its operand. */
static const struct rule *add_general(uint64_t svma, uint16_t op_count, uint64_t number)
{
    static struct expression_op ops[RULECACHE_OPS];
    for (size_t i = 0; i < op_count; i++)
        ops[i] = (struct expression_op){.atom = DW_OP_constu, .operand = number + i};
    uint16_t half = op_count / 2;
    struct general_rule general = {.cfa = {.kind = LOCATION_IS, .first_op = 0, .op_count = half}};
    general.registers[REGISTER_PC] =
        (struct location){.kind = LOCATION_AT, .first_op = half, .op_count = (uint16_t)(op_count - half)};
    struct rule rule = {.kind = RULE_GENERAL};
    assert_true(rulecache_make_room(&cache, op_count));
    return rulecache_add(&cache, image_number(1), svma, svma, svma, svma + 1, &rule, &general, ops, op_count);
}

static void assert_general(const struct rule *rule, uint16_t op_count, uint64_t number)
{
    assert_non_null(rule);
    assert_int_equal(rule->kind, RULE_GENERAL);
    assert_true(rule->general < cache.general_count);
    const struct general_rule *general = &cache.general[rule->general];
    assert_int_equal(general->cfa.op_count + general->registers[REGISTER_PC].op_count, op_count);
    for (size_t i = 0; i < op_count; i++)
        assert_int_equal(cache.ops[general->cfa.first_op + i].operand, number + i);
    assert_int_equal(general->registers[REGISTER_PC].first_op, general->cfa.first_op + op_count / 2);
}

static void general_rules_keep_their_operations(void **state)
{
    (void)state;
    for (uint16_t n = 0; n < 20; n++)
        add_general(n, n, n * 1000);
    add_plain(image_number(1), 100, 100, 100, 101, 0);
    for (uint16_t n = 0; n < 20; n++)
        assert_general(rulecache_find(&cache, image_number(1), n), n, n * UINT64_C(1000));
    assert_int_equal(cache.general_count, 20);
    assert_int_equal(cache.op_count, 190);
    size_t plain_bytes = 21 * (sizeof(struct rule_row) + sizeof(uint32_t) + sizeof(uint16_t));
    assert_int_equal(rulecache_bytes(&cache),
                     plain_bytes + 20 * sizeof(struct general_rule) + 190 * sizeof(struct expression_op));
}

static void forgets_all_when_the_general_rules_are_full(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < RULECACHE_GENERAL; n++)
        add_general(n, 2, n);
    assert_int_equal(cache.flushes, 0);
    assert_general(rulecache_find(&cache, image_number(1), RULECACHE_GENERAL - 1), 2, RULECACHE_GENERAL - 1);
    const struct rule *added = add_general(RULECACHE_GENERAL, 2, 5);
    assert_int_equal(cache.flushes, 1);
    assert_general(added, 2, 5);
    assert_int_equal(cache.general_count, 1);
    for (uint32_t n = 0; n < RULECACHE_GENERAL; n++)
        assert_null(rulecache_find(&cache, image_number(1), n));
}

static void forgets_all_when_the_operations_are_full(void **state)
{
    (void)state;
    enum { EACH = 1024 };
    for (uint32_t n = 0; n < RULECACHE_OPS / EACH; n++)
        add_general(n, EACH, n);
    assert_int_equal(cache.flushes, 0);
    assert_int_equal(cache.op_count, RULECACHE_OPS);
    assert_general(rulecache_find(&cache, image_number(1), RULECACHE_OPS / EACH - 1), EACH, RULECACHE_OPS / EACH - 1);
    /* One without operations still fits. */
    add_general(0x1000, 0, 0);
    assert_int_equal(cache.flushes, 0);
    const struct rule *added = add_general(0x2000, 1, 9);
    assert_int_equal(cache.flushes, 1);
    assert_general(added, 1, 9);
    assert_null(rulecache_find(&cache, image_number(1), 0));
    assert_null(rulecache_find(&cache, image_number(1), 0x1000));
}

static void what_can_never_fit_costs_nothing(void **state)
{
    (void)state;
    const struct rule *rule = add_plain(image_number(1), FUNCTION, FUNCTION, FUNCTION, FUNCTION + 4, 3);
    assert_false(rulecache_make_room(&cache, RULECACHE_OPS + 1));
    assert_false(rulecache_make_room(&cache, SIZE_MAX));
    assert_int_equal(cache.flushes, 0);
    assert_ptr_equal(rulecache_find(&cache, image_number(1), FUNCTION), rule);
    assert_true(rulecache_make_room(&cache, RULECACHE_OPS));
    assert_int_equal(cache.flushes, 0);
}

/* Longer than can be kept: a part that holds the address is. */
static void a_row_may_be_longer_than_4_gigabytes(void **state)
{
    (void)state;
    const struct image *image = image_number(1);
    const struct rule *rule = add_plain(image, FUNCTION, FUNCTION, FUNCTION, UINT64_MAX, 3);
    assert_ptr_equal(rulecache_find_row(&cache, image, FUNCTION, FUNCTION + UINT32_MAX - 1), rule);
    assert_null(rulecache_find_row(&cache, image, FUNCTION, FUNCTION + UINT32_MAX));
    assert_null(rulecache_find_row(&cache, image, FUNCTION, FUNCTION - 1));
    uint64_t far = FUNCTION + (UINT64_C(9) << 32);
    rule = add_plain(image, FUNCTION, far, FUNCTION, UINT64_MAX, 4);
    assert_ptr_equal(rulecache_find(&cache, image, far), rule);
    assert_ptr_equal(rulecache_find_row(&cache, image, FUNCTION, far + 100), rule);
}

int main(void)
{
#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CACHE(finds_by_address_and_by_row),
        WITH_CACHE(does_not_find_what_is_outside),
        WITH_CACHE(a_function_has_many_rows),
        WITH_CACHE(the_oldest_address_of_a_full_set_goes),
        WITH_CACHE(addresses_that_look_alike_are_not_mixed_up),
        WITH_CACHE(forgets_all_when_the_images_are_too_many),
        WITH_CACHE(functions_that_share_a_chain_are_not_mixed_up),
        WITH_CACHE(forgets_all_when_the_rows_are_full),
        WITH_CACHE(general_rules_keep_their_operations),
        WITH_CACHE(forgets_all_when_the_general_rules_are_full),
        WITH_CACHE(forgets_all_when_the_operations_are_full),
        WITH_CACHE(what_can_never_fit_costs_nothing),
        WITH_CACHE(a_row_may_be_longer_than_4_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
