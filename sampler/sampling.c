#include "sampler/sampling.h"

#include "common/clock.h"
#include "sampler/othertracer.h"
#include "sampler/pinning.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* Threads asked to stop at one time before the next one is; and how long to wait for fewer. */
enum { CROWD = 8 };
#define CROWD_WAIT_NS (500 * NS_PER_US)

/* How long to look all the time for threads that run elsewhere: most have arrived by then. */
#define SPIN_NS (100 * NS_PER_US)

/* So long a thread may run to leave a system call that it was woken from. */
#define LEAVE_NS (30 * NS_PER_US)

/*
 * An exec that gave the same addresses to the same program (which it does where they are not randomised) is found when
 * a sample has failed for it.
 */
static bool has_lost_memory(struct process *process)
{
    bool is_gone = process->memory_was_gone && space_is_gone(process->space);
    process->memory_was_gone = false;
    return is_gone;
}

/*
 * Makes the process's space and map those of now. `image_hash` is what a thread's stat said just now: a vfork'ed child
 * shares its parent's memory until its exec, so the memory's own end does not tell of it.
 */
static enum failure refresh_process(struct sampling *sampling, const struct thread *thread, uint64_t image_hash)
{
    uint64_t now_ns = sampling->now_ns;
    struct process *process = thread->process;
    if (process->space && process->map && process->checked_ns == now_ns && image_hash == process->image_hash)
        return FAILURE_NONE; /* another thread of it, at this tick */
    process->checked_ns = now_ns;
    if (process->space && (image_hash != process->image_hash || has_lost_memory(process))) {
        sampling->execs++;
        process->is_fork = false;
        flights_end_space(sampling->flights, process);
    }
    if (!process->space) {
        int error = mapper_begin_space(sampling->mapper, thread);
        if (process->unreadable)
            refusal_note(&sampling->refusal, process->pid, process->proc_fd);
        if (error)
            return process->unreadable ? FAILURE_NOT_ALLOWED : error == -EAGAIN ? FAILURE_EXEC : FAILURE_NO_MAPS;
    }
    if (mapper_is_old(process, now_ns)) {
        process->space->maps_stale = false;
        if (mapper_read_maps(sampling->mapper, thread) < 0 && !process->map)
            return FAILURE_NO_MAPS;
    }
    return FAILURE_NONE;
}

enum failure sampling_refresh(struct sampling *sampling, const struct thread *thread, uint64_t image_hash,
                              uint64_t now_ns)
{
    sampling->now_ns = now_ns;
    return refresh_process(sampling, thread, image_hash);
}

/* Makes ready all that can be had before a thread is sampled. False: it is not, and counted already. */
static bool prepare(struct sampling *sampling, const struct choice *choice)
{
    struct thread *thread = choice->thread;
    struct process *process = thread->process;
    enum failure failure = FAILURE_NONE;
    if (process->unreadable && choice->stat.image_hash == process->image_hash)
        failure = FAILURE_NOT_ALLOWED;
    else
        failure = refresh_process(sampling, thread, choice->stat.image_hash);
    if (failure != FAILURE_NONE)
        flights_fail(sampling->flights, thread, failure);
    return failure == FAILURE_NONE;
}

/*
 * Reads what the kernel has told of it. True: that is its sample. Else what is known of it is brought up to date: it
 * may be on a CPU now.
 */
static bool take_told(struct sampling *sampling, struct choice *choice, const struct told *told)
{
    struct thread *thread = choice->thread;
    if (!told->is_known)
        return false;
    if (flights_take_told(sampling->flights, thread, told, sampling->options->mode == MODE_WALL))
        return true;
    if (told->is_on_cpu && choice->stat.state != 'R') {
        choice->stat = told->stat;
        thread->state = THREAD_RUNNING;
        thread->seen_off_cpu = false;
        thread->woken_ns = sampling->now_ns;
    }
    return false;
}

