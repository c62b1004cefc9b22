#include "sampler/comparetable.h"

#include "common/clock.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a number is shown: in units of `scale`, with so many decimals. In JSON it is what it is. */
static const struct {
    const char *label;
    const char *key;
    double scale;
    int decimals;
} rows[ROW_COUNT] = {
    [ROW_WINDOWS] = {"windows", "windows", 1, 0},
    [ROW_SECONDS] = {"seconds in them", "seconds", 1, 2},
    [ROW_SAMPLES] = {"samples", "samples", 1, 0},
    [ROW_TICKS_MISSED] = {"ticks missed", "ticks_missed", 1, 0},
    [ROW_LOST] = {"lost, ring was full", "lost", 1, 0},
    [ROW_NO_ROOM] = {"lost, no room", "no_room", 1, 0},
    [ROW_BLOCKED] = {"signal was blocked", "blocked", 1, 0},
    [ROW_TIMERS_FAILED] = {"timers that failed", "timers_failed", 1, 0},
    [ROW_WALKED] = {"walked in the target", "walked", 1, 0},
    [ROW_COPIED] = {"copied in the target", "copied", 1, 0},
    [ROW_TRUNCATED] = {"truncated", "truncated", 1, 0},
    [ROW_FAILED] = {"failed", "failed", 1, 0},
    [ROW_FAULTS] = {"faults caught", "faults", 1, 0},
    [ROW_STACKS] = {"different stacks", "stacks", 1, 0},
    [ROW_DEPTH_MEAN] = {"frames, mean", "depth_mean", 1, 1},
    [ROW_DEPTH_P50] = {"frames, p50", "depth_p50", 1, 0},
    [ROW_DEPTH_MAX] = {"frames, max", "depth_max", 1, 0},
    [ROW_STOPS] = {"stops", "stops", 1, 0},
    [ROW_HELD_P50] = {"stopped, us, p50", "held_ns_p50", 1e3, 1},
    [ROW_HELD_P99] = {"stopped, us, p99", "held_ns_p99", 1e3, 1},
    [ROW_HELD_MAX] = {"stopped, us, max", "held_ns_max", 1e3, 1},
    [ROW_INTERRUPTED] = {"interruptions", "interrupted", 1, 0},
    [ROW_INTERRUPTED_P50] = {"interrupted, us, p50", "interrupted_ns_p50", 1e3, 1},
    [ROW_INTERRUPTED_P99] = {"interrupted, us, p99", "interrupted_ns_p99", 1e3, 1},
    [ROW_INTERRUPTED_MAX] = {"interrupted, us, max", "interrupted_ns_max", 1e3, 1},
    [ROW_HANDLER_P50] = {"in the handler, us, p50", "handler_ns_p50", 1e3, 1},
    [ROW_HANDLER_P99] = {"in the handler, us, p99", "handler_ns_p99", 1e3, 1},
    [ROW_HANDLER_MAX] = {"in the handler, us, max", "handler_ns_max", 1e3, 1},
    [ROW_DELIVERY_P50] = {"delivery, us, p50", "delivery_ns_p50", 1e3, 1},
    [ROW_DELIVERY_P99] = {"delivery, us, p99", "delivery_ns_p99", 1e3, 1},
    [ROW_DELIVERY_MAX] = {"delivery, us, max", "delivery_ns_max", 1e3, 1},
    [ROW_EINTR_SEEN] = {"EINTR, target saw", "eintr_seen", 1, 0},
    [ROW_EINTR_HIDDEN] = {"EINTR, hidden from it", "eintr_hidden", 1, 0},
    [ROW_ENGINE_CPU] = {"CPU of it, ms a window", "engine_cpu_ns", 1e6, 1},
    [ROW_NAMING_CPU] = {"of that names, ms", "naming_cpu_ns", 1e6, 1},
    [ROW_TARGET_CPU] = {"target's CPUs", "target_cpus", 1, 3},
    [ROW_WORK] = {"target's work a second", "work_per_second", 1, 1},
    [ROW_SLOWDOWN] = {"slow-down, %", "slowdown_percent", 1, 2},
    [ROW_SLOWDOWN_LOW] = {"  95 % from", "slowdown_percent_low", 1, 2},
    [ROW_SLOWDOWN_HIGH] = {"  95 % to", "slowdown_percent_high", 1, 2},
};

static const char *const verdicts[] = {
    [VERDICT_NONE] = "unknown",
    [VERDICT_SAME] = "no more than chance",
    [VERDICT_DIFFERENT] = "different",
    [VERDICT_BY_SAMPLES] = "more than chance by samples; windows differ as much among themselves",
    [VERDICT_FEW_WINDOWS] = "more than chance by samples; too few windows to tell by them",
};

