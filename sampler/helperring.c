#include "sampler/helperring.h"

#include "common/clock.h"

#include <string.h>

#define STUCK_NS NS_PER_SEC

static struct helper_record *record_at(const struct helperring *ring, uint64_t position)
{
    return (struct helper_record *)(void *)(ring->ring->bytes + position % HELPER_RING_BYTES);
}

/* Whatever was to come is lost; what comes from now on is read. */
static void reset(struct helperring *ring, uint64_t head)
{
    ring->resets++;
    ring->tail = head - head % HELPER_RECORD_ALIGN;
    ring->end = ring->tail;
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
                                 .part = header->part,
                                 .unloads = header->unloads,
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

void helperring_begin(struct helperring *ring, uint64_t now_ns)
{
    uint64_t head = atomic_load_explicit(&ring->ring->head, memory_order_acquire);
    bool is_waiting = head != ring->tail && ring->tail == ring->stuck_at && ring->stuck_since_ns != 0;
    if (head - ring->tail > HELPER_RING_BYTES || head % HELPER_RECORD_ALIGN != 0 ||
        (is_waiting && now_ns - ring->stuck_since_ns > STUCK_NS)) {
        reset(ring, head);
        is_waiting = false;
    }
    if (!is_waiting)
        ring->stuck_since_ns = head != ring->tail ? now_ns : 0;
    ring->stuck_at = ring->tail;
    ring->end = ring->tail + (head - ring->tail <= HELPER_RING_BYTES ? head - ring->tail : 0);
}

bool helperring_next(struct helperring *ring, void *buffer, struct helper_event *ret)
{
    while (ring->tail != ring->end) {
        uint64_t left = HELPER_RING_BYTES - ring->tail % HELPER_RING_BYTES;
        struct helper_record *record = record_at(ring, ring->tail);
        if (atomic_load_explicit(&record->commit, memory_order_acquire) != ~ring->tail)
            return false;
        uint32_t size = *(volatile uint32_t *)&record->size;
        uint32_t kind = *(volatile uint32_t *)&record->kind;
        struct helper_record header;
        bool is_pad = kind == HELPER_RECORD_PAD;
        if (!is_size(size, left) || size > ring->end - ring->tail || (!is_pad && size < sizeof(header))) {
            reset(ring, ring->end);
            return false;
        }
        if (!is_pad) {
            memcpy(&header, record, sizeof(header));
            header.size = size;
            if (!is_sound(&header)) {
                reset(ring, ring->end);
                return false;
            }
            fill(&header, record, buffer, ret);
        }
        advance(ring, size);
        if (!is_pad)
            return true;
    }
    return false;
}
