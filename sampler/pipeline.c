#include "sampler/pipeline.h"

#include "common/array.h"
#include "common/clock.h"
#include "sampler/place.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ITEM_LIMIT = 256,
    /* The bytes that all buffers together may have. At the limit buffers stay smaller than asked for, but not below the
       smallest. */
    BUFFER_LIMIT_BYTES = 256 << 20,
    SMALLEST_BUFFER_BYTES = 64 << 10,
    /* What the copy has beyond what the last walk used, for calls that go deeper next time. */
    COPY_SLACK_BYTES = 16 << 10,
    COPY_LIMIT_BYTES = 16 << 20
};

struct pipeline {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct item *free_items;
    struct item *first, *last;
    size_t item_count;
    size_t buffer_total;
    bool running; /* the thread is to be joined */
    bool stopping;
    atomic_uint_fast64_t samples;
    int error;

    /* The unwinding thread's. */
    struct profile *profile;
    struct unwinder *unwinder;
    struct stack stack;
    uint32_t *frames;
    size_t frame_capacity;
    struct pipeline_counters counters;
};

const char *failure_name(enum failure failure)
{
    static const char *const names[FAILURE_COUNT] = {
        [FAILURE_NONE] = "none",
        [FAILURE_TIMEOUT] = "timeout",
        [FAILURE_UNINTERRUPTIBLE] = "uninterruptible",
        [FAILURE_NOT_ALLOWED] = "not_allowed",
        [FAILURE_TRACED] = "traced",
        [FAILURE_FOREIGN] = "foreign_abi",
        [FAILURE_EXEC] = "exec",
        [FAILURE_NO_MAPS] = "no_maps",
        [FAILURE_ERROR] = "error",
        [FAILURE_UNWIND] = "unwind",
    };
    return names[failure];
}

/* ---- queue ---- */

static struct item *pop(struct item **list)
{
    struct item *item = *list;
    if (item)
        *list = item->next;
    return item;
}

/* A free item, or a new one while there may be more. Mutex held. */
static struct item *find_item(struct pipeline *pipeline)
{
    struct item *item = pop(&pipeline->free_items);
    if (item || pipeline->item_count >= ITEM_LIMIT)
        return item;
    item = calloc(1, sizeof(*item));
    if (item)
        pipeline->item_count++;
    return item;
}

static bool grow_buffer(struct pipeline *pipeline, struct item *item, size_t bytes)
{
    pthread_mutex_lock(&pipeline->mutex);
    size_t others = pipeline->buffer_total - item->buffer_bytes;
    pthread_mutex_unlock(&pipeline->mutex);
    size_t left = others < BUFFER_LIMIT_BYTES ? BUFFER_LIMIT_BYTES - others : 0;
    if (bytes > left && left < SMALLEST_BUFFER_BYTES)
        left = SMALLEST_BUFFER_BYTES; /* a sample without any stack would help nobody */
    if (bytes > left)
        bytes = left;
    if (item->buffer_bytes >= bytes)
        return true;
    uint8_t *buffer = malloc(bytes);
    if (!buffer)
        return false;
    /* Touched now: a page fault between stop and release would be the target's time. */
    memset(buffer, 0, bytes);
    free(item->buffer);
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->buffer_total += bytes - item->buffer_bytes;
    pthread_mutex_unlock(&pipeline->mutex);
    item->buffer = buffer;
    item->buffer_bytes = bytes;
    return true;
}

void pipeline_give_back(struct pipeline *pipeline, struct item *item)
{
    address_map_unref(item->map);
    thread_shared_unref(item->thread);
    item->map = NULL;
    item->thread = NULL;
    pthread_mutex_lock(&pipeline->mutex);
    item->next = pipeline->free_items;
    pipeline->free_items = item;
    pthread_cond_broadcast(&pipeline->changed);
    pthread_mutex_unlock(&pipeline->mutex);
}

