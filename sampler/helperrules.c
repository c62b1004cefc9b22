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

void helperrules_add(struct helperrules *rules, const struct unwind_row *row, uint64_t lookup_avma)
{
    uint32_t set = helper_rule_set(lookup_avma);
    uint32_t free_way = HELPER_RULE_WAYS;
    if (row->end_avma - row->start_avma > UINT32_MAX)
        return;
    for (uint32_t way = 0; way < HELPER_RULE_WAYS; way++) {
        const struct range *range = &rules->rows[set][way];
        if (range->length && lookup_avma - range->start_avma < range->length)
            return;
        if (!range->length)
            free_way = way;
    }
    if (free_way == HELPER_RULE_WAYS)
        free_way = rules->next_way[set]++ % HELPER_RULE_WAYS;
    write_rule(rules, set, free_way, row);
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
static void forget_gone(struct helperrules *rules, const struct codemap *map)
{
    size_t j = 0;
    for (size_t i = 0; i < rules->region_count; i++) {
        const struct code_region *region = &rules->regions[i];
        while (j < map->count && map->regions[j].start_avma < region->start_avma)
            j++;
        if (region->image && (j == map->count || !is_same_code(region, &map->regions[j])))
            forget_rules(rules, region->start_avma, region->end_avma);
    }
}

void helperrules_set_map(struct helperrules *rules, const struct codemap *map)
{
    struct helper_regions *regions = &rules->shared->regions;
    size_t count = map->count < HELPER_REGIONS ? map->count : HELPER_REGIONS;
    forget_gone(rules, map);
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
    if (count > 0)
        memcpy(rules->regions, map->regions, count * sizeof(map->regions[0]));
    rules->region_count = count;
}
