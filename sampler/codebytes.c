#include "sampler/codebytes.h"

#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64, BLOCKS_MAX = 1 << 16, FIRST_CAPACITY = 4 };

struct block {
    bool used;
    uint64_t number; /* avma / BLOCK_BYTES */
    uint64_t known;  /* bit n: bytes[n] */
    uint8_t bytes[BLOCK_BYTES];
};

struct codebytes {
    struct block *blocks; /* open addressing */
    size_t count;
    size_t capacity; /* a power of two, or 0 */
};

struct codebytes *codebytes_new(void)
{
    return calloc(1, sizeof(struct codebytes));
}

void codebytes_free(struct codebytes *store)
{
    if (!store)
        return;
    free(store->blocks);
    free(store);
}

static struct block *slot_of(struct block *blocks, size_t capacity, uint64_t number)
{
    size_t at = (size_t)hash_u64(number) & (capacity - 1);
    while (blocks[at].used && blocks[at].number != number)
        at = (at + 1) & (capacity - 1);
    return &blocks[at];
}

static struct block *find_block(const struct codebytes *store, uint64_t number)
{
    struct block *block = store->capacity ? slot_of(store->blocks, store->capacity, number) : NULL;
    return block && block->used ? block : NULL;
}

static int grow(struct codebytes *store)
{
    size_t capacity = store->capacity ? store->capacity * 2 : FIRST_CAPACITY;
    struct block *blocks = calloc(capacity, sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    for (size_t i = 0; i < store->capacity; i++)
        if (store->blocks[i].used)
            *slot_of(blocks, capacity, store->blocks[i].number) = store->blocks[i];
    free(store->blocks);
    store->blocks = blocks;
    store->capacity = capacity;
    return 0;
}

/* NULL: no memory. */
static struct block *make_block(struct codebytes *store, uint64_t number)
{
    struct block *block = find_block(store, number);
    if (block)
        return block;
    if (store->count >= BLOCKS_MAX) {
        memset(store->blocks, 0, store->capacity * sizeof(*store->blocks));
        store->count = 0;
    }
    if (store->count >= store->capacity / 2 && grow(store))
        return NULL;
    block = slot_of(store->blocks, store->capacity, number);
    *block = (struct block){.used = true, .number = number};
    store->count++;
    return block;
}

int codebytes_set(struct codebytes *store, uint64_t avma, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    for (size_t i = 0; i < size; i++) {
        struct block *block = make_block(store, (avma + i) / BLOCK_BYTES);
        if (!block)
            return -ENOMEM;
        block->bytes[(avma + i) % BLOCK_BYTES] = from[i];
        block->known |= UINT64_C(1) << (avma + i) % BLOCK_BYTES;
    }
    return 0;
}

void codebytes_forget(struct codebytes *store, uint64_t avma, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        struct block *block = find_block(store, (avma + i) / BLOCK_BYTES);
        if (block)
            block->known &= ~(UINT64_C(1) << (avma + i) % BLOCK_BYTES);
    }
}

bool codebytes_read(const struct codebytes *store, uint64_t avma, void *buffer, size_t size)
{
    uint8_t *to = buffer;
    for (size_t i = 0; i < size; i++) {
        const struct block *block = find_block(store, (avma + i) / BLOCK_BYTES);
        if (!block || !(block->known >> (avma + i) % BLOCK_BYTES & 1U))
            return false;
        to[i] = block->bytes[(avma + i) % BLOCK_BYTES];
    }
    return true;
}
