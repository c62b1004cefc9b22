/*
 * Rules that were compiled, in a fixed amount of memory: found again by image and address.
 *
 * Rows are kept with the whole range of addresses that they hold for. Two tables lead to them: by address (sets of
 * four, of which the oldest goes), and by the function's place in its image's index (chains), for an address that was
 * not asked for before, in a row that was. When any part is full all is forgotten: what is in use comes back at once.
 *
 * A walk looks here for each of its frames, mostly finds what it looks for, and then nearly all of its time is that of
 * memory: so rows are half a cache line, and a set of addresses with a part of their hashes is a quarter.
 *
 * Belongs to one thread. Memory is touched as it is filled. Images outlive the cache.
 */
#ifndef UNWIND_RULECACHE_H
#define UNWIND_RULECACHE_H

#include "unwind/rule.h"

#include <stddef.h>

enum {
    RULECACHE_ROWS = 1 << 16,
    RULECACHE_SETS = 1 << 13,
    RULECACHE_WAYS = 4,
    RULECACHE_GENERAL = 1 << 11,
    RULECACHE_OPS = 1 << 14,
    RULECACHE_IMAGES = 1 << 12
};

struct rule_row {
    uint64_t start_svma;
    uint32_t length;
    uint16_t image; /* the cache's number for it; 0: none */
    uint16_t next;  /* row of the same chain; 0: the last */
    struct rule rule;
};
_Static_assert(sizeof(struct rule_row) == 32, "two rows in a cache line");

struct rulecache {
    struct rule_row *rows; /* row 0 is unused */
    uint32_t *by_address;  /* RULECACHE_SETS sets of RULECACHE_WAYS: a part of the hash above a row's number */
    uint16_t *by_function; /* RULECACHE_ROWS */
    uint32_t row_count;
    uint32_t last_number; /* of the image that was looked up last */
    const struct image *last_image;
    const struct image **images; /* open addressing, twice RULECACHE_IMAGES; its place plus 1 is an image's number */
    uint32_t image_count;
    struct general_rule *general;
    uint32_t general_count;
    struct expression_op *ops;
    uint32_t op_count;
    void *row_memory; /* where the rows were allocated */

    uint64_t hits;     /* by address */
    uint64_t row_hits; /* another address of a row that was there */
    uint64_t flushes;
};

int rulecache_init(struct rulecache *cache); /* 0 or -ENOMEM */
void rulecache_deinit(struct rulecache *cache);

/* Bytes in use: of rows, and of what leads to them. */
size_t rulecache_bytes(const struct rulecache *cache);

/* The number of an image, which gets one now if it has none: that may forget everything. */
uint32_t rulecache_image_number(struct rulecache *cache, const struct image *image);

/* 16 bits tell the addresses of a set apart, in most cases; the row says for certain. */
struct rulecache_key {
    uint32_t set;
    uint32_t tag; /* in the upper half */
};

static inline struct rulecache_key rulecache_key(uint32_t image_number, uint64_t svma)
{
    uint64_t hash = (svma + ((uint64_t)image_number << 44)) * UINT64_C(0x9e3779b97f4a7c15);
    return (struct rulecache_key){.set = (uint32_t)(hash >> 51), .tag = (uint32_t)(hash >> 18) & 0xffff0000U};
}
_Static_assert(RULECACHE_SETS == 1 << (64 - 51), "the hash's upper bits are the set");
_Static_assert(RULECACHE_ROWS == 1 << 16, "row numbers have 16 bits");

static inline bool rule_row_holds(const struct rule_row *row, uint32_t image_number, uint64_t svma)
{
    return row->image == image_number && svma - row->start_svma < row->length;
}

/* Is `svma` the first address behind the row of this rule, which is from a cache? */
static inline bool rulecache_row_ends(const struct rule *rule, uint64_t svma)
{
    const struct rule_row *row = (const struct rule_row *)((const char *)rule - offsetof(struct rule_row, rule));
    return svma - row->start_svma == row->length;
}

/* The first address behind the row of this rule, which is from a cache. */
static inline uint64_t rulecache_row_end(const struct rule *rule)
{
    const struct rule_row *row = (const struct rule_row *)((const char *)rule - offsetof(struct rule_row, rule));
    return row->start_svma + row->length;
}

/* The first address of the row. */
static inline uint64_t rulecache_row_start(const struct rule *rule)
{
    const struct rule_row *row = (const struct rule_row *)((const char *)rule - offsetof(struct rule_row, rule));
    return row->start_svma;
}

/* By address alone; NULL when it was not asked for lately. */
static inline const struct rule *rulecache_find(struct rulecache *cache, const struct image *image, uint64_t svma)
{
    uint32_t number = image == cache->last_image ? cache->last_number : rulecache_image_number(cache, image);
    struct rulecache_key key = rulecache_key(number, svma);
    const uint32_t *set = &cache->by_address[(size_t)key.set * RULECACHE_WAYS];
    for (unsigned way = 0; way < RULECACHE_WAYS; way++) {
        if ((set[way] & 0xffff0000U) != key.tag)
            continue;
        const struct rule_row *row = &cache->rows[set[way] & 0xffffU];
        if (rule_row_holds(row, number, svma)) {
            cache->hits++;
            return &row->rule;
        }
    }
    return NULL;
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
