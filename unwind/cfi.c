#include "unwind/cfi.h"

#include "common/array.h"
#include "common/hash.h"
#include "unwind/cfitable.h"
#include "unwind/foreign.h"
#include "unwind/rulecompiler.h"

#include <errno.h>
#include <stdlib.h>

struct image_table {
    const struct image *image;
    struct cfitable *table;
};

struct cfi {
    struct rulecache cache; /* first: looked at for every frame */
    struct rulecompiler *compiler;
    struct foreign *foreign;
    struct image_table *tables;
    size_t table_count;
    size_t table_capacity;
    uint32_t *table_of; /* hash of the image to index into tables plus 1; open addressing */
    size_t table_of_slots;
    struct cfi_counters counters; /* those that the cache does not count */
    struct compiled_rule compiled;
};

struct cfi *cfi_new(void)
{
    struct cfi *cfi = calloc(1, sizeof(*cfi));
    if (!cfi)
        return NULL;
    cfi->compiler = rulecompiler_new();
    cfi->foreign = foreign_new();
    if (rulecache_init(&cfi->cache) == 0 && cfi->compiler && cfi->foreign)
        return cfi;
    cfi_free(cfi);
    return NULL;
}

void cfi_free(struct cfi *cfi)
{
    if (!cfi)
        return;
    for (size_t i = 0; i < cfi->table_count; i++)
        cfitable_free(cfi->tables[i].table);
    free(cfi->tables);
    free(cfi->table_of);
    foreign_free(cfi->foreign);
    rulecompiler_free(cfi->compiler);
    rulecache_deinit(&cfi->cache);
    free(cfi);
}

/* ---- tables ---- */

static uint32_t *table_slot(const struct cfi *cfi, const struct image *image)
{
    size_t mask = cfi->table_of_slots - 1;
    size_t slot = hash_u64((uintptr_t)image) & mask;
    while (cfi->table_of[slot] != 0 && cfi->tables[cfi->table_of[slot] - 1].image != image)
        slot = (slot + 1) & mask;
    return &cfi->table_of[slot];
}

/* Keeps at least half of the slots free. */
static int make_table_room(struct cfi *cfi)
{
    int err = array_room(&cfi->tables, &cfi->table_capacity, cfi->table_count + 1);
    if (err || (cfi->table_count + 1) * 2 <= cfi->table_of_slots)
        return err;
    size_t slots = cfi->table_of_slots ? cfi->table_of_slots * 2 : 64;
    uint32_t *table_of = calloc(slots, sizeof(*table_of));
    if (!table_of)
        return -ENOMEM;
    free(cfi->table_of);
    cfi->table_of = table_of;
    cfi->table_of_slots = slots;
    for (size_t i = 0; i < cfi->table_count; i++)
        *table_slot(cfi, cfi->tables[i].image) = (uint32_t)(i + 1);
    return 0;
}

/* The table of an image, made when it is first wanted. NULL: no memory. */
static struct cfitable *find_table(struct cfi *cfi, const struct image *image)
{
    if (make_table_room(cfi) < 0)
        return NULL;
    uint32_t *slot = table_slot(cfi, image);
    if (*slot == 0) {
        struct cfitable *table = NULL;
        if (cfitable_new(image, &table) < 0)
            return NULL;
        cfi->tables[cfi->table_count++] = (struct image_table){.image = image, .table = table};
        *slot = (uint32_t)cfi->table_count;
    }
    return cfi->tables[*slot - 1].table;
}

/* ---- rules ---- */

static const struct rule *keep(struct cfi *cfi, const struct image *image, uint64_t function_svma, uint64_t svma)
{
    const struct compiled_rule *compiled = &cfi->compiled;
    if (!rulecache_make_room(&cfi->cache, compiled->op_count))
        return NULL;
    return rulecache_add(&cfi->cache, image, function_svma, svma, compiled->start_svma, compiled->end_svma,
                         &compiled->rule, &compiled->general, compiled->ops, compiled->op_count);
}

