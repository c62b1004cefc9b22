#include "sampler/comparesummary.h"

#include "sampler/comparedistance.h"
#include "sampler/pairedratio.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum how { HOW_SUM, HOW_MEDIAN, HOW_MAX };

/* Rows that are a field of the counters over all windows. */
static const struct {
    enum comparerow row;
    enum comparefield field;
    enum how how;
} counters[] = {
    {ROW_SAMPLES, FIELD_SAMPLES, HOW_SUM},
    {ROW_TICKS_MISSED, FIELD_TICKS_MISSED, HOW_SUM},
    {ROW_LOST, FIELD_HELPER_LOST, HOW_SUM},
    {ROW_NO_ROOM, FIELD_HELPER_NO_ROOM, HOW_SUM},
    {ROW_BLOCKED, FIELD_HELPER_BLOCKED, HOW_SUM},
    {ROW_TIMERS_FAILED, FIELD_HELPER_TIMERS_FAILED, HOW_SUM},
    {ROW_WALKED, FIELD_HELPER_WALKED, HOW_SUM},
    {ROW_COPIED, FIELD_HELPER_COPIED, HOW_SUM},
    {ROW_TRUNCATED, FIELD_TRUNCATED, HOW_SUM},
    {ROW_FAULTS, FIELD_HELPER_FAULTS, HOW_SUM},
    {ROW_STOPS, FIELD_STOPS, HOW_SUM},
    {ROW_HELD_P50, FIELD_HELD_P50, HOW_MEDIAN},
    {ROW_HELD_P99, FIELD_HELD_P99, HOW_MEDIAN},
    {ROW_HELD_MAX, FIELD_HELD_MAX, HOW_MAX},
    {ROW_INTERRUPTED, FIELD_INTERRUPTED, HOW_SUM},
    {ROW_INTERRUPTED_P50, FIELD_INTERRUPTED_P50, HOW_MEDIAN},
    {ROW_INTERRUPTED_P99, FIELD_INTERRUPTED_P99, HOW_MEDIAN},
    {ROW_INTERRUPTED_MAX, FIELD_INTERRUPTED_MAX, HOW_MAX},
    {ROW_HANDLER_P50, FIELD_HANDLER_P50, HOW_MEDIAN},
    {ROW_HANDLER_P99, FIELD_HANDLER_P99, HOW_MEDIAN},
    {ROW_HANDLER_MAX, FIELD_HANDLER_MAX, HOW_MAX},
    {ROW_DELIVERY_P50, FIELD_DELIVERY_P50, HOW_MEDIAN},
    {ROW_DELIVERY_P99, FIELD_DELIVERY_P99, HOW_MEDIAN},
    {ROW_DELIVERY_MAX, FIELD_DELIVERY_MAX, HOW_MAX},
    {ROW_EINTR_SEEN, FIELD_HELPER_EINTR, HOW_SUM},
    {ROW_EINTR_HIDDEN, FIELD_EINTR_HIDDEN, HOW_SUM},
};

/* What one column is made of. */
struct side {
    const struct comparewindow *windows;
    size_t count;
    enum comparekind kind;
    double *values; /* room for `count` */
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* NAN without values; a value that is unknown in one window does not count. */
static double over(double *values, size_t count, enum how how)
{
    double result = 0;
    if (count == 0)
        return NAN;
    if (how == HOW_MEDIAN) {
        qsort(values, count, sizeof(*values), compare_doubles);
        return (values[(count - 1) / 2] + values[count / 2]) / 2;
    }
    for (size_t i = 0; i < count; i++)
        result = how == HOW_SUM ? result + values[i] : fmax(result, values[i]);
    return result;
}

static double field_over(const struct side *side, enum comparefield field, enum how how)
{
    size_t known = 0;
    for (size_t i = 0; i < side->count; i++)
        if (comparewindow_has_result(&side->windows[i], side->kind) && !isnan(side->windows[i].stats.fields[field]))
            side->values[known++] = side->windows[i].stats.fields[field];
    return over(side->values, known, how);
}

static double mean_of(const struct side *side, double (*get)(const struct comparewindow *window, const void *context),
                      const void *context)
{
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < side->count; i++) {
        double value = comparewindow_has_result(&side->windows[i], side->kind) ? get(&side->windows[i], context) : NAN;
        if (isnan(value))
            continue;
        sum += value;
        known++;
    }
    return known ? sum / (double)known : NAN;
}

static double get_target_cpu(const struct comparewindow *window, const void *context)
{
    (void)context;
    return window->target_cpu;
}

static double get_engine_cpu(const struct comparewindow *window, const void *context)
{
    (void)context;
    return window->sampler_cpu_ns;
}