/* It could not be read, for it was woken; on a busy machine it sleeps again by now. False: nothing is known of it. */
static bool look_again(struct sampling *sampling, struct choice *choice)
{
    bool moved;
    struct procfs_stat stat;
    if (thread_look(choice->thread, sampling->now_ns, &moved) || !moved || thread_read_stat(choice->thread, &stat) ||
        stat.image_hash != choice->stat.image_hash || procfs_stat_is_ending(&stat))
        return false;
    choice->stat = stat;
    choice->thread->state = thread_state_of(stat.state);
    choice->thread->seen_off_cpu = stat.state != 'R';
    choice->thread->woken_ns = sampling->now_ns;
    return true;
}

/* Reads the thread if it can be read. True: it is to be stopped. */
static bool read_or_stop(struct sampling *sampling, struct choice *choice, const struct told *told)
{
    struct thread *thread = choice->thread;
    if (take_told(sampling, choice, told))
        return false;
    bool stays_out = othertracer_holds(thread->process, sampling->now_ns);
    bool can_stop = false;
    for (int tries = 0; tries < 2; tries++) {
        bool would_stop = choice->stat.state != 'D'; /* that one would not before it is done */
        can_stop = would_stop && !stays_out && (choice->stat.state == 'R' || !flights_must_not_stop(thread));
        if (choice->stat.state == 'R')
            break;
        if (flights_read(sampling->flights, thread, can_stop))
            return false;
        if (!look_again(sampling, choice))
            break;
    }
    if (!can_stop)
        flights_fail(sampling->flights, thread, stays_out ? FAILURE_TRACED : FAILURE_UNINTERRUPTIBLE);
    return can_stop;
}

/*
 * May it be on its way out of a system call with a timeout that is over? A stop would have such a call answer EINTR,
 * and be started again with its whole timeout.
 */
static bool may_be_leaving(const struct sampling *sampling, const struct choice *choice)
{
    const struct thread *thread = choice->thread;
    return choice->stat.state == 'R' && thread->may_lose_timeout && thread->woken_ns == sampling->now_ns;
}

static void start(struct sampling *sampling, const struct choice *choice)
{
    if (choice->stat.state != 'R') {
        sampling->stopped_asleep++;
        choice->thread->was_asked = true;
    }
    flights_start(sampling->flights, choice->thread);
}

static void swap(struct choice *a, struct choice *b)
{
    struct choice other = *a;
    *a = *b;
    *b = other;
}

/* Those of [first, count) for which it holds to the front. Returns the end of those. */
static size_t partition(const struct sampling *sampling, struct choice *choices, size_t first, size_t count,
                        bool (*holds)(const struct sampling *sampling, const struct choice *choice))
{
    for (size_t i = first; i < count; i++)
        if (holds(sampling, &choices[i]))
            swap(&choices[i], &choices[first++]);
    return first;
}

static bool is_elsewhere(const struct sampling *sampling, const struct choice *choice)
{
    return choice->stat.processor != sched_getcpu() && !may_be_leaving(sampling, choice);
}

static bool is_not_leaving(const struct sampling *sampling, const struct choice *choice)
{
    return !may_be_leaving(sampling, choice);
}

/* A crowd at a time: more would stand still while others are being read. Waits for half a period in all. */
static void start_all(struct sampling *sampling, const struct choice *choices, size_t count, uint64_t *patience_ns)
{
    for (size_t i = 0; i < count; i++) {
        start(sampling, &choices[i]);
        if ((i + 1) % CROWD || i + 1 == count)
            continue;
        uint64_t before_ns = clock_now_ns();
        uint64_t wait_ns = *patience_ns < CROWD_WAIT_NS ? *patience_ns : CROWD_WAIT_NS;
        tracer_wait(sampling->tracer, -1, before_ns + wait_ns, true);
        uint64_t waited_ns = clock_now_ns() - before_ns;
        *patience_ns -= waited_ns < *patience_ns ? waited_ns : *patience_ns;
    }
}

