#include "sampler/comparestats.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where each field stands in the object. */
static const struct {
    const char *object; /* NULL: at the top */
    const char *inner;  /* an object in that, or NULL */
    const char *name;
} places[FIELD_COUNT] = {
    [FIELD_SAMPLES] = {NULL, NULL, "samples"},
    [FIELD_TICKS_MISSED] = {NULL, NULL, "ticks_missed"},
    [FIELD_TRUNCATED] = {NULL, NULL, "samples_truncated"},
    [FIELD_EINTR_HIDDEN] = {NULL, NULL, "eintr_restarted"},
    [FIELD_SYMBOL_NS] = {NULL, NULL, "symbol_ns"},
    [FIELD_HELD_P50] = {"held_ns", NULL, "p50"},
    [FIELD_HELD_P99] = {"held_ns", NULL, "p99"},
    [FIELD_HELD_MAX] = {"held_ns", NULL, "max"},
    [FIELD_INTERRUPTED_P50] = {"interrupted_ns", NULL, "p50"},
    [FIELD_INTERRUPTED_P99] = {"interrupted_ns", NULL, "p99"},
    [FIELD_INTERRUPTED_MAX] = {"interrupted_ns", NULL, "max"},
    [FIELD_STOPS] = {NULL, NULL, "stops"},
    [FIELD_INTERRUPTED] = {NULL, NULL, "interrupted"},
    [FIELD_HELPER_WALKED] = {"helper", NULL, "walked"},
    [FIELD_HELPER_COPIED] = {"helper", NULL, "copied"},
    [FIELD_HELPER_LOST] = {"helper", NULL, "lost"},
    [FIELD_HELPER_NO_ROOM] = {"helper", NULL, "no_room"},
    [FIELD_HELPER_BLOCKED] = {"helper", NULL, "blocked"},
    [FIELD_HELPER_FAULTS] = {"helper", NULL, "faults"},
    [FIELD_HELPER_EINTR] = {"helper", NULL, "eintr"},
    [FIELD_HELPER_TIMERS_FAILED] = {"helper", NULL, "timers_failed"},
    [FIELD_HANDLER_P50] = {"helper", "handler_ns", "p50"},
    [FIELD_HANDLER_P99] = {"helper", "handler_ns", "p99"},
    [FIELD_HANDLER_MAX] = {"helper", "handler_ns", "max"},
    [FIELD_DELIVERY_P50] = {"helper", "delivery_ns", "p50"},
    [FIELD_DELIVERY_P99] = {"helper", "delivery_ns", "p99"},
    [FIELD_DELIVERY_MAX] = {"helper", "delivery_ns", "max"},
};

void comparestats_init(struct comparestats *stats)
{
    *stats = (struct comparestats){0};
    for (int i = 0; i < FIELD_COUNT; i++)
        stats->fields[i] = NAN;
}

void comparestats_add_cause(struct comparestats *stats, const char *name, double samples)
{
    stats->has_failed = true;
    for (size_t i = 0; i < stats->cause_count; i++) {
        if (strcmp(stats->causes[i].name, name) == 0 || i + 1 == CAUSES_MAX) {
            stats->causes[i].samples += samples;
            return;
        }
    }
    struct comparecause *cause = &stats->causes[stats->cause_count++];
    snprintf(cause->name, sizeof(cause->name), "%s", stats->cause_count == CAUSES_MAX ? "other" : name);
    cause->samples = samples;
}

static double number_at(json_t *root, int field)
{
    json_t *at = root;
    if (places[field].object)
        at = json_object_get(at, places[field].object);
    if (places[field].inner)
        at = json_object_get(at, places[field].inner);
    at = json_object_get(at, places[field].name);
    double value = json_is_number(at) ? json_number_value(at) : NAN;
    return value >= 0 ? value : NAN;
}

/* A distribution of nothing has zeros, which are no times. */
static void forget_empty(struct comparestats *stats, int count, int first, int last)
{
    if (!(stats->fields[count] > 0))
        for (int i = first; i <= last; i++)
            stats->fields[i] = NAN;
}

int comparestats_parse(const char *text, size_t size, struct comparestats *ret_stats)
{
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    const char *name;
    json_t *value;
    if (!json_is_object(root)) {
        json_decref(root);
        return -EPROTO;
    }
    comparestats_init(ret_stats);
    for (int i = 0; i < FIELD_COUNT; i++)
        ret_stats->fields[i] = number_at(root, i);
    forget_empty(ret_stats, FIELD_STOPS, FIELD_HELD_P50, FIELD_HELD_MAX);
    forget_empty(ret_stats, FIELD_INTERRUPTED, FIELD_INTERRUPTED_P50, FIELD_INTERRUPTED_MAX);
    json_t *failed = json_object_get(root, "samples_failed");
    ret_stats->has_failed = json_is_object(failed);
    json_object_foreach(failed, name, value)
    {
        if (json_is_number(value) && json_number_value(value) > 0)
            comparestats_add_cause(ret_stats, name, json_number_value(value));
    }
    json_decref(root);
    return 0;
}
