/*
 * Rules that were compiled, in a fixed amount of memory: found again by image and address.
 *
 * Rows are kept with the whole range of addresses that they hold for. Two tables lead to them: by address
 * (direct-mapped, one number each), and by the function's place in its image's index (chains), for an address that was
 * not asked for before, in a row that was. When any part is full all is forgotten: what is in use comes back at once.
 *
 * Belongs to one thread. Memory is touched as it is filled.
 */
#ifndef UNWIND_RULECACHE_H
#define UNWIND_RULECACHE_H

#include "common/hash.h"
#include "unwind/rule.h"

enum { RULECACHE_ROWS = 1 << 16, RULECACHE_GENERAL = 1 << 11, RULECACHE_OPS = 1 << 14 };

struct rule_row {
    const struct image *image;
    uint64_t start_svma;
    uint32_t length;
    uint32_t next; /* of the same chain; 0: the last */
    struct rule rule;
};

struct rulecache {
    /* Row 0 is unused: no image. */
    struct rule_row *rows;
    uint32_t row_count;
    uint32_t *by_address; /* RULECACHE_ROWS each */
    uint32_t *by_function;
    struct general_rule *general;
    uint32_t general_count;
    struct expression_op *ops;
    uint32_t op_count;

    uint64_t hits;     /* by address */
    uint64_t row_hits; /* another address of a row that was there */
    uint64_t flushes;
};

int rulecache_init(struct rulecache *cache); /* 0 or -ENOMEM */
void rulecache_deinit(struct rulecache *cache);

/* Bytes in use, tables included as far as rows fill them. */
size_t rulecache_bytes(const struct rulecache *cache);

static inline uint32_t *rulecache_address_slot(const struct rulecache *cache, const struct image *image, uint64_t svma)
{
    /* One multiplication is enough here: a collision costs a walk along a chain. */
    uint64_t key = (svma ^ (uintptr_t)image) * UINT64_C(0x9e3779b97f4a7c15);
    return &cache->by_address[key >> 48];
}
_Static_assert(RULECACHE_ROWS == 1 << 16, "16 bits of the product");

static inline bool rule_row_holds(const struct rule_row *row, const struct image *image, uint64_t svma)
{
    return row->image == image && svma - row->start_svma < row->length;
}

/* Is `svma` the first address behind the row of this rule (not of a RULE_NONE)? */
static inline bool rulecache_row_ends(const struct rule *rule, uint64_t svma)
{
    const struct rule_row *row = (const struct rule_row *)((const char *)rule - offsetof(struct rule_row, rule));
    return svma - row->start_svma == row->length;
}

/* By address alone; NULL when it was not asked for lately. */
static inline const struct rule *rulecache_find(struct rulecache *cache, const struct image *image, uint64_t svma)
{
    const struct rule_row *row = &cache->rows[*rulecache_address_slot(cache, image, svma)];
    if (!rule_row_holds(row, image, svma))
        return NULL;
    cache->hits++;
    return &row->rule;
}

/* By the function, whose entries start at `function_svma`; the address is remembered. NULL: no such row. */
const struct rule *rulecache_find_row(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                      uint64_t svma);

/*
 * Makes room for one row with its general rule and operations; when there is none, everything is forgotten, rules that
 * were found before too. false: more operations than there can ever be.
 */
bool rulecache_make_room(struct rulecache *cache, size_t op_count);

/*
 * Adds a row for [start, end), which holds `svma`. Of a general rule also `general`, whose first_op count from `ops`.
 * There is room (rulecache_make_room).
 */
const struct rule *rulecache_add(struct rulecache *cache, const struct image *image, uint64_t function_svma,
                                 uint64_t svma, uint64_t start_svma, uint64_t end_svma, const struct rule *rule,
                                 const struct general_rule *general, const struct expression_op *ops, size_t op_count);

#endif
