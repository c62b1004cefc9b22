#include "sampler/flight.h"

#include "common/clock.h"
#include "sampler/flightparts.h"

#include <errno.h>
#include <string.h>

/* The first samples of a thread: what the unwinder learns from them makes the next ones better. */
enum { URGENT_SAMPLES = 3 };

struct item *flights_take_item(struct flights *flights, size_t buffer_bytes)
{
    struct item *item;
    int error;
    while ((error = pipeline_take(flights->pipeline, buffer_bytes, &item)) == -EAGAIN)
        tracer_wait(flights->tracer, -1, clock_now_ns() + NS_PER_MS, false);
    if (error)
        flights->error = error;
    return error ? NULL : item;
}

/*
 * The time that this tick stands for: in wall mode, all since the thread's last one. In cpu mode the threads that were
 * sampled stand for those that were left out, too.
 */
static uint64_t take_ns(const struct flights *flights, struct thread *thread)
{
    const struct targets *targets = flights->targets;
    uint64_t since_ns = flights->is_wall ? thread->counted_wall_ns : targets->last_wall_ns;
    uint64_t ns = targets->wall_ns - since_ns;
    thread->counted_tick = targets->tick;
    thread->counted_wall_ns = targets->wall_ns;
    if (flights->is_wall)
        return ns;
    if (flights->left_out)
        ns = ns * flights->eligible / (flights->eligible - flights->left_out);
    return ns + thread->owed_ns;
}

/* The ticks that a sample stands for, whole ones: the fraction is left to chance. */
static uint64_t ticks_of_sample(struct flights *flights, const struct thread *thread)
{
    if (flights->is_wall)
        return flights->targets->tick > thread->counted_tick ? flights->targets->tick - thread->counted_tick : 1;
    uint64_t taken = flights->eligible - flights->left_out;
    if (!flights->left_out)
        return 1 + thread->owed_ticks;
    return flights->eligible / taken + (rng_below(&flights->rng, taken) < flights->eligible % taken) +
           thread->owed_ticks;
}

void flights_owe(struct thread *thread, uint64_t ticks, uint64_t ns)
{
    thread->owed_ticks = ticks;
    thread->owed_ns = ns;
}

void flights_owe_tick(struct flights *flights, struct thread *thread)
{
    flights_owe(thread, ticks_of_sample(flights, thread), take_ns(flights, thread));
}

struct item *flights_new_sample(struct flights *flights, struct thread *thread, size_t buffer_bytes)
{
    struct item *item = flights_take_item(flights, buffer_bytes);
    if (!item)
        return NULL;
    struct process *process = thread->process;
    item->thread = thread_shared_ref(thread->shared);
    memcpy(item->comm, thread->comm, sizeof(item->comm));
    item->space = process->space;
    item->map = process->map ? address_map_ref(process->map) : NULL;
    item->time_ns = flights->targets->ticked_ns;
    item->count = ticks_of_sample(flights, thread);
    item->ns = take_ns(flights, thread);
    flights_owe(thread, 0, 0);
    item->state = thread->state;
    item->call = -1;
    item->is_urgent = thread->samples < URGENT_SAMPLES;
    thread->is_left_out = false;
    thread->samples++;
    flights->samples += item->count;
    return item;
}

void flights_fail(struct flights *flights, struct thread *thread, enum failure failure)
{
    struct item *item = flights_new_sample(flights, thread, 0);
    if (!item)
        return;
    item->failure = failure;
    pipeline_put(flights->pipeline, item);
}

void flights_drop_sample(struct flights *flights, struct thread *thread, struct item *item, enum failure failure)
{
    if (failure == FAILURE_NONE) {
        if (thread)
            thread->samples--;
        flights->samples -= item->count; /* all the ticks that found it in flight */
        pipeline_give_back(flights->pipeline, item);
        return;
    }
    item->failure = failure;
    pipeline_put(flights->pipeline, item);
}

/* More ticks for the thread's last sample, up to this tick or the one before. */
static void repeat(struct flights *flights, struct thread *thread, bool with_this_tick)
{
    const struct targets *targets = flights->targets;
    uint64_t tick = with_this_tick ? targets->tick : targets->tick - 1;
    uint64_t wall_ns = with_this_tick ? targets->wall_ns : targets->last_wall_ns;
    if (tick <= thread->counted_tick)
        return;
    struct item *item = flights_take_item(flights, 0);
    if (!item)
        return;
    item->kind = ITEM_REPEAT;
    item->thread = thread_shared_ref(thread->shared);
    item->time_ns = with_this_tick ? targets->ticked_ns : targets->last_ticked_ns;
    item->count = tick - thread->counted_tick;
    flights->samples += item->count;
    item->ns = wall_ns - thread->counted_wall_ns;
    thread->counted_tick = tick;
    thread->counted_wall_ns = wall_ns;
    pipeline_put(flights->pipeline, item);
}

void flights_end_keep(struct flights *flights, struct thread *thread, bool with_this_tick)
{
    if (!thread->is_kept)
        return;
    thread->is_kept = false;
    flights->kept--;
    flights->kept_from -= thread->counted_tick;
    repeat(flights, thread, with_this_tick);
}

void flights_end_thread(struct flights *flights, struct thread *thread, bool with_this_tick)
{
    bool was_left_out = flights->is_wall && thread->is_left_out && thread->samples > 0;
    flights_end_keep(flights, thread, with_this_tick);
    if (was_left_out)
        repeat(flights, thread, with_this_tick);
}

uint64_t flights_samples(const struct flights *flights)
{
    return flights->samples + flights->kept * flights->targets->tick - flights->kept_from;
}

void flights_count_again(struct flights *flights, struct thread *thread)
{
    flights->samples++;
    thread->in_flight->count++;
    thread->in_flight->ns += take_ns(flights, thread);
}
