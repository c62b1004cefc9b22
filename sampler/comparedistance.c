#include "sampler/comparedistance.h"

#include "sampler/perfscript.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How a stack is told when it is compared. */
typedef void (*telling)(const char *stack, struct strbuf *to);

static void tell_whole(const char *stack, struct strbuf *to)
{
    strbuf_adds(to, stack);
}

static void tell_innermost(const char *stack, struct strbuf *to)
{
    const char *innermost = strrchr(stack, ';');
    strbuf_add(to, stack, strcspn(stack, ";"));
    strbuf_adds(to, innermost ? innermost : "");
}

static void tell_innermost_likewise(const char *stack, struct strbuf *to)
{
    struct strbuf likewise = {0};
    perfscript_likewise(stack, &likewise);
    if (strbuf_error(&likewise))
        to->error = strbuf_error(&likewise);
    else
        tell_innermost(likewise.data ? likewise.data : "", to);
    strbuf_deinit(&likewise);
}

/* The windows of two kinds, their stacks told alike. */
struct alike {
    struct strings stacks;
    struct stackcounts *windows; /* owned, as many as there are windows */
    size_t count;
    const struct stackcounts **lists[2];
    struct windowset sets[2];
    double *pooled[2];
};

static void alike_deinit(struct alike *alike)
{
    for (size_t i = 0; alike->windows && i < alike->count; i++)
        stackcounts_deinit(&alike->windows[i]);
    free(alike->windows);
    strings_deinit(&alike->stacks);
    for (int i = 0; i < 2; i++) {
        free(alike->lists[i]);
        free(alike->pooled[i]);
    }
}

static int alike_add(struct alike *alike, const struct comparerun *run, telling tell, const struct stackcounts *from,
                     struct stackcounts *to)
{
    int error = 0;
    for (size_t i = 0; i < from->count && !error; i++) {
        struct strbuf text = {0};
        tell(strings_get(&run->stacks, from->items[i].stack), &text);
        error = strbuf_error(&text);
        if (!error)
            error = stackcounts_add(to, &alike->stacks, text.data ? text.data : "", from->items[i].count);
        strbuf_deinit(&text);
    }
    return error;
}

static int alike_make(struct alike *alike, const struct comparerun *run, const struct comparewindow *windows,
                      size_t count, const enum comparekind *kinds, telling tell)
{
    alike->count = count;
    alike->windows = calloc(count + 1, sizeof(*alike->windows));
    int error = alike->windows ? strings_init(&alike->stacks) : -ENOMEM;
    for (int side = 0; side < 2 && !error; side++) {
        alike->lists[side] = calloc(count + 1, sizeof(*alike->lists[side]));
        if (!alike->lists[side])
            return -ENOMEM;
        size_t found = 0;
        for (size_t i = 0; i < count && !error; i++) {
            /* One without samples says nothing of where they are. */
            if (!comparewindow_has_result(&windows[i], kinds[side]) || windows[i].stacks.total == 0)
                continue;
            error = alike_add(alike, run, tell, &windows[i].stacks, &alike->windows[i]);
            alike->lists[side][found++] = &alike->windows[i];
        }
        alike->sets[side] = (struct windowset){.windows = alike->lists[side], .count = found};
    }
    for (int side = 0; side < 2 && !error; side++) {
        alike->pooled[side] = calloc(alike->stacks.count + 1, sizeof(double));
        if (!alike->pooled[side])
            return -ENOMEM;
        windowset_pool(&alike->sets[side], alike->stacks.count, alike->pooled[side]);
    }
    return error;
}

static int alike_distance(const struct alike *alike, struct distance *ret_distance)
{
    struct rng rng = {.state = 1}; /* the same windows give the same table */
    return distance_between(&alike->sets[0], &alike->sets[1], alike->stacks.count, &rng, ret_distance);
}

static int add_innermost(const struct comparerun *run, const struct comparewindow *windows, size_t count, telling tell,
                         struct comparepair *pair)
{
    struct alike alike = {0};
    int error = alike_make(&alike, run, windows, count, (const enum comparekind[]){pair->a, pair->b}, tell);
    if (!error)
        error = alike_distance(&alike, &pair->innermost);
    alike_deinit(&alike);
    return error;
}

/* perf's share of a stack of ours, which it tells in its own way. */
static int add_perf_shares(struct comparesummary *summary, struct alike *alike)
{
    size_t known = alike->stacks.count;
    double total = 0;
    for (size_t i = 0; i < known; i++)
        total += alike->pooled[1][i];
    for (size_t i = 0; i < summary->hot_count && total > 0; i++) {
        struct strbuf text = {0};
        uint32_t number = 0;
        perfscript_likewise(summary->hottest[i].stack, &text);
        int error = strbuf_error(&text);
        if (!error)
            error = strings_add(&alike->stacks, text.data ? text.data : "", &number);
        strbuf_deinit(&text);
        if (error)
            return error;
        summary->hottest[i].shares[COMPARE_PERF] = number < known ? alike->pooled[1][number] / total : 0;
    }
    return 0;
}

static bool has_windows(const struct comparewindow *windows, size_t count, enum comparekind kind)
{
    for (size_t i = 0; i < count; i++)
        if (comparewindow_has_result(&windows[i], kind))
            return true;
    return false;
}

int comparedistance_add(struct comparesummary *summary, const struct comparerun *run,
                        const struct comparewindow *windows, size_t count, enum comparekind kind)
{
    bool is_perf = kind == COMPARE_PERF;
    struct comparepair *pair = &summary->pairs[summary->pair_count];
    struct alike alike = {0};
    *pair = (struct comparepair){.a = COMPARE_OUTSIDE, .b = kind};
    int error = alike_make(&alike, run, windows, count, (const enum comparekind[]){COMPARE_OUTSIDE, kind},
                           is_perf ? perfscript_likewise : tell_whole);
    if (!error && has_windows(windows, count, COMPARE_OUTSIDE) && has_windows(windows, count, kind)) {
        distance_hot(alike.pooled[0], alike.pooled[1], alike.stacks.count, HOT_SHARE, &pair->hot, &pair->hot_in_both);
        error = alike_distance(&alike, &pair->distance);
        if (!error)
            error = add_innermost(run, windows, count, is_perf ? tell_innermost_likewise : tell_innermost, pair);
        if (!error && is_perf)
            error = add_perf_shares(summary, &alike);
        summary->pair_count++;
    }
    alike_deinit(&alike);
    return error;
}