static const char *const work_sources[] = {
    [WORK_UNKNOWN] = "unknown", [WORK_COMMAND] = "--work", [WORK_CALLS] = "reads and writes"};

static bool is_shown(const struct comparetable *table, enum comparekind kind)
{
    return kind != COMPARE_PERF || table->run->options->compare.with_perf;
}

/* What is known in no column takes no line, but for the result. */
static bool is_known(const struct comparetable *table, int row)
{
    bool known = row == ROW_WORK || row == ROW_SLOWDOWN || row == ROW_SAMPLES || row == ROW_EINTR_SEEN;
    for (int kind = 0; kind < COMPARE_KINDS; kind++)
        known = known || !isnan(table->summary->columns[kind].rows[row]);
    return known;
}

/* ---- text ---- */

static void add_cell(struct strbuf *text, double value, double scale, int decimals)
{
    if (isnan(value))
        strbuf_addf(text, "%12s", "-");
    else
        strbuf_addf(text, "%12.*f", decimals, value / scale);
}

static void add_head(const struct comparetable *table, struct strbuf *text)
{
    const struct comparerun *run = table->run;
    struct strbuf line = {0};
    strbuf_addf(&line, "%d (%s), %s mode, %u Hz, windows of %.2f s", (int)run->pid, table->target,
                run->options->mode == MODE_WALL ? "wall" : "cpu", run->options->rate_hz,
                (double)run->window_ns / (double)NS_PER_SEC);
    strbuf_make_line(&line);
    strbuf_adds(text, line.data ? line.data : "");
    strbuf_addf(text, "\n%s%-26s",
                run->target_ended  ? "the target ended before all windows were done\n"
                : run->interrupted ? "ended by a signal before all windows were done\n"
                                   : "",
                "");
    strbuf_deinit(&line);
    for (int kind = 0; kind < COMPARE_KINDS; kind++)
        if (is_shown(table, (enum comparekind)kind))
            strbuf_addf(text, "%12s", comparekind_name((enum comparekind)kind));
    strbuf_adds(text, "\n");
}

static void add_rows(const struct comparetable *table, struct strbuf *text)
{
    for (int row = 0; row < ROW_COUNT; row++) {
        if (!is_known(table, row))
            continue;
        strbuf_addf(text, "%-26s", rows[row].label);
        for (int kind = 0; kind < COMPARE_KINDS; kind++)
            if (is_shown(table, (enum comparekind)kind))
                add_cell(text, table->summary->columns[kind].rows[row], rows[row].scale, rows[row].decimals);
        strbuf_adds(text, "\n");
    }
}

static void add_notes(const struct comparetable *table, struct strbuf *text)
{
    const struct comparesummary *summary = table->summary;
    if (summary->work == WORK_CALLS)
        strbuf_adds(text, "work: calls of the target that read or write (--work COMMAND counts better)\n");
    else if (summary->work == WORK_UNKNOWN)
        strbuf_adds(text, "work: unknown (--work COMMAND counts it)\n");
    for (int kind = 0; kind < COMPARE_KINDS; kind++) {
        const struct comparecolumn *column = &summary->columns[kind];
        if (column->refusal)
            strbuf_addf(text, "%s: %s\n", comparekind_name((enum comparekind)kind), column->refusal);
        if (column->stats.cause_count == 0)
            continue;
        strbuf_addf(text, "%s, failed by cause:", comparekind_name((enum comparekind)kind));
        for (size_t i = 0; i < column->stats.cause_count; i++)
            strbuf_addf(text, "%s %s %.0f", i ? "," : "", column->stats.causes[i].name,
                        column->stats.causes[i].samples);
        strbuf_adds(text, "\n");
    }
}

static void add_interval(struct strbuf *text, const char *by, struct interval interval, struct chance chance)
{
    if (isnan(chance.p)) {
        strbuf_addf(text, "  by %s: too few\n", by);
        return;
    }
    strbuf_addf(text, "  by %s: ", by);
    if (!isnan(interval.low))
        strbuf_addf(text, "95 %% %.2f to %.2f %%; ", 100 * interval.low, 100 * interval.high);
    strbuf_addf(text, "chance alone makes %.2f %%, in 95 of 100 cases at most %.2f %%; p = %.3f\n", 100 * chance.mean,
                100 * chance.p95, chance.p);
}

static void add_distance(struct strbuf *text, const char *what, const struct distance *distance)
{
    strbuf_addf(text, "%s: %.2f %% of the samples are elsewhere: %s\n", what, 100 * distance->tvd,
                verdicts[distance->verdict]);
    add_interval(text, "samples", distance->by_samples, distance->chance_samples);
    add_interval(text, "windows", distance->by_windows, distance->chance_windows);
}

