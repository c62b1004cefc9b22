/* All that real files say about how to unwind, against libunwind's reading of it. */
#include "cmocka_all.h"

#include "rulepair.h"

#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one file, chosen evenly; a function has no more rows than its share. SANITIZED: ten times slower. */
#ifdef SANITIZED
enum { ROWS_MAX = 5000 };
#else
enum { ROWS_MAX = 30000 };
#endif
enum { ROWS_PER_FUNCTION = 64, PROBES = 4 };

static const uint64_t BIAS = UINT64_C(0x7f0000000000);

struct comparison {
    const char *path;
    struct rulepair pair;
    struct rulecompiler *compiler;
    struct cfitable *table;
    size_t rows;
    size_t by_kind[RULE_FOREIGN + 1];
};

static bool locations_equal(const struct location *a, const struct location *b, const struct compiled_rule *of_a,
                            const struct compiled_rule *of_b)
{
    if (a->kind != b->kind || a->reg != b->reg || a->off != b->off || a->op_count != b->op_count)
        return false;
    for (size_t i = 0; i < a->op_count; i++) {
        const struct expression_op *left = &of_a->ops[a->first_op + i];
        const struct expression_op *right = &of_b->ops[b->first_op + i];
        if (left->atom != right->atom || left->reg != right->reg || left->target != right->target ||
            left->size != right->size || left->operand != right->operand)
            return false;
    }
    return true;
}

static bool rules_equal(const struct compiled_rule *a, const struct compiled_rule *b)
{
    if (a->start_svma != b->start_svma || a->end_svma != b->end_svma || a->rule.kind != b->rule.kind ||
        a->rule.signal != b->rule.signal)
        return false;
    if (a->rule.kind == RULE_PLAIN)
        return a->rule.cfa_register == b->rule.cfa_register && a->rule.cfa_off == b->rule.cfa_off &&
               a->rule.return_in == b->rule.return_in && a->rule.return_at == b->rule.return_at &&
               memcmp(a->rule.saved, b->rule.saved, sizeof(a->rule.saved)) == 0;
    bool equal = locations_equal(&a->general.cfa, &b->general.cfa, a, b);
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        equal = equal && locations_equal(&a->general.registers[reg], &b->general.registers[reg], a, b);
    return equal;
}

static void compile(struct comparison *comparison, const struct cfi_function *function, uint64_t svma,
                    struct compiled_rule *ret)
{
    assert_int_equal(rulecompiler_run(comparison->compiler, comparison->table, function, svma, ret), 0);
    if (svma < ret->start_svma || svma >= ret->end_svma || ret->start_svma < function->start_svma ||
        ret->end_svma > function->end_svma)
        fail_msg("%s: a row without its address, 0x%llx", comparison->path, (unsigned long long)svma);
}

static void compare_at(struct comparison *comparison, const struct cfi_function *function, uint64_t svma,
                       const struct compiled_rule *compiled)
{
    /* Once with all registers; without some, as in a frame that is not the innermost one; and with too little memory.
     */
    for (unsigned turn = 0; turn < 3; turn++) {
        struct registers registers = turn < 2 ? rulepair_registers(&comparison->pair, svma + BIAS)
                                              : rulepair_edge_registers(&comparison->pair, svma + BIAS);
        if (turn == 1)
            registers.known &= (uint32_t)rng_next(&comparison->pair.rng) | 1U << REGISTER_RSP | 1U << REGISTER_PC;
        const char *difference =
            rulepair_compare(&comparison->pair, comparison->table, function, svma, compiled, &registers);
        if (difference)
            fail_msg("%s: at 0x%llx, registers known 0x%x: %s differs", comparison->path, (unsigned long long)svma,
                     registers.known, difference);
    }
}

