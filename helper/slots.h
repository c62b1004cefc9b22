/*
 * Finding and making a thread's slot, which both sides do in the same way. Nobody waits for anybody: a slot changes
 * hands by compare and exchange of its state. Async-signal-safe.
 */
#ifndef HELPER_SLOTS_H
#define HELPER_SLOTS_H

#include "helper/layout.h"

#include <stdbool.h>
#include <stdint.h>

static inline bool slot_change_state(struct helper_slot *slot, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&slot->state, &from, to);
}

/*
 * The slot of the thread, made (HELPER_SLOT_WANTED) if there is none: *ret_is_new. HELPER_SLOTS: all that it may have
 * are taken.
 */
static inline uint32_t slot_find(struct helper_shared *shared, int32_t tid, bool *ret_is_new)
{
    uint32_t first = helper_slot_first(tid);
    *ret_is_new = false;
    for (uint32_t i = 0; i < HELPER_SLOT_PROBES; i++) {
        uint32_t number = (first + i) % HELPER_SLOTS;
        if (atomic_load(&shared->slots[number].tid) == tid &&
            atomic_load(&shared->slots[number].state) != HELPER_SLOT_FREE)
            return number;
    }
    for (uint32_t i = 0; i < HELPER_SLOT_PROBES; i++) {
        uint32_t number = (first + i) % HELPER_SLOTS;
        struct helper_slot *slot = &shared->slots[number];
        if (atomic_load(&slot->state) != HELPER_SLOT_FREE ||
            !slot_change_state(slot, HELPER_SLOT_FREE, HELPER_SLOT_TAKEN))
            continue;
        atomic_store(&slot->copy_bytes, 0);
        atomic_store(&slot->stack_start_avma, 0);
        atomic_store(&slot->stack_end_avma, 0);
        atomic_store(&slot->stack_top_avma, 0);
        slot->timer = 0;
        slot->ticks = 0;
        slot->last_handler_tsc = 0;
        slot->start_avma = 0;
        atomic_store(&slot->tid, tid);
        atomic_store(&slot->state, HELPER_SLOT_WANTED);
        *ret_is_new = true;
        return number;
    }
    return HELPER_SLOTS;
}

#endif