static void add_pairs(const struct comparetable *table, struct strbuf *text)
{
    for (size_t i = 0; i < table->summary->pair_count; i++) {
        const struct comparepair *pair = &table->summary->pairs[i];
        strbuf_addf(text, "\n%s and %s, total variation distance", comparekind_name(pair->a),
                    comparekind_name(pair->b));
        if (isnan(pair->distance.tvd)) {
            strbuf_adds(text, ": no samples on one side\n");
            continue;
        }
        strbuf_adds(text, "\n");
        add_distance(text, "whole stacks", &pair->distance);
        strbuf_addf(text, "  with 1 %% or more on a side: %zu, of them on both sides: %zu\n", pair->hot,
                    pair->hot_in_both);
        add_distance(text, "innermost functions", &pair->innermost);
    }
}

/* Not in the middle of a character. */
static size_t cut(const char *text, size_t size)
{
    while (size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--;
    return size;
}

/* The thread's name and the innermost frames that fit; of a name that is too long its beginning. */
static void add_stack(struct strbuf *text, const char *stack)
{
    enum { WIDTH = 80, THREAD_WIDTH = 32 };
    size_t size = strlen(stack);
    if (size <= WIDTH) {
        strbuf_adds(text, stack);
        return;
    }
    size_t thread = strcspn(stack, ";");
    const char *rest = strchr(stack + size - WIDTH, ';');
    strbuf_add(text, stack, thread <= THREAD_WIDTH ? thread : cut(stack, THREAD_WIDTH));
    strbuf_adds(text, ";...");
    if (!rest)
        rest = strrchr(stack, ';');
    if (!rest)
        return;
    bool fits = strlen(rest) <= WIDTH;
    strbuf_add(text, rest, fits ? strlen(rest) : cut(rest, WIDTH));
    strbuf_adds(text, fits ? "" : "...");
}

static void add_hottest(const struct comparetable *table, struct strbuf *text)
{
    const struct comparesummary *summary = table->summary;
    if (summary->hot_count == 0)
        return;
    strbuf_adds(text, "\nhottest stacks, %\n");
    for (int kind = 0; kind < COMPARE_NOTHING; kind++)
        if (is_shown(table, (enum comparekind)kind))
            strbuf_addf(text, "%9s", comparekind_name((enum comparekind)kind));
    strbuf_adds(text, "\n");
    for (size_t i = 0; i < summary->hot_count; i++) {
        for (int kind = 0; kind < COMPARE_NOTHING; kind++) {
            double share = summary->hottest[i].shares[kind];
            if (is_shown(table, (enum comparekind)kind) && isnan(share))
                strbuf_addf(text, "%9s", "-");
            else if (is_shown(table, (enum comparekind)kind))
                strbuf_addf(text, "%9.2f", 100 * share);
        }
        strbuf_adds(text, "  ");
        add_stack(text, summary->hottest[i].stack);
        strbuf_adds(text, "\n");
    }
}

void comparetable_text(const struct comparetable *table, struct strbuf *ret_text)
{
    add_head(table, ret_text);
    add_rows(table, ret_text);
    add_notes(table, ret_text);
    add_pairs(table, ret_text);
    add_hottest(table, ret_text);
}

/* ---- JSON ---- */

static json_t *number(double value)
{
    if (!isfinite(value))
        return json_null();
    return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value) : json_real(value);
}

/* Names of threads and functions may hold any bytes. */
static json_t *text_of(const char *text)
{
    json_t *string = json_string(text);
    if (string)
        return string;
    struct strbuf ascii = {0};
    for (; *text; text++)
        strbuf_add(&ascii, (unsigned char)*text < 0x80 ? text : "?", 1);
    string = json_string(ascii.data ? ascii.data : "");
    strbuf_deinit(&ascii);
    return string;
}

static json_t *column_json(const struct comparecolumn *column)
{
    json_t *object = json_object();
    json_t *causes = json_object();
    for (int row = 0; row < ROW_COUNT; row++)
        json_object_set_new(object, rows[row].key, number(column->rows[row]));
    for (size_t i = 0; i < column->stats.cause_count; i++)
        json_object_set_new(causes, column->stats.causes[i].name, number(column->stats.causes[i].samples));
    json_object_set_new(object, "failed_by", causes);
    json_object_set_new(object, "refused", column->refusal ? text_of(column->refusal) : json_null());
    return object;
}

static json_t *chance_json(struct interval interval, struct chance chance)
{
    json_t *object = json_object();
    json_object_set_new(object, "low", number(interval.low));
    json_object_set_new(object, "high", number(interval.high));
    json_object_set_new(object, "chance_mean", number(chance.mean));
    json_object_set_new(object, "chance_p95", number(chance.p95));
    json_object_set_new(object, "p", number(chance.p));
    return object;
}

