/* The counters of one window: those of a run's --stats that a comparison shows. */
#ifndef SAMPLER_COMPARESTATS_H
#define SAMPLER_COMPARESTATS_H

#include <stdbool.h>
#include <stddef.h>

enum comparefield {
    FIELD_SAMPLES,
    FIELD_TICKS_MISSED,
    FIELD_TRUNCATED,
    FIELD_EINTR_HIDDEN,
    FIELD_SYMBOL_NS,
    FIELD_HELD_P50,
    FIELD_HELD_P99,
    FIELD_HELD_MAX,
    FIELD_INTERRUPTED_P50,
    FIELD_INTERRUPTED_P99,
    FIELD_INTERRUPTED_MAX,
    FIELD_STOPS,
    FIELD_INTERRUPTED,
    FIELD_HELPER_WALKED,
    FIELD_HELPER_COPIED,
    FIELD_HELPER_LOST,
    FIELD_HELPER_NO_ROOM,
    FIELD_HELPER_BLOCKED,
    FIELD_HELPER_FAULTS,
    FIELD_HELPER_EINTR,
    FIELD_HELPER_TIMERS_FAILED,
    FIELD_HANDLER_P50,
    FIELD_HANDLER_P99,
    FIELD_HANDLER_MAX,
    FIELD_DELIVERY_P50,
    FIELD_DELIVERY_P99,
    FIELD_DELIVERY_MAX,
    FIELD_COUNT
};

enum { CAUSES_MAX = 16, CAUSE_BYTES = 32 };

/* Samples without a stack, by cause. */
struct comparecause {
    char name[CAUSE_BYTES];
    double samples;
};

struct comparestats {
    double fields[FIELD_COUNT]; /* NAN: not there */
    struct comparecause causes[CAUSES_MAX];
    size_t cause_count;
    bool has_failed; /* whether there was anything about causes */
};

/* No field is there. */
void comparestats_init(struct comparestats *stats);

/* The JSON object that --stats writes. Returns 0 or -EPROTO when it is none; what is missing in it, or no number, is
 * not there in *ret_stats either. */
int comparestats_parse(const char *text, size_t size, struct comparestats *ret_stats);

/* More samples of a cause; beyond CAUSES_MAX they are "other". */
void comparestats_add_cause(struct comparestats *stats, const char *name, double samples);

#endif