/* A rule without contents, for [start, end). */
static void compile_nothing(struct cfi *cfi, enum rule_kind kind, uint64_t start_svma, uint64_t end_svma)
{
    cfi->compiled.rule = (struct rule){.kind = kind & RULE_KIND_MASK};
    cfi->compiled.start_svma = start_svma;
    cfi->compiled.end_svma = end_svma;
    cfi->compiled.op_count = 0;
}

static const struct rule *make_rule(struct cfi *cfi, const struct image *image, uint64_t svma)
{
    struct cfi_function function = {.start_svma = svma};
    struct cfitable *table = find_table(cfi, image);
    if (!table)
        return NULL;
    int err = cfitable_find(table, svma, &function);
    if (err == -ENOMEM)
        return NULL;
    uint64_t end_svma = svma + 1;
    if (err == -ENOENT)
        cfitable_gap(table, svma, &function.start_svma, &end_svma);
    const struct rule *rule = rulecache_find_row(&cfi->cache, image, function.start_svma, svma);
    if (rule)
        return rule;
    if (err)
        compile_nothing(cfi, err == -ENOENT ? RULE_NONE : RULE_BAD, function.start_svma, end_svma);
    else if (rulecompiler_run(cfi->compiler, table, &function, svma, &cfi->compiled) < 0)
        return NULL;
    cfi->counters.compiled++;
    cfi->counters.uncovered += cfi->compiled.rule.kind == RULE_NONE;
    cfi->counters.bad += cfi->compiled.rule.kind == RULE_BAD;
    cfi->counters.foreign += cfi->compiled.rule.kind == RULE_FOREIGN;
    return keep(cfi, image, function.start_svma, svma);
}

const struct rule *cfi_find(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma)
{
    static const struct rule none = {.kind = RULE_NONE};
    if (!region->image || !region->has_bias)
        return &none;
    uint64_t svma = lookup_avma - region->bias;
    const struct rule *rule = rulecache_find(&cfi->cache, region->image, svma);
    return rule ? rule : make_rule(cfi, region->image, svma);
}

bool cfi_find_function(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma,
                       uint64_t *ret_start_avma, uint64_t *ret_end_avma)
{
    if (!region->image || !region->has_bias)
        return false;
    struct cfitable *table = find_table(cfi, region->image);
    struct cfi_function function;
    if (!table || cfitable_find(table, lookup_avma - region->bias, &function) < 0)
        return false;
    *ret_start_avma = function.start_svma + region->bias;
    *ret_end_avma = function.end_svma + region->bias;
    return true;
}

static enum rule_answer apply_foreign(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma,
                                      struct view *view, struct registers *registers)
{
    struct cfitable *table = find_table(cfi, region->image);
    struct cfi_function function;
    uint64_t svma = lookup_avma - region->bias;
    if (!table || cfitable_find(table, svma, &function) < 0)
        return RULE_UNUSABLE;
    return foreign_apply(cfi->foreign, table, &function, svma, view, registers, lookup_avma);
}

enum rule_answer cfi_apply(struct cfi *cfi, const struct rule *rule, const struct code_region *region,
                           uint64_t lookup_avma, struct view *view, struct registers *registers)
{
    if (rule->kind == RULE_PLAIN)
        return rule_apply_plain(rule, view, registers);
    if (rule->kind == RULE_GENERAL)
        return rule_apply_general(&cfi->cache.general[rule->general], rule->signal, cfi->cache.ops, view, registers,
                                  lookup_avma);
    return apply_foreign(cfi, region, lookup_avma, view, registers);
}

struct rulecache *cfi_cache(struct cfi *cfi)
{
    return &cfi->cache;
}

struct cfi_counters cfi_counters(const struct cfi *cfi)
{
    struct cfi_counters counters = cfi->counters;
    counters.hits = cfi->cache.hits;
    counters.row_hits = cfi->cache.row_hits;
    counters.flushes = cfi->cache.flushes;
    counters.rows = cfi->cache.row_count - 1;
    counters.bytes = rulecache_bytes(&cfi->cache);
    return counters;
}
