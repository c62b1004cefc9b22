#include "sampler/helperrules.h"

#include <stdlib.h>
#include <string.h>

struct range {
    uint64_t start_avma;
    uint32_t length; /* 0: empty */
};

struct helperrules {
    struct helper_shared *shared;
    struct range rows[HELPER_RULE_SETS][HELPER_RULE_WAYS]; /* what is in the shared rules */
    uint8_t next_way[HELPER_RULE_SETS];
    struct code_region regions[HELPER_REGIONS]; /* as they were told, without borrowed images: only compared */
    size_t region_count;
};

struct helperrules *helperrules_new(struct helper_shared *shared)
{
    struct helperrules *rules = calloc(1, sizeof(*rules));
    if (rules)
        rules->shared = shared;
    return rules;
}

void helperrules_free(struct helperrules *rules)
{
    free(rules);
}

/* Handlers that read it meanwhile see an odd version, or another one at the end. */
static void write_rule(struct helperrules *rules, uint32_t set, uint32_t way, const struct unwind_row *row)
{
    struct helper_rule *entry = &rules->shared->rules[set][way];
    uint32_t length = row ? (uint32_t)(row->end_avma - row->start_avma) : 0;
    uint32_t version = atomic_load_explicit(&entry->version, memory_order_relaxed) & ~1U;
    atomic_store_explicit(&entry->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    __atomic_store_n(&entry->length, length, __ATOMIC_RELAXED);
    if (row) {
        __atomic_store_n(&entry->start_avma, row->start_avma, __ATOMIC_RELAXED);
        *(volatile struct rule *)&entry->rule = row->rule;
    }
    atomic_store_explicit(&entry->version, version + 2, memory_order_release);
    rules->rows[set][way] = (struct range){.start_avma = row ? row->start_avma : 0, .length = length};
}

static const struct code_region *find_told(const struct helperrules *rules, uint64_t avma)
{
    const struct codemap told = {.regions = rules->regions, .count = rules->region_count};
    return codemap_find(&told, avma);
}

/* Is it there? Else `ret_free_way` says where it could be; HELPER_RULE_WAYS: nowhere. */
static bool has_rule(const struct helperrules *rules, uint64_t avma, uint32_t *ret_free_way)
{
    const struct range *set = rules->rows[helper_rule_set(avma)];
    *ret_free_way = HELPER_RULE_WAYS;
    for (uint32_t way = 0; way < HELPER_RULE_WAYS; way++) {
        if (set[way].length && avma - set[way].start_avma < set[way].length)
            return true;
        if (!set[way].length)
            *ret_free_way = way;
    }
    return false;
}

static void add_nearby(struct helperrules *rules, const struct unwind_row *row, const struct code_region *region,
                       uint64_t lookup_avma)
{
    enum { NEAR_BYTES = 512, GRANULE_BYTES = 1 << HELPER_GRANULE_BITS };
    uint64_t start = row->start_avma > region->start_avma ? row->start_avma : region->start_avma;
    uint64_t end = row->end_avma < region->end_avma ? row->end_avma : region->end_avma;
    if (lookup_avma - start > NEAR_BYTES)
        start = lookup_avma - NEAR_BYTES;
    if (end - lookup_avma > NEAR_BYTES)
        end = lookup_avma + NEAR_BYTES;
    for (uint64_t avma = start; avma < end; avma = (avma | (GRANULE_BYTES - 1)) + 1) {
        uint32_t free_way;
        if (!has_rule(rules, avma, &free_way) && free_way < HELPER_RULE_WAYS)
            write_rule(rules, helper_rule_set(avma), free_way, row);
    }
}

void helperrules_add(struct helperrules *rules, const struct unwind_row *row, uint64_t lookup_avma)
{
    uint32_t way;
    uint32_t set = helper_rule_set(lookup_avma);
    /* What is not in the regions would not be taken back with them. */
    const struct code_region *region = find_told(rules, lookup_avma);
    if (row->end_avma - row->start_avma > UINT32_MAX || !region || has_rule(rules, lookup_avma, &way))
        return;
    if (way == HELPER_RULE_WAYS)
        way = rules->next_way[set]++ % HELPER_RULE_WAYS;
    write_rule(rules, set, way, row);
    add_nearby(rules, row, region, lookup_avma);
}

/* ---- regions ---- */

static bool is_same_code(const struct code_region *a, const struct code_region *b)
{
    return a->start_avma == b->start_avma && a->end_avma == b->end_avma && a->image == b->image &&
           a->map_off == b->map_off && a->has_bias == b->has_bias && a->bias == b->bias;
}

static void forget_rules(struct helperrules *rules, uint64_t start_avma, uint64_t end_avma)
{
    for (uint32_t set = 0; set < HELPER_RULE_SETS; set++) {
        for (uint32_t way = 0; way < HELPER_RULE_WAYS; way++) {
            const struct range *range = &rules->rows[set][way];
            if (range->length && range->start_avma < end_avma && range->start_avma + range->length > start_avma)
                write_rule(rules, set, way, NULL);
        }
    }
}

/* Both are sorted. */
static bool forget_gone(struct helperrules *rules, const struct codemap *map)
{
    bool has_lost = false;
    size_t j = 0;
    for (size_t i = 0; i < rules->region_count; i++) {
        const struct code_region *region = &rules->regions[i];
        while (j < map->count && map->regions[j].start_avma < region->start_avma)
            j++;
        if (!region->image || (j < map->count && is_same_code(region, &map->regions[j])))
            continue;
        forget_rules(rules, region->start_avma, region->end_avma);
        has_lost = true;
    }
    return has_lost;
}

bool helperrules_set_map(struct helperrules *rules, const struct codemap *map)
{
    struct helper_regions *regions = &rules->shared->regions;
    size_t count = map->count < HELPER_REGIONS ? map->count : HELPER_REGIONS;
    bool has_lost = forget_gone(rules, map);
    uint32_t version = atomic_load_explicit(&regions->version, memory_order_relaxed) & ~1U;
    atomic_store_explicit(&regions->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < count; i++) {
        const struct code_region *region = &map->regions[i];
        *(volatile struct helper_region *)&regions->all[i] =
            (struct helper_region){.start_avma = region->start_avma,
                                   .end_avma = region->end_avma,
                                   .code = region->image ? HELPER_CODE_TABLES : HELPER_CODE_BARE};
    }
    __atomic_store_n(&regions->count, (uint32_t)count, __ATOMIC_RELAXED);
    atomic_store_explicit(&regions->version, version + 2, memory_order_release);
    if (count)
        memcpy(rules->regions, map->regions, count * sizeof(map->regions[0]));
    rules->region_count = count;
    return has_lost;
}