static double get_naming_cpu(const struct comparewindow *window, const void *context)
{
    (void)context;
    return window->stats.fields[FIELD_SYMBOL_NS];
}

static double get_work(const struct comparewindow *window, const void *context)
{
    switch (*(const enum worksource *)context) {
    case WORK_COMMAND:
        return window->work;
    case WORK_CALLS:
        return window->calls;
    default:
        return NAN;
    }
}

/* ---- work ---- */

/* Calls are a sign of work only where there are many, always. */
#define CALLS_PER_SECOND_MIN 100

static enum worksource work_source(const struct comparerun *run, const struct comparewindow *windows, size_t count)
{
    bool has_calls = false;
    if (run->options->compare.work_command)
        return WORK_COMMAND;
    for (size_t i = 0; i < count; i++) {
        if (windows[i].kind != COMPARE_NOTHING || isnan(windows[i].calls))
            continue;
        if (windows[i].calls < CALLS_PER_SECOND_MIN)
            return WORK_UNKNOWN;
        has_calls = true;
    }
    return has_calls ? WORK_CALLS : WORK_UNKNOWN;
}

static int add_slowdown(const struct side *side, enum worksource source, struct comparecolumn *column)
{
    struct pairedrate *rates = calloc(side->count + 1, sizeof(*rates));
    if (!rates)
        return -ENOMEM;
    for (size_t i = 0; i < side->count; i++) {
        const struct comparewindow *window = &side->windows[i];
        double work = window->refusal ? NAN : get_work(window, &source);
        rates[i].plain = window->kind == COMPARE_NOTHING ? work : NAN;
        rates[i].measured = window->kind == side->kind ? work : NAN;
    }
    struct pairedratio ratio = pairedratio_of(rates, side->count);
    free(rates);
    column->rows[ROW_SLOWDOWN] = 100 * (1 - ratio.ratio);
    column->rows[ROW_SLOWDOWN_LOW] = 100 * (1 - ratio.high);
    column->rows[ROW_SLOWDOWN_HIGH] = 100 * (1 - ratio.low);
    return 0;
}

/* ---- stacks ---- */

/* By depth, samples: mean, median and most. */
static int add_depths(const struct comparerun *run, const double *pooled, struct comparecolumn *column)
{
    double *samples = calloc(STACK_DEPTH_MAX + 1, sizeof(*samples));
    double total = 0;
    double sum = 0;
    double stacks = 0;
    if (!samples)
        return -ENOMEM;
    for (uint32_t i = 0; i < run->stacks.count; i++) {
        size_t depth = pooled[i] > 0 ? stackcounts_depth(strings_get(&run->stacks, i)) : 0;
        stacks += pooled[i] > 0;
        if (depth == 0)
            continue;
        samples[depth] += pooled[i];
        total += pooled[i];
        sum += pooled[i] * (double)depth;
    }
    column->rows[ROW_STACKS] = stacks;
    double below = 0;
    for (size_t depth = 1; depth <= STACK_DEPTH_MAX && total > 0; depth++) {
        if (samples[depth] > 0)
            column->rows[ROW_DEPTH_MAX] = (double)depth;
        if (below < total / 2 && below + samples[depth] >= total / 2)
            column->rows[ROW_DEPTH_P50] = (double)depth;
        below += samples[depth];
    }
    if (total > 0)
        column->rows[ROW_DEPTH_MEAN] = sum / total;
    free(samples);
    return 0;
}

static void add_causes(const struct side *side, struct comparecolumn *column)
{
    for (size_t i = 0; i < side->count; i++) {
        const struct comparestats *stats = &side->windows[i].stats;
        if (!comparewindow_has_result(&side->windows[i], side->kind) || !stats->has_failed)
            continue;
        column->stats.has_failed = true;
        for (size_t j = 0; j < stats->cause_count; j++)
            comparestats_add_cause(&column->stats, stats->causes[j].name, stats->causes[j].samples);
    }
    if (!column->stats.has_failed)
        return;
    column->rows[ROW_FAILED] = 0;
    for (size_t j = 0; j < column->stats.cause_count; j++)
        column->rows[ROW_FAILED] += column->stats.causes[j].samples;
}

/* The windows of one kind that have a profile, as others take them; `ret_list` has room for all. */
static struct windowset set_of(const struct comparewindow *windows, size_t count, enum comparekind kind,
                               const struct stackcounts **ret_list)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (comparewindow_has_result(&windows[i], kind))
            ret_list[found++] = &windows[i].stacks;
    return (struct windowset){.windows = ret_list, .count = found};
}

