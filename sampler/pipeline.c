#include "sampler/pipeline.h"

#include "common/clock.h"
#include "sampler/digest.h"
#include "sampler/snapfile.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Items wait so long, or until they are so many, or until so long after the unwinder learnt something. */
#define BATCH_NS    (50 * NS_PER_MS)
#define LEARNING_NS (200 * NS_PER_MS)
enum { BATCH_ITEMS = 32 };

enum {
    ITEM_LIMIT = 256,
    /* The bytes that all buffers together may have. At the limit buffers stay smaller than asked for, but not below the
       smallest. */
    BUFFER_LIMIT_BYTES = 256 << 20,
    SMALLEST_BUFFER_BYTES = 64 << 10
};

struct pipeline {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct item *free_items;
    struct item *first, *last;
    size_t item_count;
    size_t queued;
    bool is_urgent; /* of those queued, one is */
    bool may_work;  /* the unwinder is to empty the queue */
    uint64_t woken_ns;
    uint64_t learning_until_ns;
    size_t buffer_total;
    bool running; /* the thread is to be joined */
    bool stopping;
    int error;

    /* The unwinding thread's. */
    struct digest digest;
    struct snapfile *snapfile; /* borrowed; NULL: items are not saved */
};

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

/* Mutex held. */
static void wake_unwinder(struct pipeline *pipeline)
{
    pipeline->may_work = true;
    pthread_cond_broadcast(&pipeline->changed);
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
    certaincode_unref(item->certain);
    item->certain = NULL;
    thread_shared_unref(item->thread);
    item->map = NULL;
    item->thread = NULL;
    pthread_mutex_lock(&pipeline->mutex);
    item->next = pipeline->free_items;
    pipeline->free_items = item;
    pthread_mutex_unlock(&pipeline->mutex);
}

int pipeline_take(struct pipeline *pipeline, size_t buffer_bytes, struct item **ret_item)
{
    pthread_mutex_lock(&pipeline->mutex);
    struct item *item = find_item(pipeline);
    bool any = pipeline->item_count > 0;
    if (!item && pipeline->first)
        wake_unwinder(pipeline);
    pthread_mutex_unlock(&pipeline->mutex);
    if (!item)
        return any ? -EAGAIN : -ENOMEM;
    item->kind = ITEM_SAMPLE;
    item->failure = FAILURE_NONE;
    item->count = 1;
    item->ns = 0;
    item->is_urgent = false;
    item->time_ns = 0;
    item->range_count = 0;
    item->helper = NULL;
    item->is_doubtful = false;
    item->frame_count = 0;
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
    pipeline->queued++;
    pipeline->is_urgent |= item->is_urgent;
    pthread_mutex_unlock(&pipeline->mutex);
}

void pipeline_end_tick(struct pipeline *pipeline, uint64_t now_ns)
{
    pthread_mutex_lock(&pipeline->mutex);
    if (pipeline->first && (pipeline->is_urgent || pipeline->queued >= BATCH_ITEMS ||
                            now_ns < pipeline->learning_until_ns || now_ns - pipeline->woken_ns >= BATCH_NS)) {
        pipeline->woken_ns = now_ns;
        pipeline->is_urgent = false;
        wake_unwinder(pipeline);
    }
    pthread_mutex_unlock(&pipeline->mutex);
}

static struct item *next_item(struct pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->mutex);
    while (!pipeline->may_work && !pipeline->stopping)
        pthread_cond_wait(&pipeline->changed, &pipeline->mutex);
    struct item *item = pop(&pipeline->first);
    if (item)
        pipeline->queued--;
    if (!pipeline->first) {
        pipeline->last = NULL;
        pipeline->may_work = false;
    }
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

static int work(struct pipeline *pipeline, struct item *item)
{
    struct snapfile *snapfile = pipeline->snapfile;
    if (item->kind == ITEM_SPACE_END) {
        space_close(item->space);
        if (snapfile)
            snapfile_end_space(snapfile, item->space);
        return 0;
    }
    if (item->kind == ITEM_REPEAT) {
        if (snapfile)
            snapfile_repeat(snapfile, item);
        return digest_repeat(&pipeline->digest, item);
    }
    struct memory_reader target = {.read = read_target, .context = item->space};
    struct memory_reader reader = snapfile ? snapfile_reader(snapfile, item->space, &target) : target;
    enum failure failure = item->failure;
    int error = digest_add(&pipeline->digest, item, &reader);
    if (snapfile)
        snapfile_add(snapfile, item, failure);
    return error;
}

static void note_learning(struct pipeline *pipeline)
{
    if (!pipeline->digest.has_learnt)
        return;
    pipeline->digest.has_learnt = false;
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->learning_until_ns = clock_now_ns() + LEARNING_NS;
    pthread_mutex_unlock(&pipeline->mutex);
}

static void *unwind_loop(void *context)
{
    struct pipeline *pipeline = context;
    pthread_setname_np(pthread_self(), "unwind");
    struct item *item;
    while ((item = next_item(pipeline))) {
        int error = work(pipeline, item);
        if (error && !pipeline->error)
            pipeline->error = error;
        note_learning(pipeline);
        pipeline_give_back(pipeline, item);
    }
    digest_finish(&pipeline->digest, clock_read_ns(CLOCK_THREAD_CPUTIME_ID));
    return NULL;
}

/* ---- life ---- */

int pipeline_start(const struct options *options, struct profile *profile, struct snapfile *snapfile,
                   struct pipeline **ret_pipeline)
{
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    if (!pipeline)
        return -ENOMEM;
    pthread_mutex_init(&pipeline->mutex, NULL);
    pthread_cond_init(&pipeline->changed, NULL);
    pipeline->snapfile = snapfile;
    int error = digest_init(&pipeline->digest, options->unwind, options->max_depth, profile);
    if (!error)
        error = -pthread_create(&pipeline->thread, NULL, unwind_loop, pipeline);
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

const struct digest_counters *pipeline_counters(const struct pipeline *pipeline)
{
    return &pipeline->digest.counters;
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
        free(item->frames);
        free(item);
    }
    digest_deinit(&pipeline->digest);
    pthread_cond_destroy(&pipeline->changed);
    pthread_mutex_destroy(&pipeline->mutex);
    free(pipeline);
}