static void stop_all(struct sampling *sampling, struct choice *choices, size_t count)
{
    uint64_t patience_ns = NS_PER_SEC / sampling->options->rate_hz / 2;
    size_t elsewhere = partition(sampling, choices, 0, count, is_elsewhere);
    size_t here = partition(sampling, choices, elsewhere, count, is_not_leaving);
    start_all(sampling, choices, elsewhere, &patience_ns);
    if (elsewhere && sampling->options->pin == PIN_AUTO)
        tracer_spin(sampling->tracer, clock_now_ns() + SPIN_NS);
    start_all(sampling, choices + elsewhere, here - elsewhere, &patience_ns);
    if (here < count)
        tracer_wait(sampling->tracer, -1, clock_now_ns() + LEAVE_NS, false);
    start_all(sampling, choices + here, count - here, &patience_ns);
    tracer_watch_end(sampling->tracer);
}

/* As many as are told of at once. Returns how many of them are to be stopped, which are in `ret_stops` then: before
 * `choices`, or at the same place. */
static size_t read_batch(struct sampling *sampling, struct choice *choices, size_t count, struct choice *ret_stops)
{
    struct thread *threads[KERNELVIEW_BATCH];
    struct told told[KERNELVIEW_BATCH];
    size_t stops = 0;
    if (count > KERNELVIEW_BATCH)
        count = KERNELVIEW_BATCH;
    for (size_t i = 0; i < count; i++)
        threads[i] = choices[i].thread;
    kernelview_read(sampling->view, threads, count, told);
    for (size_t i = 0; i < count; i++) {
        if (read_or_stop(sampling, &choices[i], &told[i]))
            ret_stops[stops++] = choices[i];
        tracer_serve(sampling->tracer);
    }
    return stops;
}

static bool is_runnable(const struct sampling *sampling, const struct choice *choice)
{
    (void)sampling;
    return choice->stat.state == 'R';
}

static void note_crowd(struct crowd *crowd, uint64_t count)
{
    crowd->sum += count;
    if (count > crowd->most)
        crowd->most = count;
}

/*
 * Those that are to be stopped are no more than was asked for: who else would be is left to chance, each with the same.
 * Returns how many choices remain; who sleeps is among them.
 */
static size_t leave_out(struct sampling *sampling, struct choice *choices, size_t count)
{
    struct flights *flights = sampling->flights;
    size_t eligible = partition(sampling, choices, 0, count, is_runnable);
    size_t most = sampling->options->max_stops;
    note_crowd(&sampling->live, flights->targets->thread_count);
    note_crowd(&sampling->eligible, eligible);
    flights->eligible = eligible;
    flights->left_out = eligible > most ? eligible - most : 0;
    if (!flights->left_out)
        return count;
    sampling->left_out += flights->left_out;
    for (size_t i = 0; i < most; i++)
        swap(&choices[i], &choices[i + rng_below(&flights->rng, eligible - i)]);
    for (size_t i = most; i < eligible; i++)
        choices[i].thread->is_left_out = true;
    memmove(choices + most, choices + eligible, (count - eligible) * sizeof(*choices));
    return count - flights->left_out;
}

void sampling_take(struct sampling *sampling, struct choice *choices, size_t count, uint64_t now_ns)
{
    sampling->now_ns = now_ns;
    count = leave_out(sampling, choices, count);
    size_t ready = 0;
    for (size_t i = 0; i < count; i++) {
        if (prepare(sampling, &choices[i]))
            choices[ready++] = choices[i];
        tracer_serve(sampling->tracer);
    }
    size_t stops = 0;
    for (size_t i = 0; i < ready; i += KERNELVIEW_BATCH)
        stops += read_batch(sampling, choices + i, ready - i, choices + stops);
    stop_all(sampling, choices, stops);
}
