#include "sampler/helperring.h"

#include <string.h>

static struct helper_record *record_at(const struct helperring *ring, uint64_t position)
{
    return (struct helper_record *)(void *)(ring->ring->bytes + position % HELPER_RING_BYTES);
}

/* Whatever was to come is lost; what comes from now on is read. */
static void reset(struct helperring *ring, uint64_t head)
{
    ring->resets++;
    ring->tail = head - head % HELPER_RECORD_ALIGN;
    atomic_store_explicit(&ring->ring->tail, ring->tail, memory_order_release);
}

static void advance(struct helperring *ring, uint64_t size)
{
    ring->tail += size;
    atomic_store_explicit(&ring->ring->tail, ring->tail, memory_order_release);
}

/* Bytes behind the header that a record of that kind and count has. SIZE_MAX: it cannot be. */
static size_t payload_bytes(const struct helper_record *header)
{
    switch (header->kind) {
    case HELPER_RECORD_FRAMES_PART:
    case HELPER_RECORD_FRAMES_LAST:
    case HELPER_RECORD_FRAMES_CUT:
    case HELPER_RECORD_REST:
        return header->count >= 1 && header->count <= HELPER_RECORD_FRAMES ? header->count * sizeof(uint64_t)
                                                                           : SIZE_MAX;
    case HELPER_RECORD_COPY:
        return header->count <= HELPER_COPY_BYTES ? sizeof(struct helper_copy) + header->count : SIZE_MAX;
    case HELPER_RECORD_NO_ROOM:
        return header->count == 0 ? 0 : SIZE_MAX;
    default:
        return SIZE_MAX;
    }
}

static bool is_size(uint64_t size, uint64_t left)
{
    return size >= HELPER_RECORD_ALIGN && size % HELPER_RECORD_ALIGN == 0 && size <= left;
}

static bool is_sound(const struct helper_record *header)
{
    size_t bytes = payload_bytes(header);
    return bytes != SIZE_MAX && header->size >= sizeof(*header) && bytes <= header->size - sizeof(*header) &&
           header->tid > 0 && header->slot <= HELPER_SLOTS && header->ticks >= 1 &&
           header->ticks <= HELPERRING_TICKS_MAX && header->blocked_ticks <= HELPERRING_TICKS_MAX;
}

static void fill(const struct helper_record *header, const struct helper_record *record, void *buffer,
                 struct helper_event *ret)
{
    const uint8_t *payload = (const uint8_t *)(record + 1);
    *ret = (struct helper_event){.kind = header->kind,
                                 .tid = header->tid,
                                 .slot = header->slot,
                                 .ticks = header->ticks,
                                 .blocked_ticks = header->blocked_ticks,
                                 .handler_tsc = header->handler_tsc,
                                 .count = header->count};
    if (header->kind == HELPER_RECORD_COPY) {
        struct helper_copy copy;
        memcpy(&copy, payload, sizeof(copy));
        ret->registers = copy.registers;
        ret->registers.known &= REGISTERS_ALL;
        ret->avma = copy.avma;
        memcpy(buffer, payload + sizeof(copy), header->count);
    } else {
        memcpy(buffer, payload, header->count * sizeof(uint64_t));
    }
}

bool helperring_next(struct helperring *ring, void *buffer, struct helper_event *ret)
{
    /* At most one turn: a target that writes as fast as we read does not keep us. */
    for (uint64_t read = 0; read <= HELPER_RING_BYTES;) {
        uint64_t head = atomic_load_explicit(&ring->ring->head, memory_order_acquire);
        uint64_t left = HELPER_RING_BYTES - ring->tail % HELPER_RING_BYTES;
        if (head == ring->tail)
            return false;
        if (head - ring->tail > HELPER_RING_BYTES) {
            reset(ring, head);
            return false;
        }
        struct helper_record *record = record_at(ring, ring->tail);
        if (atomic_load_explicit(&record->commit, memory_order_acquire) != ~ring->tail)
            return false;
        uint32_t size = *(volatile uint32_t *)&record->size;
        uint32_t kind = *(volatile uint32_t *)&record->kind;
        if (!is_size(size, left)) {
            reset(ring, head);
            return false;
        }
        if (kind == HELPER_RECORD_PAD) {
            read += size;
            advance(ring, size);
            continue;
        }
        struct helper_record header;
        if (size < sizeof(header)) {
            reset(ring, head);
            return false;
        }
        memcpy(&header, record, sizeof(header));
        header.size = size;
        if (!is_sound(&header)) {
            reset(ring, head);
            return false;
        }
        fill(&header, record, buffer, ret);
        advance(ring, size);
        return true;
    }
    return false;
}
