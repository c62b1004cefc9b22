/*
 * The sampler's side of a helper's ring (helper/layout.h): its records, read one by one. The memory is the target's to
 * write at any time, so a record is copied first and then checked, and nothing that was read is read again.
 */
#ifndef SAMPLER_HELPERRING_H
#define SAMPLER_HELPERRING_H

#include "helper/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct helperring {
    struct helper_ring *ring; /* borrowed; shared with the target */
    uint64_t tail;            /* ours: what is there may say anything */
    uint64_t end;             /* what is read until helperring_begin is called again ends here */
    uint64_t stuck_at;        /* where the last reading began */
    uint64_t stuck_since_ns;  /* the record at the tail is not whole since then; 0: no such */
    uint64_t resets;          /* times that it said nonsense, and all in it was given up */
};

struct helper_event {
    enum helper_record_kind kind; /* never a pad */
    pid_t tid;                    /* as the target says */
    uint32_t slot;                /* below HELPER_SLOTS, or that for none */
    uint32_t ticks;               /* at least 1, at most HELPERRING_TICKS_MAX */
    uint32_t blocked_ticks;
    uint32_t handler_tsc;
    uint32_t part;
    uint32_t unloads;
    struct registers registers; /* HELPER_RECORD_COPY */
    uint64_t avma;
    size_t count; /* of frames, or of bytes, that are in the buffer */
};

/* One signal cannot stand for more: three hours at the highest rate. */
enum { HELPERRING_TICKS_MAX = 100000000 };

/* Frames of one record, or a copied stack, fit. */
enum { HELPERRING_BUFFER_BYTES = HELPER_COPY_BYTES };

/*
 * What is there by now is to be read: no more, however fast the target writes. A record that stays half written for a
 * second will never be whole (its handler was jumped out of): what is behind it is given up.
 */
void helperring_begin(struct helperring *ring, uint64_t now_ns);

/*
 * The next record that is whole. Its frames or bytes are copied to `buffer` (8-aligned, HELPERRING_BUFFER_BYTES).
 * false: there is none now.
 */
bool helperring_next(struct helperring *ring, void *buffer, struct helper_event *ret);

#endif
