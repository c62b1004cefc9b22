#include "tally.h"

#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tally_deinit(struct tally *tally)
{
    for (size_t i = 0; i < tally->entry_count; i++) {
        free(tally->entries[i].key);
        free(tally->entries[i].example);
    }
    *tally = (struct tally){0};
}

/* ---- keys ---- */

/* Modules are enough to say what somebody answered: offsets of callers differ from stop to stop. */
static void add_said(const struct comparison *comparison, const char *who, const struct trace *trace, size_t at,
                     struct strbuf *key)
{
    char place[128];
    if (at >= trace->count) {
        strbuf_addf(key, " %s=end:%s", who, trace->end);
        return;
    }
    target_place(comparison->target, trace->frames[at].avma, place, sizeof(place));
    char *plus = strrchr(place, '+');
    if (plus)
        *plus = '\0';
    strbuf_addf(key, " %s=%s", who, place);
}

static void make_key(const struct comparison *comparison, const char *kind, size_t at, struct strbuf *ret_key)
{
    char place[128] = "-";
    if (at > 0)
        target_place(comparison->target, comparison->ours->frames[at - 1].avma, place, sizeof(place));
    strbuf_addf(ret_key, "%s at %s:", kind, place);
    add_said(comparison, "ours", comparison->ours, at, ret_key);
    add_said(comparison, "libdwfl", comparison->peers[PEER_LIBDWFL], at, ret_key);
    add_said(comparison, "libunwind", comparison->peers[PEER_LIBUNWIND], at, ret_key);
}

static struct tally_entry *find_entry(struct tally *tally, const char *key)
{
    for (size_t i = 0; i < tally->entry_count; i++)
        if (strcmp(tally->entries[i].key, key) == 0)
            return &tally->entries[i];
    return NULL;
}

static int save(const struct tally *tally, const struct comparison *comparison, const char *kind, const char *key)
{
    char name[64];
    if (!tally->save_dir)
        return 0;
    snprintf(name, sizeof(name), "%03zu-%s.stop", tally->entry_count, kind);
    return fixture_write(comparison, tally->save_dir, name, key);
}

static int add_entry(struct tally *tally, const struct comparison *comparison, enum kind kind, size_t at)
{
    const char *name = kind == KIND_SAME ? "impossible" : kind_name(kind);
    struct strbuf key = {0};
    struct strbuf example = {0};
    make_key(comparison, name, at, &key);
    int error = strbuf_error(&key);
    struct tally_entry *entry = error ? NULL : find_entry(tally, key.data);
    if (entry) {
        entry->count++;
    } else if (!error && tally->entry_count == TALLY_KEYS) {
        tally->entries_lost++;
    } else if (!error) {
        fixture_example(comparison, at, &example);
        error = strbuf_error(&example);
        if (!error)
            error = save(tally, comparison, name, key.data);
        if (!error) {
            tally->entries[tally->entry_count++] =
                (struct tally_entry){.kind = kind, .count = 1, .key = key.data, .example = example.data};
            return 0;
        }
    }
    strbuf_deinit(&key);
    strbuf_deinit(&example);
    return error;
}

int tally_add(struct tally *tally, const struct comparison *comparison)
{
    const struct judgement *judgement = &comparison->judgement;
    int same = 0;
    tally->compared++;
    tally->frames += comparison->ours->count;
    tally->complete += comparison->ours->at_root;
    for (int p = 0; p < PEER_COUNT; p++) {
        tally->same[p] += judgement->is_same[p];
        tally->at_root[p] += judgement->at_root[p];
        same += judgement->is_same[p];
    }
    tally->same_both += same == PEER_COUNT;
    tally->same_neither += same == 0;
    tally->kinds[judgement->kind]++;
    tally->impossible += judgement->impossible;
    tally->prepared += judgement->prepared;
    int error = 0;
    if (judgement->kind == KIND_SAME) {
        tally->same_best++;
        tally->tails += judgement->used[judgement->best] < comparison->peers[judgement->best]->count;
    } else {
        error = add_entry(tally, comparison, judgement->kind, judgement->at);
    }
    if (judgement->impossible && !error)
        error = add_entry(tally, comparison, KIND_SAME, judgement->impossible_at);
    return error;
}

