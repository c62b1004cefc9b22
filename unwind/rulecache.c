#include "unwind/rulecache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t *function_slot(const struct rulecache *cache, const struct image *image, uint64_t function_svma)
{
    return &cache->by_function[hash_pair((uintptr_t)image, function_svma) % RULECACHE_ROWS];
}

int rulecache_init(struct rulecache *cache)
{
    *cache = (struct rulecache){
        .rows = calloc(RULECACHE_ROWS, sizeof(*cache->rows)),
        .row_count = 1,
        .by_address = calloc(RULECACHE_ROWS, sizeof(*cache->by_address)),
        .by_function = calloc(RULECACHE_ROWS, sizeof(*cache->by_function)),
        .general = calloc(RULECACHE_GENERAL, sizeof(*cache->general)),
        .ops = calloc(RULECACHE_OPS, sizeof(*cache->ops)),
    };
    if (cache->rows && cache->by_address && cache->by_function && cache->general && cache->ops)
        return 0;
    rulecache_deinit(cache);
    return -ENOMEM;
}

void rulecache_deinit(struct rulecache *cache)
{
    free(cache->rows);
    free(cache->by_address);
    free(cache->by_function);
    free(cache->general);
    free(cache->ops);
    *cache = (struct rulecache){0};
}

size_t rulecache_bytes(const struct rulecache *cache)
{
    size_t rows = cache->row_count - 1;
    return rows * (sizeof(*cache->rows) + sizeof(*cache->by_address) + sizeof(*cache->by_function)) +
           cache->general_count * sizeof(*cache->general) + cache->op_count * sizeof(*cache->ops);
}

const struct rule *rulecache_find_row(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                      uint64_t svma)
{
    uint32_t number = *function_slot(cache, image, function_svma);
    while (number != 0 && !rule_row_holds(&cache->rows[number], image, svma))
        number = cache->rows[number].next;
    if (number == 0)
        return NULL;
    *rulecache_address_slot(cache, image, svma) = number;
    cache->row_hits++;
    return &cache->rows[number].rule;
}

static void forget_all(struct rulecache *cache)
{
    memset(cache->by_address, 0, RULECACHE_ROWS * sizeof(*cache->by_address));
    memset(cache->by_function, 0, RULECACHE_ROWS * sizeof(*cache->by_function));
    cache->row_count = 1;
    cache->general_count = 0;
    cache->op_count = 0;
    cache->flushes++;
}

bool rulecache_make_room(struct rulecache *cache, size_t op_count)
{
    if (op_count > RULECACHE_OPS)
        return false;
    if (cache->row_count == RULECACHE_ROWS || cache->general_count == RULECACHE_GENERAL ||
        op_count > RULECACHE_OPS - cache->op_count)
        forget_all(cache);
    return true;
}

static uint16_t add_general(struct rulecache *cache, const struct general_rule *general,
                            const struct expression_op *ops, size_t op_count)
{
    struct general_rule *added = &cache->general[cache->general_count];
    *added = *general;
    added->cfa.first_op += cache->op_count;
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        added->registers[reg].first_op += cache->op_count;
    if (op_count > 0)
        memcpy(cache->ops + cache->op_count, ops, op_count * sizeof(*ops));
    cache->op_count += (uint32_t)op_count;
    return (uint16_t)cache->general_count++;
}

const struct rule *rulecache_add(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                 uint64_t svma, uint64_t start_svma, uint64_t end_svma, const struct rule *rule,
                                 const struct general_rule *general, const struct expression_op *ops, size_t op_count)
{
    uint32_t number = cache->row_count++;
    struct rule_row *row = &cache->rows[number];
    if (svma - start_svma >= UINT32_MAX)
        start_svma = svma; /* the length is kept in 32 bits */
    uint64_t length = end_svma - start_svma;
    *row = (struct rule_row){.image = image,
                             .start_svma = start_svma,
                             .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
                             .rule = *rule};
    if (rule->kind == RULE_GENERAL)
        row->rule.general = add_general(cache, general, ops, op_count);
    uint32_t *head = function_slot(cache, image, function_svma);
    row->next = *head;
    *head = number;
    *rulecache_address_slot(cache, image, svma) = number;
    return &row->rule;
}
