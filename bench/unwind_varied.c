#include "common/array.h"
#include "common/clock.h"
#include "common/hash.h"
#include "sampler/procfs.h"
#include "stop.h"
#include "target.h"
#include "unwind_bench.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { PERIOD_US = 700, PASSES = 4, REPETITIONS = 3, TABLE_SLOTS = 1 << 18, FAILURES_MAX = 1000 };

struct kept_stack {
    struct snapshot snapshot; /* its bytes are owned */
    struct address_map *map;  /* owned reference */
    uint64_t hash;            /* of the frames: what a walk has to give */
};

struct collection {
    struct target target;
    struct kept_stack *stacks; /* owned */
    size_t count;
    size_t capacity;
    uint64_t bytes;
    uint64_t frames;
    uint64_t seen[TABLE_SLOTS]; /* hashes, open addressing */
};

static uint64_t hash_frames(const struct stack *stack)
{
    uint64_t hash = stack->end + 1;
    for (size_t i = 0; i < stack->count; i++)
        hash = hash_pair(hash, stack->frames[i].avma);
    return hash ? hash : 1;
}

/* true when it is new. */
static bool note_hash(struct collection *collection, uint64_t hash)
{
    size_t slot = hash % TABLE_SLOTS;
    while (collection->seen[slot]) {
        if (collection->seen[slot] == hash)
            return false;
        slot = (slot + 1) % TABLE_SLOTS;
    }
    collection->seen[slot] = hash;
    return true;
}

/* Keeps what is needed to walk this stack again: no more of it than the walk used. */
static int keep(struct collection *collection)
{
    struct target *target = &collection->target;
    const struct memory_range *range = &target->snapshot.ranges[0];
    uint64_t hash = hash_frames(&target->stack);
    if (target->stack.end != STACK_COMPLETE || target->stack.top_avma <= range->avma || !note_hash(collection, hash))
        return 0;
    int error = array_room(&collection->stacks, &collection->capacity, collection->count + 1);
    size_t size = target->stack.top_avma - range->avma;
    uint8_t *bytes = error ? NULL : malloc(size);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, range->bytes, size);
    struct kept_stack *kept = &collection->stacks[collection->count++];
    *kept = (struct kept_stack){.snapshot = target->snapshot, .map = address_map_ref(target->map), .hash = hash};
    kept->snapshot.ranges[0].bytes = bytes;
    kept->snapshot.ranges[0].size = size;
    collection->bytes += size;
    collection->frames += target->stack.count;
    return 0;
}

static int collect_one(struct collection *collection, struct trace *trace)
{
    struct target *target = &collection->target;
    struct stop stop;
    bool code_changed;
    int error = stop_take(target->pid, &stop);
    if (error)
        return error;
    error = target_refresh(target, stop.tid, &code_changed);
    if (!error)
        error = target_copy(target, &stop);
    stop_release(&stop);
    if (!error)
        error = target_walk(target, trace);
    return error ? error : keep(collection);
}

static int collect(struct collection *collection, size_t wanted)
{
    struct trace trace;
    size_t failures = 0;
    int error = trace_init(&trace);
    while (!error && collection->count < wanted && failures < FAILURES_MAX) {
        clock_sleep_until(clock_now_ns() + PERIOD_US * NS_PER_US);
        int answer = collect_one(collection, &trace);
        if (answer == -ENOMEM)
            error = answer;
        else if (answer < 0 && (++failures, procfs_is_dead(collection->target.proc_fd)))
            break;
    }
    trace_deinit(&trace);
    return error;
}

/* ---- walking them again ---- */

struct replay {
    struct unwinder *unwinder;
    struct unwind_space *space;
    struct stack stack;
};

static int check(const struct collection *collection, struct replay *replay)
{
    for (size_t i = 0; i < collection->count; i++) {
        const struct kept_stack *kept = &collection->stacks[i];
        int error =
            unwind_walk(replay->unwinder, replay->space, &kept->map->code, &kept->snapshot, NULL, &replay->stack);
        if (error)
            return error;
        if (hash_frames(&replay->stack) != kept->hash) {
            fprintf(stderr, "unwind_bench: stack %zu gives other frames than when it was seen\n", i);
            return -EPROTO;
        }
    }
    return 0;
}

/*
 * A run unwinds a stack right after it was copied: its bytes are in a cache. Those of 10,000 kept ones are not. So they
 * are copied again, a few at a time, outside of the time that is taken; the last pass leaves that out.
 */
enum { BATCH = 4 };

struct batch {
    struct snapshot snapshots[BATCH];
    uint8_t *buffers[BATCH]; /* owned */
};

static void batch_copy(struct batch *batch, const struct kept_stack *stacks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        batch->snapshots[i] = stacks[i].snapshot;
        struct memory_range *range = &batch->snapshots[i].ranges[0];
        memcpy(batch->buffers[i], range->bytes, range->size);
        range->bytes = batch->buffers[i];
    }
}