int pipeline_take(struct pipeline *pipeline, size_t buffer_bytes, struct item **ret_item)
{
    pthread_mutex_lock(&pipeline->mutex);
    struct item *item = find_item(pipeline);
    bool any = pipeline->item_count > 0;
    pthread_mutex_unlock(&pipeline->mutex);
    if (!item)
        return any ? -EAGAIN : -ENOMEM;
    item->kind = ITEM_SAMPLE;
    item->failure = FAILURE_NONE;
    item->count = 1;
    item->ns = 0;
    item->bytes = 0;
    item->space = NULL;
    if (!grow_buffer(pipeline, item, buffer_bytes)) {
        pipeline_give_back(pipeline, item);
        return -ENOMEM;
    }
    *ret_item = item;
    return 0;
}

void pipeline_put(struct pipeline *pipeline, struct item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&pipeline->mutex);
    if (pipeline->last)
        pipeline->last->next = item;
    else
        pipeline->first = item;
    pipeline->last = item;
    pthread_cond_broadcast(&pipeline->changed);
    pthread_mutex_unlock(&pipeline->mutex);
}

static struct item *next_item(struct pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    while (!pipeline->first && !pipeline->stopping)
        pthread_cond_wait(&pipeline->changed, &pipeline->mutex);
    struct item *item = pop(&pipeline->first);
    if (!pipeline->first)
        pipeline->last = NULL;
    pthread_mutex_unlock(&pipeline->mutex);
    return item;
}

/* ---- unwinding ---- */

static bool read_target(void *context, uint64_t avma, void *buffer, size_t size)
{
    const struct space *space = context;
    if (space->mem_fd < 0)
        return false;
    return pread(space->mem_fd, buffer, size, (off_t)avma) == (ssize_t)size;
}

static int find_thread(struct pipeline *pipeline, struct thread_shared *shared)
{
    if (shared->in_profile)
        return 0;
    struct profile_thread thread = {.pid = shared->pid, .tid = shared->tid};
    int error = profile_add_thread(pipeline->profile, &thread, &shared->profile_thread);
    shared->in_profile = error == 0;
    return error;
}

/* Sets what the next copy of this thread's stack should have. */
static void learn(struct thread_shared *thread, const struct stack *stack, const struct item *item)
{
    size_t now = thread->copy_bytes;
    size_t wanted = COPY_SLACK_BYTES;
    if (stack->top_avma > item->bytes_avma)
        wanted += stack->top_avma - item->bytes_avma;
    if (stack->end == STACK_CUT_COPY && wanted < 2 * item->bytes)
        wanted = 2 * item->bytes;
    if (wanted < now - now / 8) /* down slowly: the next deep call should not be cut */
        wanted = now - now / 8;
    thread->copy_bytes = wanted < COPY_LIMIT_BYTES ? wanted : COPY_LIMIT_BYTES;
}

static int add_frames(struct pipeline *pipeline, const struct item *item, uint32_t *ret_stack)
{
    const struct stack *stack = &pipeline->stack;
    int error = array_room(&pipeline->frames, &pipeline->frame_capacity, stack->count);
    for (size_t i = 0; i < stack->count && !error; i++) {
        struct place place = place_of_frame(item->space, item->map, &stack->frames[i]);
        if (!place.image && !place.space)
            item->space->maps_stale = true;
        else if (place.space)
            space_find_perfmap(item->space, item->thread->tid);
        error = profile_add_frame(pipeline->profile, &place, &pipeline->frames[i]);
    }
    return error ? error : profile_add_stack(pipeline->profile, pipeline->frames, stack->count, ret_stack);
}

static int unwind_item(struct pipeline *pipeline, struct item *item)
{
    struct space *space = item->space;
    if (!space->unwind)
        space->unwind = unwind_space_new(pipeline->unwinder);
    if (!space->unwind)
        return -ENOMEM;
    struct snapshot snapshot = {
        .registers = item->registers,
        .stack_start_avma = item->stack.start_avma,
        .stack_end_avma = item->stack.end_avma,
        .ranges = {{.avma = item->bytes_avma, .bytes = item->buffer, .size = item->bytes}},
        .range_count = item->bytes ? 1 : 0,
    };
    struct memory_reader reader = {.read = read_target, .context = space};
    return unwind_walk(pipeline->unwinder, space->unwind, &item->map->code, &snapshot, &reader, &pipeline->stack);
}

