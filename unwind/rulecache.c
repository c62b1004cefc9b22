#include "unwind/rulecache.h"

#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_SLOTS = 2 * RULECACHE_IMAGES, CACHE_LINE_BYTES = 64 };

static uint16_t *function_slot(const struct rulecache *cache, uint32_t image_number, uint64_t function_svma)
{
    return &cache->by_function[hash_pair(image_number, function_svma) % RULECACHE_ROWS];
}

int rulecache_init(struct rulecache *cache)
{
    *cache = (struct rulecache){
        .row_memory = calloc(RULECACHE_ROWS + CACHE_LINE_BYTES / sizeof(*cache->rows), sizeof(*cache->rows)),
        .row_count = 1,
        .by_address = calloc((size_t)RULECACHE_SETS * RULECACHE_WAYS, sizeof(*cache->by_address)),
        .by_function = calloc(RULECACHE_ROWS, sizeof(*cache->by_function)),
        .images = calloc(IMAGE_SLOTS, sizeof(*cache->images)),
        .general = calloc(RULECACHE_GENERAL, sizeof(*cache->general)),
        .ops = calloc(RULECACHE_OPS, sizeof(*cache->ops)),
    };
    if (!cache->row_memory || !cache->by_address || !cache->by_function || !cache->images || !cache->general ||
        !cache->ops) {
        rulecache_deinit(cache);
        return -ENOMEM;
    }
    /* calloc touches no page; aligned allocation and zeroing would. */
    uintptr_t place = (uintptr_t)cache->row_memory;
    cache->rows = (struct rule_row *)((place + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES);
    return 0;
}

void rulecache_deinit(struct rulecache *cache)
{
    free(cache->row_memory);
    free(cache->by_address);
    free(cache->by_function);
    free(cache->images);
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

static void forget_all(struct rulecache *cache)
{
    memset(cache->by_address, 0, (size_t)RULECACHE_SETS * RULECACHE_WAYS * sizeof(*cache->by_address));
    memset(cache->by_function, 0, RULECACHE_ROWS * sizeof(*cache->by_function));
    memset(cache->images, 0, IMAGE_SLOTS * sizeof(*cache->images));
    cache->last_image = NULL;
    cache->row_count = 1;
    cache->image_count = 0;
    cache->general_count = 0;
    cache->op_count = 0;
    cache->flushes++;
}

uint32_t rulecache_image_number(struct rulecache *cache, const struct image *image)
{
    size_t slot = hash_u64((uintptr_t)image) % IMAGE_SLOTS;
    while (cache->images[slot] && cache->images[slot] != image)
        slot = (slot + 1) % IMAGE_SLOTS;
    if (!cache->images[slot]) {
        if (cache->image_count == RULECACHE_IMAGES) {
            forget_all(cache);
            slot = hash_u64((uintptr_t)image) % IMAGE_SLOTS;
        }
        cache->images[slot] = image;
        cache->image_count++;
    }
    cache->last_image = image;
    cache->last_number = (uint32_t)slot + 1;
    return cache->last_number;
}

/* In front of the addresses of its set. */
static void remember_address(struct rulecache *cache, uint32_t image_number, uint64_t svma, uint32_t row_number)
{
    struct rulecache_key key = rulecache_key(image_number, svma);
    uint32_t *set = &cache->by_address[(size_t)key.set * RULECACHE_WAYS];
    memmove(set + 1, set, (RULECACHE_WAYS - 1) * sizeof(*set));
    set[0] = key.tag | row_number;
}

const struct rule *rulecache_find_row(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                      uint64_t svma)
{
    uint32_t image_number = rulecache_image_number(cache, image);
    uint32_t number = *function_slot(cache, image_number, function_svma);
    while (number != 0 && !rule_row_holds(&cache->rows[number], image_number, svma))
        number = cache->rows[number].next;
    if (number == 0)
        return NULL;
    remember_address(cache, image_number, svma, number);
    cache->row_hits++;
    return &cache->rows[number].rule;
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

static uint32_t add_general(struct rulecache *cache, const struct general_rule *general,
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
    return cache->general_count++;
}

const struct rule *rulecache_add(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                 uint64_t svma, uint64_t start_svma, uint64_t end_svma, const struct rule *rule,
                                 const struct general_rule *general, const struct expression_op *ops, size_t op_count)
{
    uint32_t image_number = rulecache_image_number(cache, image);
    uint32_t number = cache->row_count++;
    struct rule_row *row = &cache->rows[number];
    if (svma - start_svma >= UINT32_MAX)
        start_svma = svma; /* the length is kept in 32 bits */
    uint64_t length = end_svma - start_svma;
    uint16_t *head = function_slot(cache, image_number, function_svma);
    *row = (struct rule_row){.start_svma = start_svma,
                             .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
                             .image = (uint16_t)image_number,
                             .next = *head,
                             .rule = *rule};
    if (rule->kind == RULE_GENERAL)
        row->rule.general = add_general(cache, general, ops, op_count);
    *head = (uint16_t)number;
    remember_address(cache, image_number, svma, number);
    return &row->rule;
}