static int walk_batch(struct replay *replay, const struct kept_stack *stacks, size_t count,
                      const struct snapshot *snapshots)
{
    int error = 0;
    for (size_t i = 0; i < count && !error; i++)
        error = unwind_walk(replay->unwinder, replay->space, &stacks[i].map->code,
                            snapshots ? &snapshots[i] : &stacks[i].snapshot, NULL, &replay->stack);
    return error;
}

static int time_pass(const struct collection *collection, struct replay *replay, struct batch *batch, double *ret_us)
{
    uint64_t ns = 0;
    int error = 0;
    for (size_t i = 0; i < collection->count && !error; i += BATCH) {
        const struct kept_stack *stacks = &collection->stacks[i];
        size_t count = collection->count - i < BATCH ? collection->count - i : BATCH;
        if (batch)
            batch_copy(batch, stacks, count);
        uint64_t start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
        error = walk_batch(replay, stacks, count, batch ? batch->snapshots : NULL);
        ns += clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
    }
    *ret_us = (double)ns / (double)collection->count / 1000.0;
    return error;
}

static int batch_init(struct batch *batch, const struct collection *collection)
{
    size_t most = 1;
    for (size_t i = 0; i < collection->count; i++)
        if (collection->stacks[i].snapshot.ranges[0].size > most)
            most = collection->stacks[i].snapshot.ranges[0].size;
    bool failed = false;
    for (size_t i = 0; i < BATCH; i++) {
        batch->buffers[i] = malloc(most);
        failed |= !batch->buffers[i];
    }
    return failed ? -ENOMEM : 0;
}

static void batch_deinit(struct batch *batch)
{
    for (size_t i = 0; i < BATCH; i++)
        free(batch->buffers[i]);
}

static int repeat(const struct collection *collection, struct batch *batch, double *ret_us)
{
    struct replay replay = {.unwinder = unwinder_new(UNWIND_AUTO, TRACE_DEPTH)};
    replay.space = replay.unwinder ? unwind_space_new(replay.unwinder) : NULL;
    int error = replay.space ? 0 : -ENOMEM;
    for (size_t pass = 0; pass < PASSES && !error; pass++) {
        error = time_pass(collection, &replay, pass < PASSES - 1 ? batch : NULL, &ret_us[pass]);
        if (pass == 0 && !error)
            bench_print_counters("counters_first", unwinder_counters(replay.unwinder));
    }
    if (!error)
        bench_print_counters("counters_all", unwinder_counters(replay.unwinder));
    if (!error)
        error = check(collection, &replay);
    stack_deinit(&replay.stack);
    if (replay.unwinder) {
        unwind_space_free(replay.space);
        unwinder_free(replay.unwinder);
    }
    return error;
}

static int replay_all(const struct collection *collection)
{
    double us[REPETITIONS][PASSES];
    printf("stacks %zu\nframes %.1f\nstack_bytes %.0f\n", collection->count,
           (double)collection->frames / (double)collection->count,
           (double)collection->bytes / (double)collection->count);
    struct batch batch;
    int error = batch_init(&batch, collection);
    for (size_t r = 0; r < REPETITIONS && !error; r++)
        error = repeat(collection, &batch, us[r]);
    batch_deinit(&batch);
    if (error)
        return error;
    printf("first");
    for (size_t r = 0; r < REPETITIONS; r++)
        printf(" %.3f", us[r][0]);
    printf("\nlater");
    for (size_t r = 0; r < REPETITIONS; r++)
        for (size_t pass = 1; pass < PASSES - 1; pass++)
            printf(" %.3f", us[r][pass]);
    printf("\nuncached");
    for (size_t r = 0; r < REPETITIONS; r++)
        printf(" %.3f", us[r][PASSES - 1]);
    printf("\n");
    return 0;
}

int bench_varied(char **program, size_t stacks)
{
    extern char **environ;
    pid_t pid;
    struct collection *collection = calloc(1, sizeof(*collection));
    int error = collection ? -posix_spawnp(&pid, program[0], NULL, NULL, program, environ) : -ENOMEM;
    if (error) {
        free(collection);
        return error;
    }
    error = stacks <= TABLE_SLOTS / 4 ? target_open(pid, UNWIND_AUTO, &collection->target) : -E2BIG;
    bool is_open = error == 0;
    if (!error)
        error = collect(collection, stacks);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (!error && collection->count == 0)
        error = -ENODATA;
    if (!error)
        error = replay_all(collection);
    for (size_t i = 0; i < collection->count; i++) {
        free((void *)(uintptr_t)collection->stacks[i].snapshot.ranges[0].bytes);
        address_map_unref(collection->stacks[i].map);
    }
    free(collection->stacks);
    if (is_open)
        target_close(&collection->target);
    free(collection);
    return error;
}
