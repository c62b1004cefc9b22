#include "sampler/profiledistance.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 500, ROUNDS_MIN = 100, HALVINGS = 8 };

/* Steps that all rounds of one kind may take together; with very many stacks there are fewer rounds. */
#define STEPS_MAX 2e6

/* With more stacks than this intervals would take minutes; what chance makes is computed all the same. */
enum { INTERVAL_STACKS_MAX = 50000 };

/* As much farther apart than what was seen as is tried. */
#define STRETCH_MAX 16

/* The level of intervals and verdicts. */
#define TAIL  0.025
#define LEVEL 0.05

struct work {
    const struct windowset *a;
    const struct windowset *b;
    size_t stack_count;
    struct rng *rng;
    double *pooled_a; /* what was seen */
    double *pooled_b;
    double total_a;
    double total_b;
    double *aim_a; /* shares that rounds are drawn around */
    double *aim_b;
    double *x; /* of a round */
    double *y;
    double *distances; /* of the rounds */
    size_t rounds;
};

static double sum(const double *values, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

double distance_tvd(const double *a, const double *b, size_t count)
{
    double total_a = sum(a, count);
    double total_b = sum(b, count);
    double apart = 0;
    if (!(total_a > 0) || !(total_b > 0))
        return NAN;
    for (size_t i = 0; i < count; i++)
        apart += fabs(a[i] / total_a - b[i] / total_b);
    return apart / 2;
}

static void add_window(const struct stackcounts *window, size_t stack_count, double *counts)
{
    for (size_t i = 0; i < window->count; i++)
        if (window->items[i].stack < stack_count)
            counts[window->items[i].stack] += (double)window->items[i].count;
}

void windowset_pool(const struct windowset *set, size_t stack_count, double *ret_counts)
{
    memset(ret_counts, 0, stack_count * sizeof(*ret_counts));
    for (size_t i = 0; i < set->count; i++)
        add_window(set->windows[i], stack_count, ret_counts);
}

void distance_hot(const double *a, const double *b, size_t count, double hot, size_t *ret_hot, size_t *ret_both)
{
    double total_a = sum(a, count);
    double total_b = sum(b, count);
    *ret_hot = 0;
    *ret_both = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_hot = (total_a > 0 && a[i] >= hot * total_a) || (total_b > 0 && b[i] >= hot * total_b);
        *ret_hot += is_hot;
        *ret_both += is_hot && a[i] > 0 && b[i] > 0;
    }
}

double distance_poisson(struct rng *rng, double mean)
{
    if (!(mean > 0))
        return 0;
    if (mean > 30) {
        double radius = sqrt(-2 * log(1 - rng_unit(rng)));
        double value = floor(mean + sqrt(mean) * radius * cos(2 * M_PI * rng_unit(rng)) + 0.5);
        return value > 0 ? value : 0;
    }
    double left = exp(-mean);
    double count = 0;
    for (double product = rng_unit(rng); product > left && count < 1000; product *= rng_unit(rng))
        count++;
    return count;
}

/* ---- rounds: each makes x and y ---- */

/*
 * Aims at profiles that differ as those that were seen do, but `stretch` times as much: at 0 both are what the two have
 * together, at 1 what was seen. Returns how far apart they are.
 */
static double aim(struct work *work, double stretch)
{
    for (size_t i = 0; i < work->stack_count; i++) {
        double same = (work->pooled_a[i] + work->pooled_b[i]) / (work->total_a + work->total_b);
        work->aim_a[i] = fmax(0, same + stretch * (work->pooled_a[i] / work->total_a - same));
        work->aim_b[i] = fmax(0, same + stretch * (work->pooled_b[i] / work->total_b - same));
    }
    double total_a = sum(work->aim_a, work->stack_count);
    double total_b = sum(work->aim_b, work->stack_count);
    for (size_t i = 0; i < work->stack_count; i++) {
        work->aim_a[i] /= total_a;
        work->aim_b[i] /= total_b;
    }
    return distance_tvd(work->aim_a, work->aim_b, work->stack_count);
}

static void draw_samples(struct work *work)
{
    for (size_t i = 0; i < work->stack_count; i++) {
        work->x[i] = distance_poisson(work->rng, work->aim_a[i] * work->total_a);
        work->y[i] = distance_poisson(work->rng, work->aim_b[i] * work->total_b);
    }
}

