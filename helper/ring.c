#include "helper/ring.h"

static struct helper_record *record_at(struct helper_ring *ring, uint64_t position)
{
    return (struct helper_record *)(void *)(ring->bytes + position % HELPER_RING_BYTES);
}

struct helper_record *ring_reserve(struct helper_ring *ring, size_t bytes, uint64_t *ret_position)
{
    uint64_t size = (sizeof(struct helper_record) + bytes + HELPER_RECORD_ALIGN - 1) / HELPER_RECORD_ALIGN;
    size *= HELPER_RECORD_ALIGN;
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t pad;
    do {
        uint64_t left = HELPER_RING_BYTES - head % HELPER_RING_BYTES;
        pad = size <= left ? 0 : left;
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (size > HELPER_RING_BYTES || head + pad + size - tail > HELPER_RING_BYTES)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&ring->head, &head, head + pad + size, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (pad) {
        struct helper_record *record = record_at(ring, head);
        record->kind = HELPER_RECORD_PAD;
        record->size = (uint32_t)pad;
        ring_commit(record, head);
    }
    struct helper_record *record = record_at(ring, head + pad);
    record->size = (uint32_t)size;
    *ret_position = head + pad;
    return record;
}

void ring_commit(struct helper_record *record, uint64_t position)
{
    atomic_store_explicit(&record->commit, ~position, memory_order_release);
}