/* Every address of the row has its rule: a row that were too wide would show. */
static void probe_row(struct comparison *comparison, const struct cfi_function *function,
                      const struct compiled_rule *first)
{
    static struct compiled_rule other;
    uint64_t length = first->end_svma - first->start_svma;
    for (unsigned probe = 0; probe < PROBES && length > 1; probe++) {
        uint64_t svma = probe == 0 ? first->end_svma - 1 : first->start_svma + rng_below(&comparison->pair.rng, length);
        compile(comparison, function, svma, &other);
        if (!rules_equal(first, &other))
            fail_msg("%s: 0x%llx and 0x%llx are one row, but differ", comparison->path,
                     (unsigned long long)first->start_svma, (unsigned long long)svma);
        if (probe == 0 && first->rule.kind != RULE_FOREIGN)
            compare_at(comparison, function, svma, first);
    }
}

static void compare_function(struct comparison *comparison, const struct cfi_function *function)
{
    static struct compiled_rule compiled;
    uint64_t svma = function->start_svma;
    for (size_t rows = 0; svma < function->end_svma && rows < ROWS_PER_FUNCTION; rows++) {
        compile(comparison, function, svma, &compiled);
        assert_int_equal(compiled.start_svma, svma); /* without a gap behind the row before */
        comparison->rows++;
        comparison->by_kind[compiled.rule.kind]++;
        if (compiled.rule.kind != RULE_FOREIGN)
            compare_at(comparison, function, svma, &compiled);
        probe_row(comparison, function, &compiled);
        svma = compiled.end_svma;
    }
}

/* A step of 1 or a prime-like odd number that visits all functions in another order, so the first ones are everywhere.
 */
static size_t find_stride(size_t count)
{
    size_t stride = count * 5 / 8 | 1;
    for (;; stride += 2) {
        size_t a = count, b = stride;
        while (b != 0) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

static void compare_file(const char *path)
{
    struct image *image = NULL;
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image), 0);
    struct comparison comparison = {.path = path, .compiler = rulecompiler_new()};
    assert_non_null(comparison.compiler);
    assert_int_equal(rulepair_init(&comparison.pair), 0);
    assert_int_equal(cfitable_new(image, &comparison.table), 0);
    size_t count = cfitable_count(comparison.table);
    assert_true(count > 10);
    size_t stride = find_stride(count);
    size_t functions = 0;
    for (size_t i = 0, n = 0; i < count && comparison.rows < ROWS_MAX; i++, n = (n + stride) % count) {
        struct cfi_function function;
        assert_int_equal(cfitable_find(comparison.table, cfitable_start(comparison.table, n), &function), 0);
        compare_function(&comparison, &function);
        functions++;
    }
    print_message("%s: %zu of %zu functions, %zu rows: %zu plain, %zu general\n", path, functions, count,
                  comparison.rows, comparison.by_kind[RULE_PLAIN], comparison.by_kind[RULE_GENERAL]);
    assert_int_equal(comparison.by_kind[RULE_FOREIGN], 0);
    assert_true(comparison.by_kind[RULE_PLAIN] > comparison.rows / 2);
    cfitable_free(comparison.table);
    rulepair_deinit(&comparison.pair);
    rulecompiler_free(comparison.compiler);
    image_free(image);
}

static void this_program(void **state)
{
    (void)state;
    compare_file("/proc/self/exe");
}

/* libc, the dynamic linker, and what else is loaded here. */
static void loaded_libraries(void **state)
{
    (void)state;
    size_t count = 0;
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        if (!strstr(map->l_name, "libc.so") && !strstr(map->l_name, "ld-linux"))
            continue;
        compare_file(map->l_name);
        count++;
    }
    assert_int_equal(count, 2);
}

/* C++, and assembly with CFI by hand; where they are installed. */
static void other_libraries(void **state)
{
    (void)state;
    static const char *const patterns[] = {"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                           "/usr/lib/x86_64-linux-gnu/libcrypto.so.*"};
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) == 0) {
            compare_file(found.gl_pathv[0]);
            globfree(&found);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_program),
        cmocka_unit_test(loaded_libraries),
        cmocka_unit_test(other_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