static int add_sample(struct pipeline *pipeline, struct item *item)
{
    struct pipeline_counters *counters = &pipeline->counters;
    struct profile_sample sample = {.kind = SAMPLE_FAILED, .count = item->count, .ns = item->ns};
    int error = find_thread(pipeline, item->thread);
    if (!error)
        error = strings_add(&pipeline->profile->strings, item->comm, &sample.thread_name);
    if (error)
        return error;
    sample.thread = item->thread->profile_thread;
    pipeline->profile->threads[sample.thread].name = sample.thread_name;
    if (item->failure == FAILURE_NONE) {
        error = unwind_item(pipeline, item);
        if (error == -EINVAL)
            item->failure = FAILURE_UNWIND;
        else if (error)
            return error;
    }
    if (item->failure == FAILURE_NONE) {
        sample.kind = pipeline->stack.end == STACK_COMPLETE ? SAMPLE_WHOLE : SAMPLE_TRUNCATED;
        counters->ends[pipeline->stack.end] += item->count;
        counters->frames += pipeline->stack.count;
        learn(item->thread, &pipeline->stack, item);
        error = add_frames(pipeline, item, &sample.stack);
    } else {
        counters->failed[item->failure] += item->count;
    }
    counters->samples += item->count;
    pipeline->samples += item->count;
    return error ? error : profile_add_sample(pipeline->profile, &sample);
}

static void *unwind_loop(void *context)
{
    struct pipeline *pipeline = context;
    pthread_setname_np(pthread_self(), "unwind");
    struct item *item;
    while ((item = next_item(pipeline))) {
        int error = 0;
        if (item->kind == ITEM_SPACE_END)
            space_close(item->space);
        else
            error = add_sample(pipeline, item);
        if (error && !pipeline->error)
            pipeline->error = error;
        pipeline_give_back(pipeline, item);
    }
    pipeline->counters.unwind_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    pipeline->counters.unwind = unwinder_counters(pipeline->unwinder);
    return NULL;
}

/* ---- life ---- */

int pipeline_start(const struct options *options, struct profile *profile, struct pipeline **ret_pipeline)
{
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (!pipeline)
        return -ENOMEM;
    pthread_mutex_init(&pipeline->mutex, NULL);
    pthread_cond_init(&pipeline->changed, NULL);
    pipeline->profile = profile;
    pipeline->unwinder = unwinder_new(options->unwind, options->max_depth);
    int error = pipeline->unwinder ? -pthread_create(&pipeline->thread, NULL, unwind_loop, pipeline) : -ENOMEM;
    if (error) {
        pipeline_free(pipeline);
        return error;
    }
    pipeline->running = true;
    *ret_pipeline = pipeline;
    return 0;
}

int pipeline_stop(struct pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->stopping = true;
    pthread_cond_broadcast(&pipeline->changed);
    pthread_mutex_unlock(&pipeline->mutex);
    pthread_join(pipeline->thread, NULL);
    pipeline->running = false;
    return pipeline->error;
}

const struct pipeline_counters *pipeline_counters(const struct pipeline *pipeline)
{
    return &pipeline->counters;
}

uint64_t pipeline_samples(struct pipeline *pipeline)
{
    return pipeline->samples;
}

void pipeline_free(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    if (pipeline->running)
        pipeline_stop(pipeline);
    struct item *item;
    while ((item = pop(&pipeline->free_items))) {
        free(item->buffer);
        free(item);
    }
    unwinder_free(pipeline->unwinder);
    stack_deinit(&pipeline->stack);
    free(pipeline->frames);
    pthread_cond_destroy(&pipeline->changed);
    pthread_mutex_destroy(&pipeline->mutex);
    free(pipeline);
}