static json_t *distance_json(const struct distance *distance)
{
    json_t *object = json_object();
    json_object_set_new(object, "tvd", number(distance->tvd));
    json_object_set_new(object, "verdict", json_string(verdicts[distance->verdict]));
    json_object_set_new(object, "by_samples", chance_json(distance->by_samples, distance->chance_samples));
    json_object_set_new(object, "by_windows", chance_json(distance->by_windows, distance->chance_windows));
    return object;
}

static json_t *pair_json(const struct comparepair *pair)
{
    json_t *object = json_object();
    json_object_set_new(object, "a", json_string(comparekind_name(pair->a)));
    json_object_set_new(object, "b", json_string(comparekind_name(pair->b)));
    json_object_set_new(object, "stacks", distance_json(&pair->distance));
    json_object_set_new(object, "innermost", distance_json(&pair->innermost));
    json_object_set_new(object, "hot", json_integer((json_int_t)pair->hot));
    json_object_set_new(object, "hot_in_both", json_integer((json_int_t)pair->hot_in_both));
    return object;
}

static json_t *hot_json(const struct comparetable *table, const struct comparehot *hot)
{
    json_t *object = json_object();
    json_object_set_new(object, "stack", text_of(hot->stack));
    for (int kind = 0; kind < COMPARE_NOTHING; kind++)
        if (is_shown(table, (enum comparekind)kind))
            json_object_set_new(object, comparekind_name((enum comparekind)kind), number(hot->shares[kind]));
    return object;
}

static json_t *window_json(const struct comparewindow *window, enum worksource work)
{
    json_t *object = json_object();
    double rate = work == WORK_COMMAND ? window->work : work == WORK_CALLS ? window->calls : NAN;
    json_object_set_new(object, "kind", json_string(comparekind_name(window->kind)));
    json_object_set_new(object, "seconds", number(window->seconds));
    json_object_set_new(object, "samples", number(window->stats.fields[FIELD_SAMPLES]));
    json_object_set_new(object, "profile_total",
                        window->kind == COMPARE_NOTHING ? json_null() : number((double)window->stacks.total));
    json_object_set_new(object, "work_per_second", number(rate));
    json_object_set_new(object, "target_cpus", number(window->target_cpu));
    json_object_set_new(object, "engine_cpu_ns", number(window->sampler_cpu_ns));
    json_object_set_new(object, "refused", window->refusal ? text_of(window->refusal) : json_null());
    return object;
}

static json_t *whole_json(const struct comparetable *table)
{
    const struct comparerun *run = table->run;
    const struct comparesummary *summary = table->summary;
    json_t *root = json_object();
    json_t *columns = json_object();
    json_t *pairs = json_array();
    json_t *hottest = json_array();
    json_t *windows = json_array();
    json_object_set_new(root, "pid", json_integer(run->pid));
    json_object_set_new(root, "name", text_of(table->target));
    json_object_set_new(root, "mode", json_string(run->options->mode == MODE_WALL ? "wall" : "cpu"));
    json_object_set_new(root, "rate_hz", json_integer(run->options->rate_hz));
    json_object_set_new(root, "window_s", number((double)run->window_ns / (double)NS_PER_SEC));
    json_object_set_new(root, "target_ended", json_boolean(run->target_ended));
    json_object_set_new(root, "interrupted", json_boolean(run->interrupted));
    json_object_set_new(root, "work", json_string(work_sources[summary->work]));
    for (int kind = 0; kind < COMPARE_KINDS; kind++)
        if (is_shown(table, (enum comparekind)kind))
            json_object_set_new(columns, comparekind_name((enum comparekind)kind),
                                column_json(&summary->columns[kind]));
    for (size_t i = 0; i < summary->pair_count; i++)
        json_array_append_new(pairs, pair_json(&summary->pairs[i]));
    for (size_t i = 0; i < summary->hot_count; i++)
        json_array_append_new(hottest, hot_json(table, &summary->hottest[i]));
    for (size_t i = 0; i < table->window_count; i++)
        json_array_append_new(windows, window_json(&table->windows[i], summary->work));
    json_object_set_new(root, "columns", columns);
    json_object_set_new(root, "distances", pairs);
    json_object_set_new(root, "hottest", hottest);
    json_object_set_new(root, "windows", windows);
    return root;
}

int comparetable_json(const struct comparetable *table, struct strbuf *ret_text)
{
    json_t *root = whole_json(table);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (!text)
        return -ENOMEM;
    strbuf_adds(ret_text, text);
    strbuf_adds(ret_text, "\n");
    free(text);
    return strbuf_error(ret_text);
}