/* By how much windows of a side differ from the side, around the aim. Few windows lie closer to their own mean than to
 * the true one. */
static void draw_windows_of(struct work *work, const struct windowset *set, const double *pooled, double pooled_total,
                            const double *aimed, double *counts)
{
    memset(counts, 0, work->stack_count * sizeof(*counts));
    for (size_t i = 0; i < set->count; i++)
        add_window(set->windows[rng_below(work->rng, set->count)], work->stack_count, counts);
    double total = sum(counts, work->stack_count);
    double wider = sqrt((double)set->count / (double)(set->count - 1));
    for (size_t i = 0; i < work->stack_count; i++)
        counts[i] = fmax(0, total * aimed[i] + wider * (counts[i] - total * pooled[i] / pooled_total));
}

static void draw_windows(struct work *work)
{
    draw_windows_of(work, work->a, work->pooled_a, work->total_a, work->aim_a, work->x);
    draw_windows_of(work, work->b, work->pooled_b, work->total_b, work->aim_b, work->y);
}

/* Windows dealt out anew: of those that are left, each has the same chance to go to the side of `a`. */
static void deal_windows(struct work *work)
{
    size_t left = work->a->count + work->b->count;
    size_t wanted = work->a->count;
    memset(work->x, 0, work->stack_count * sizeof(*work->x));
    memset(work->y, 0, work->stack_count * sizeof(*work->y));
    for (size_t i = 0; left > 0; i++, left--) {
        bool to_a = rng_below(work->rng, left) < wanted;
        wanted -= to_a;
        add_window(i < work->a->count ? work->a->windows[i] : work->b->windows[i - work->a->count], work->stack_count,
                   to_a ? work->x : work->y);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The distances of all rounds, sorted; a round that left a side empty counts as none. */
static size_t run_rounds(struct work *work, void (*draw)(struct work *work))
{
    size_t count = 0;
    for (size_t i = 0; i < work->rounds; i++) {
        draw(work);
        double tvd = distance_tvd(work->x, work->y, work->stack_count);
        if (!isnan(tvd))
            work->distances[count++] = tvd;
    }
    qsort(work->distances, count, sizeof(*work->distances), compare_doubles);
    return count;
}

static double quantile(const double *sorted, size_t count, double part)
{
    return sorted[(size_t)(part * (double)(count - 1) + 0.5)];
}

static struct chance chance_of(struct work *work, double tvd, void (*draw)(struct work *work))
{
    size_t count = run_rounds(work, draw);
    size_t reached = 1; /* what was seen is one of the possible outcomes itself */
    if (count == 0)
        return (struct chance){NAN, NAN, NAN};
    for (size_t i = 0; i < count; i++)
        reached += work->distances[i] >= tvd - 1e-12;
    return (struct chance){.mean = sum(work->distances, count) / (double)count,
                           .p95 = quantile(work->distances, count, 1 - LEVEL),
                           .p = (double)reached / (double)(count + 1)};
}

/* The part of the rounds whose distance is at least, or at most, what was seen. The same random numbers for each
 * stretch, so that this grows, or falls, with it. */
static double part_beyond(struct work *work, double stretch, double tvd, bool at_least, void (*draw)(struct work *work))
{
    struct rng kept = *work->rng;
    size_t beyond = 0;
    aim(work, stretch);
    size_t count = run_rounds(work, draw);
    for (size_t i = 0; i < count; i++)
        beyond += at_least ? work->distances[i] >= tvd - 1e-12 : work->distances[i] <= tvd + 1e-12;
    *work->rng = kept;
    return count ? (double)beyond / (double)count : 1;
}

/* Between stretches of which the first says too little and the second enough. */
static double halve(struct work *work, double low, double high, double tvd, bool at_least,
                    void (*draw)(struct work *work))
{
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        bool beyond = part_beyond(work, middle, tvd, at_least, draw) > TAIL;
        if (beyond == at_least)
            high = middle;
        else
            low = middle;
    }
    return (low + high) / 2;
}

/*
 * The distances of which what was seen is no surprise: from the one that lets 1 round in 40 come so far, to the one
 * that lets 1 in 40 stay so near. A bootstrap around what was seen would be wrong here: chance only ever adds to a
 * distance, and most to small ones.
 */
static struct interval interval_of(struct work *work, double tvd, struct chance chance, void (*draw)(struct work *work))
{
    struct interval interval = {.low = 0, .high = 1};
    double near = 0;
    double far = 1;
    if (work->stack_count > INTERVAL_STACKS_MAX)
        return (struct interval){NAN, NAN};
    if (chance.p <= LEVEL && part_beyond(work, 0, tvd, true, draw) <= TAIL)
        interval.low = aim(work, halve(work, 0, 1, tvd, true, draw));
    bool is_rare = part_beyond(work, 0, tvd, false, draw) <= TAIL;
    while (!is_rare && far < STRETCH_MAX && part_beyond(work, far, tvd, false, draw) > TAIL) {
        near = far;
        far *= 2;
    }
    /* Nearer than equal ones mostly are, or next to nothing was seen that could be stretched: what chance may hide. */
    if (is_rare || far >= STRETCH_MAX)
        interval.high = fmax(is_rare ? tvd : aim(work, far), chance.p95);
    else
        interval.high = aim(work, halve(work, near, far, tvd, false, draw));
    interval.high = fmin(fmax(interval.high, interval.low), 1);
    return interval;
}

/* The least p that dealing out windows can show: the outcome that was seen and, with as many on both sides, its mirror
 * image, of all outcomes. */
static double least_p(size_t a, size_t b)
{
    double ways = 1;
    for (size_t i = 1; i <= b && ways < 1e9; i++)
        ways *= (double)(a + i) / (double)i;
    return (a == b ? 2 : 1) / ways;
}

static void judge(const struct work *work, struct distance *distance)
{
    if (distance->chance_samples.p > LEVEL)
        distance->verdict = VERDICT_SAME;
    else if (isnan(distance->chance_windows.p) || least_p(work->a->count, work->b->count) > LEVEL)
        distance->verdict = VERDICT_FEW_WINDOWS;
    else
        distance->verdict = distance->chance_windows.p <= LEVEL ? VERDICT_DIFFERENT : VERDICT_BY_SAMPLES;
}

static void compute(struct work *work, struct distance *ret_distance)
{
    windowset_pool(work->a, work->stack_count, work->pooled_a);
    windowset_pool(work->b, work->stack_count, work->pooled_b);
    double tvd = distance_tvd(work->pooled_a, work->pooled_b, work->stack_count);
    size_t least = work->a->count < work->b->count ? work->a->count : work->b->count;
    *ret_distance = (struct distance){.tvd = tvd,
                                      .by_samples = {NAN, NAN},
                                      .by_windows = {NAN, NAN},
                                      .chance_samples = {NAN, NAN, NAN},
                                      .chance_windows = {NAN, NAN, NAN}};
    if (isnan(tvd))
        return;
    work->total_a = sum(work->pooled_a, work->stack_count);
    work->total_b = sum(work->pooled_b, work->stack_count);
    aim(work, 0);
    ret_distance->chance_samples = chance_of(work, tvd, draw_samples);
    ret_distance->by_samples = interval_of(work, tvd, ret_distance->chance_samples, draw_samples);
    if (least >= 2)
        ret_distance->chance_windows = chance_of(work, tvd, deal_windows);
    if (least >= 3)
        ret_distance->by_windows = interval_of(work, tvd, ret_distance->chance_windows, draw_windows);
    judge(work, ret_distance);
}

int distance_between(const struct windowset *a, const struct windowset *b, size_t stack_count, struct rng *rng,
                     struct distance *ret_distance)
{
    double affordable = STEPS_MAX / (double)(stack_count + 1);
    struct work work = {.a = a, .b = b, .stack_count = stack_count, .rng = rng, .rounds = ROUNDS_MAX};
    if (affordable < ROUNDS_MAX)
        work.rounds = affordable < ROUNDS_MIN ? ROUNDS_MIN : (size_t)affordable;
    double *memory = calloc(6 * (stack_count + 1) + work.rounds, sizeof(*memory));
    if (!memory)
        return -ENOMEM;
    work.pooled_a = memory;
    work.pooled_b = work.pooled_a + stack_count + 1;
    work.x = work.pooled_b + stack_count + 1;
    work.y = work.x + stack_count + 1;
    work.aim_a = work.y + stack_count + 1;
    work.aim_b = work.aim_a + stack_count + 1;
    work.distances = work.aim_b + stack_count + 1;
    compute(&work, ret_distance);
    free(memory);
    return 0;
}