bool tally_add_reduced(struct tally *tally, const struct trace *ours, const struct trace *reduced, unsigned inferred)
{
    size_t common = trace_common(ours, ours->count, reduced, reduced->count);
    bool is_same = common == ours->count && common == reduced->count && ours->at_root == reduced->at_root;
    bool is_cut = !is_same && common == reduced->count && !reduced->at_root;
    tally->reduced_same += is_same;
    tally->reduced_inferred += is_same && inferred > 0;
    tally->reduced_cut += is_cut;
    tally->reduced_different += !is_same && !is_cut;
    return is_same || is_cut;
}

uint64_t tally_class(const struct tally *tally, enum kind_class class)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (kind_class((enum kind)kind) == class)
            sum += tally->kinds[kind];
    return sum;
}

/* ---- output ---- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static void add_share(struct strbuf *text, const char *what, uint64_t part, uint64_t whole)
{
    strbuf_addf(text, "  %-34s %8llu  %6.2f %%\n", what, (unsigned long long)part, percent(part, whole));
}

static void add_count(struct strbuf *text, const char *what, uint64_t count)
{
    strbuf_addf(text, "  %-34s %8llu\n", what, (unsigned long long)count);
}

static void add_class(const struct tally *tally, enum kind_class class, const char *what, struct strbuf *text)
{
    char label[48];
    add_share(text, what, tally_class(tally, class), tally->compared);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        if (kind_class((enum kind)kind) != class || !tally->kinds[kind])
            continue;
        snprintf(label, sizeof(label), "  %s", kind_name((enum kind)kind));
        add_share(text, label, tally->kinds[kind], tally->compared);
    }
}

void tally_table(const struct tally *tally, struct strbuf *ret_text)
{
    uint64_t all = tally->compared;
    add_count(ret_text, "stops", tally->stops);
    add_count(ret_text, "  of sleeping threads", tally->sleeping);
    add_count(ret_text, "  mappings moved, not judged", tally->moved);
    add_count(ret_text, "  no stack, not judged", tally->failed);
    add_count(ret_text, "compared", all);
    add_share(ret_text, "identical to the best", tally->same_best, all);
    add_share(ret_text, "  a tail of the best not counted", tally->tails, all);
    add_share(ret_text, "identical to libdwfl", tally->same[PEER_LIBDWFL], all);
    add_share(ret_text, "identical to libunwind", tally->same[PEER_LIBUNWIND], all);
    add_share(ret_text, "identical to both", tally->same_both, all);
    add_share(ret_text, "identical to neither", tally->same_neither, all);
    add_class(tally, CLASS_BETTER, "ours is better", ret_text);
    add_class(tally, CLASS_EXPLAINED, "explained", ret_text);
    add_class(tally, CLASS_UNEXPLAINED, "not explained", ret_text);
    add_count(ret_text, "impossible frames", tally->impossible);
    add_count(ret_text, "frames prepared by hand", tally->prepared);
    strbuf_addf(ret_text, "  %-34s %8.1f\n", "mean depth", all ? (double)tally->frames / (double)all : 0.0);
    add_share(ret_text, "complete", tally->complete, all);
    add_share(ret_text, "libdwfl at the root", tally->at_root[PEER_LIBDWFL], all);
    add_share(ret_text, "libunwind at the root", tally->at_root[PEER_LIBUNWIND], all);
    add_count(ret_text, "libunwind's cache was wrong", tally->libunwind_cache_wrong);
    add_share(ret_text, "same without stop's registers", tally->reduced_same, all);
    add_share(ret_text, "  frame pointer inferred", tally->reduced_inferred, all);
    add_share(ret_text, "  cut", tally->reduced_cut, all);
    add_share(ret_text, "  different", tally->reduced_different, all);
    for (size_t i = 0; i < tally->entry_count; i++)
        strbuf_addf(ret_text, "%llu times %s\n%s", (unsigned long long)tally->entries[i].count, tally->entries[i].key,
                    tally->entries[i].example);
    if (tally->entries_lost)
        strbuf_addf(ret_text, "%llu more, of other kinds\n", (unsigned long long)tally->entries_lost);
}

static void add_string(struct strbuf *text, const char *string)
{
    strbuf_adds(text, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\')
            strbuf_addf(text, "\\%c", *c);
        else if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            strbuf_addf(text, "\\u%04x", (unsigned)(unsigned char)*c);
        else
            strbuf_add(text, c, 1);
    }
    strbuf_adds(text, "\"");
}

static void add_number(struct strbuf *text, const char *name, uint64_t value)
{
    strbuf_addf(text, "%s\n  \"%s\": %llu", text->size > 1 ? "," : "", name, (unsigned long long)value);
}

static void add_kinds(const struct tally *tally, enum kind_class class, const char *name, struct strbuf *text)
{
    bool first = true;
    strbuf_addf(text, ",\n  \"%s\": {", name);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        if (kind_class((enum kind)kind) != class || !tally->kinds[kind])
            continue;
        strbuf_addf(text, "%s\"%s\": %llu", first ? "" : ", ", kind_name((enum kind)kind),
                    (unsigned long long)tally->kinds[kind]);
        first = false;
    }
    strbuf_adds(text, "}");
}

void tally_json(const struct tally *tally, struct strbuf *ret_text)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"stops", tally->stops},
        {"sleeping", tally->sleeping},
        {"moved", tally->moved},
        {"failed", tally->failed},
        {"compared", tally->compared},
        {"same_best", tally->same_best},
        {"tails", tally->tails},
        {"same_libdwfl", tally->same[PEER_LIBDWFL]},
        {"same_libunwind", tally->same[PEER_LIBUNWIND]},
        {"same_both", tally->same_both},
        {"same_neither", tally->same_neither},
        {"impossible", tally->impossible},
        {"prepared", tally->prepared},
        {"frames", tally->frames},
        {"complete", tally->complete},
        {"libdwfl_at_root", tally->at_root[PEER_LIBDWFL]},
        {"libunwind_at_root", tally->at_root[PEER_LIBUNWIND]},
        {"libunwind_cache_wrong", tally->libunwind_cache_wrong},
        {"reduced_same", tally->reduced_same},
        {"reduced_inferred", tally->reduced_inferred},
        {"reduced_cut", tally->reduced_cut},
        {"reduced_different", tally->reduced_different},
    };
    strbuf_adds(ret_text, "{");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        add_number(ret_text, numbers[i].name, numbers[i].value);
    add_kinds(tally, CLASS_BETTER, "better", ret_text);
    add_kinds(tally, CLASS_EXPLAINED, "explained", ret_text);
    add_kinds(tally, CLASS_UNEXPLAINED, "unexplained", ret_text);
    strbuf_adds(ret_text, ",\n  \"differences\": [");
    for (size_t i = 0; i < tally->entry_count; i++) {
        const struct tally_entry *entry = &tally->entries[i];
        strbuf_addf(ret_text, "%s\n    {\"kind\": \"%s\", \"count\": %llu, \"key\": ", i ? "," : "",
                    entry->kind == KIND_SAME ? "impossible" : kind_name(entry->kind), (unsigned long long)entry->count);
        add_string(ret_text, entry->key);
        strbuf_adds(ret_text, ", \"example\": ");
        add_string(ret_text, entry->example);
        strbuf_adds(ret_text, "}");
    }
    strbuf_addf(ret_text, "],\n  \"differences_lost\": %llu\n}\n", (unsigned long long)tally->entries_lost);
}