static int add_column(const struct comparerun *run, const struct side *side, enum worksource source,
                      const double *pooled, struct comparecolumn *column)
{
    double *rows = column->rows;
    comparestats_init(&column->stats);
    for (int i = 0; i < ROW_COUNT; i++)
        rows[i] = NAN;
    rows[ROW_WINDOWS] = 0;
    rows[ROW_SECONDS] = 0;
    for (size_t i = 0; i < side->count; i++) {
        const struct comparewindow *window = &side->windows[i];
        if (window->kind == side->kind && window->refusal)
            column->refusal = window->refusal;
        if (!comparewindow_has_result(window, side->kind))
            continue;
        rows[ROW_WINDOWS]++;
        rows[ROW_SECONDS] += isnan(window->seconds) ? 0 : window->seconds;
    }
    if (rows[ROW_WINDOWS] == 0)
        return 0;
    rows[ROW_TARGET_CPU] = mean_of(side, get_target_cpu, NULL);
    rows[ROW_WORK] = mean_of(side, get_work, &source);
    if (side->kind == COMPARE_NOTHING)
        return 0;
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        rows[counters[i].row] = field_over(side, counters[i].field, counters[i].how);
    if (side->kind == COMPARE_OUTSIDE)
        rows[ROW_EINTR_SEEN] = 0; /* what its stops would have caused is hidden before the thread goes on */
    rows[ROW_ENGINE_CPU] = mean_of(side, get_engine_cpu, NULL);
    rows[ROW_NAMING_CPU] = mean_of(side, get_naming_cpu, NULL);
    add_causes(side, column);
    int error = add_slowdown(side, source, column);
    return error ? error : add_depths(run, pooled, column);
}

/* ---- hottest ---- */

static double total_of(const double *counts, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += counts[i];
    return total;
}

static void add_hottest(struct comparesummary *summary, const struct comparerun *run, const double *outside,
                        const double *inside)
{
    size_t count = run->stacks.count;
    double totals[2] = {total_of(outside, count), total_of(inside, count)};
    double heats[HOTTEST];
    for (uint32_t i = 0; i < count; i++) {
        double shares[2] = {totals[0] > 0 ? outside[i] / totals[0] : NAN, totals[1] > 0 ? inside[i] / totals[1] : NAN};
        double heat = (isnan(shares[0]) ? 0 : shares[0]) + (isnan(shares[1]) ? 0 : shares[1]);
        size_t at = summary->hot_count;
        while (at > 0 && heat > heats[at - 1])
            at--;
        if (heat == 0 || at == HOTTEST)
            continue;
        summary->hot_count += summary->hot_count < HOTTEST;
        for (size_t j = summary->hot_count - 1; j > at; j--) {
            heats[j] = heats[j - 1];
            summary->hottest[j] = summary->hottest[j - 1];
        }
        heats[at] = heat;
        summary->hottest[at] =
            (struct comparehot){.stack = strings_get(&run->stacks, i), .shares = {shares[0], shares[1], NAN, NAN}};
    }
}

/* ---- the whole ---- */

static int make(struct comparerun *run, const struct comparewindow *windows, size_t count, double *values,
                double *const *pooled, const struct stackcounts **lists, struct comparesummary *summary)
{
    int error = 0;
    summary->work = work_source(run, windows, count);
    for (int kind = 0; kind < COMPARE_KINDS && !error; kind++) {
        struct side side = {.windows = windows, .count = count, .kind = (enum comparekind)kind, .values = values};
        struct windowset set = set_of(windows, count, (enum comparekind)kind, lists);
        windowset_pool(&set, run->stacks.count, pooled[kind]);
        error = add_column(run, &side, summary->work, pooled[kind], &summary->columns[kind]);
    }
    if (error)
        return error;
    add_hottest(summary, run, pooled[COMPARE_OUTSIDE], pooled[COMPARE_INSIDE]);
    error = comparedistance_add(summary, run, windows, count, COMPARE_INSIDE);
    return error ? error : comparedistance_add(summary, run, windows, count, COMPARE_PERF);
}

int comparesummary_make(struct comparerun *run, const struct comparewindow *windows, size_t count,
                        struct comparesummary *ret_summary)
{
    size_t stack_count = run->stacks.count;
    double *memory = calloc(count + COMPARE_KINDS * (stack_count + 1), sizeof(*memory));
    const struct stackcounts **lists = calloc(count + 1, sizeof(*lists));
    double *pooled[COMPARE_KINDS];
    int error = -ENOMEM;
    *ret_summary = (struct comparesummary){0};
    if (memory && lists) {
        for (size_t i = 0; i < COMPARE_KINDS; i++)
            pooled[i] = memory + count + i * (stack_count + 1);
        error = make(run, windows, count, memory, pooled, lists, ret_summary);
    }
    free(memory);
    free(lists);
    return error;
}
