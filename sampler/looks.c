#include "sampler/looks.h"

#include "common/array.h"
#include "common/clock.h"
#include "sampler/capture_arch.h"
#include "sampler/helped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads looked at between two looks at those that were asked to stop at an earlier tick. */
enum { LOOK_BATCH = 32 };

/* Of a process with more threads, those that run seldom are looked at in their turn. */
enum { LOOK_AT_ONCE_MAX = 256 };

/* Takes a thread up for this tick. */
static void choose(struct looks *looks, struct thread *thread, const struct procfs_stat *stat)
{
    if (thread->in_flight) {
        flights_count_again(looks->flights, thread);
        return;
    }
    if (array_room(&looks->choices, &looks->choice_capacity, looks->choice_count + 1)) {
        looks->error = -ENOMEM;
        return;
    }
    looks->choices[looks->choice_count++] = (struct choice){.thread = thread, .stat = *stat};
}

/* -ESRCH when the thread is gone; else it may be there, and could not be looked at for another reason. */
static int not_looked(struct looks *looks, int error)
{
    if (procfs_is_gone(error))
        return -ESRCH;
    looks->look_error = error;
    return 0;
}

/* Who ran so recently is looked at at each tick: it may well be running again, too briefly to show in the gate. */
#define WARM_NS NS_PER_SEC

/* Sleeping, it may be sampled so many times, each better than the one before. */
enum { READS_MAX = 4 };

static bool is_wanted_again(const struct thread *thread)
{
    return thread->shared->wants_again && thread->reads < READS_MAX;
}

/* As told at this tick, or now. */
static int read_stat(const struct looks *looks, const struct thread *thread, struct procfs_stat *ret)
{
    if (thread->told_ns != looks->now_ns)
        return thread_read_stat(thread, ret);
    *ret = thread->told_stat;
    return 0;
}

static void skip_thread_time(const struct looks *looks, struct thread *thread)
{
    thread->counted_tick = looks->targets->tick;
    thread->counted_wall_ns = looks->targets->wall_ns;
}

/*
 * A name that another thread gives it is no run of its own. Looked for once, before it is left alone until it runs: who
 * makes threads names them at once.
 */
static bool has_new_name(const struct looks *looks, const struct thread *thread)
{
    struct procfs_stat stat;
    return thread->is_kept && thread->is_settled && !thread->is_cold && read_stat(looks, thread, &stat) == 0 &&
           strcmp(stat.comm, thread->comm) != 0;
}

/*
 * What runs changes its stack; who waits for a CPU does not, but that is told by the kernel only. In cpu mode its turns
 * are counted all the same.
 */
static bool is_off_cpu(const struct looks *looks, const struct thread *thread, const struct procfs_stat *stat)
{
    bool is_told = thread->told_ns == looks->now_ns && looks->options->mode == MODE_WALL;
    return is_told ? !thread->told_on_cpu : stat->state != 'R';
}

/*
 * Runnable may mean that it has slept in a system call until just now and waits for a CPU. If the call's timeout is
 * over, a stop would make it start over. Of a thread that was seen to run since we know it, the call is no older than
 * a tick; one that was there before us is left alone until then, which is a scheduler tick if it is on a CPU.
 */
static bool is_known_to_run(const struct thread *thread)
{
    return thread->is_new || thread->ran_ns || !thread->has_schedstat;
}

/* It was there before us and sleeps: in a call whose timeout a stop may be about to take away? Asked once. */
static void note_first_sleep(struct thread *thread)
{
    struct procfs_syscall call;
    if (!is_known_to_run(thread) && !thread->was_asleep && thread_read_syscall(thread, &call) == 0)
        thread->may_lose_timeout = capture_arch.may_lose_timeout(call.number);
}

/* Of those that are runnable the kernel tells by its accounts only how many run: each by its share. */
static bool is_to_be_sampled(const struct looks *looks, struct thread *thread, const struct procfs_stat *stat)
{
    bool runs = stat->state == 'R' && cpushare_tick(&thread->share);
    thread->state = runs ? THREAD_RUNNING : thread_state_of(stat->state);
    return runs || looks->options->mode == MODE_WALL;
}

/* Looks at one thread at a tick. -ESRCH: it is gone. */
static int consider_thread(struct looks *looks, struct thread *thread)
{
    bool is_wall = looks->options->mode == MODE_WALL;
    bool moved;
    struct procfs_stat stat;
    thread->is_settled = false;
    bool had_rest = thread->ran_ns < looks->targets->last_ticked_ns;
    int error = thread_look(thread, looks->now_ns, &moved);
    if (error)
        return not_looked(looks, error);
    if (thread->ran_ns == looks->now_ns && (had_rest || thread->is_kept))
        thread->woken_ns = looks->now_ns;
    if (moved) {
        thread->reads = 0;
        thread->process->has_run = true;
    }
    bool needs_nothing = is_wall ? thread->is_kept && !is_wanted_again(thread) : !thread->is_zombie;
    thread->is_settled = !moved && needs_nothing && (!thread->ran_ns || looks->now_ns - thread->ran_ns > WARM_NS);
    if (!moved && needs_nothing && !has_new_name(looks, thread))
        return 0;
    thread->is_settled = false;
    /* A zombie is asked each time: exec in another thread makes that one the main thread, under this number. */
    error = read_stat(looks, thread, &stat);
    if (error)
        return not_looked(looks, error);
    if (!moved && thread->is_kept && stat.state == 'R')
        return 0; /* woken, and waits for a CPU: until it gets one, its stack is the one that we have */
    flights_end_keep(looks->flights, thread, false);
    thread->is_zombie = stat.state == 'Z' || stat.state == 'X';
    thread->seen_off_cpu = is_off_cpu(looks, thread, &stat);
    looks->running_known += stat.state == 'R';
    if (moved && stat.state != 'R' && !thread->is_zombie) {
        looks->sleeps += !thread->was_asked;
        thread->was_asked = false;
    }
    if (stat.state == 't')
        othertracer_note(&looks->flights->other_tracer, thread, false, looks->now_ns);
    memcpy(thread->comm, stat.comm, sizeof(thread->comm));
    thread->is_wanted = options_want_thread(looks->options, thread->tid, thread->comm);
    if (!is_wall && stat.state == 'S')
        note_first_sleep(thread);
    bool may_be_woken = stat.state == 'R' && !is_known_to_run(thread);
    if (thread->is_zombie || !thread->is_wanted || (stat.flags & PROCFS_PF_EXITING) || may_be_woken)
        skip_thread_time(looks, thread); /* what it did until now is nobody's */
    else if (is_to_be_sampled(looks, thread, &stat))
        choose(looks, thread, &stat);
    return 0;
}

/* ---- accounts ---- */

/* Only profiles in nanoseconds need each thread's time. */
static bool keeps_total(const struct looks *looks)
{
    return looks->options->output.value_ns || looks->options->snapshots_path;
}

static void thread_gone(struct looks *looks, struct thread *thread)
{
    thread->process->has_lost_threads = true;
    if (looks->helped)
        helped_end_thread(looks->helped, thread);
    flights_end_thread(looks->flights, thread, false);
    account_thread(looks->account, thread, keeps_total(looks));
    flights_forget(looks->flights, thread);
    targets_remove_thread(looks->targets, thread);
}

void looks_end_process(struct looks *looks, struct process *process)
{
    if (looks->helped)
        helped_end_process(looks->helped, process);
    account_process(looks->account, process);
    for (size_t i = 0; i < process->thread_count; i++) {
        flights_end_thread(looks->flights, process->threads[i], true);
        account_thread(looks->account, process->threads[i], keeps_total(looks));
        flights_forget(looks->flights, process->threads[i]);
    }
    flights_end_space(looks->flights, process);
    targets_remove_process(looks->targets, process);
}

/* The unwinder has asked for another sample of some thread that does not run. */
static bool take_wants_look(struct process *process)
{
    return process->space && process->space->wants_look && atomic_exchange(&process->space->wants_look, false);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Looks at threads [first, *end) of the process; *end moves when some are gone. True: a cold one has run, or may have.
 */
static bool consider_threads(struct looks *looks, struct process *process, size_t first, const size_t *end)
{
    bool has_moved = false;
    for (size_t i = first; i < *end;) {
        struct thread *thread = process->threads[i];
        if ((i - first) % KERNELVIEW_BATCH == 0 && !thread->has_fresh)
            kernelview_look(looks->view, &process->threads[i], least(KERNELVIEW_BATCH, *end - i), looks->now_ns,
                            KERNELVIEW_READS_NOBODY);
        if (consider_thread(looks, thread) == 0) {
            has_moved |= thread->is_cold && !thread->is_settled;
            i++;
        } else {
            thread_gone(looks, thread);
        }
        if (i % LOOK_BATCH == 0)
            tracer_serve(looks->tracer);
    }
    return has_moved;
}

/* Those who will be looked at whatever the gates say: gates ask for themselves. */
static size_t count_ungated(const struct looks *looks, const struct process *process)
{
    if (gate_may_shut(process, looks->view))
        return 0;
    return process->thread_count > LOOK_AT_ONCE_MAX ? process->hot_count : process->thread_count;
}

/* Of all processes at once, in the order of the looks to come. */
static void look_ahead(struct looks *looks)
{
    const struct targets *targets = looks->targets;
    struct thread *threads[KERNELVIEW_BATCH];
    size_t count = 0;
    for (size_t i = 0; i < targets->process_count; i++) {
        const struct process *process = targets->processes[i];
        for (size_t j = 0; j < count_ungated(looks, process); j++) {
            threads[count++] = process->threads[j];
            if (count < KERNELVIEW_BATCH)
                continue;
            kernelview_look(looks->view, threads, count, looks->now_ns, KERNELVIEW_READS_NOBODY);
            count = 0;
        }
    }
    /* Only these are still in their slots when it comes to reading. */
    kernelview_look(looks->view, threads, count, looks->now_ns,
                    looks->options->mode == MODE_WALL ? KERNELVIEW_READS_MOVED : KERNELVIEW_READS_RUNNABLE);
}

static void consider_hot(struct looks *looks, struct process *process)
{
    process->has_run = false;
    process->has_lost_threads = false;
    process->wants_all = take_wants_look(process) || !gate_is_shut(process, looks->view, looks->now_ns);
    consider_threads(looks, process, 0, &process->hot_count);
}

/*
 * After the hot ones of all processes. In cpu mode samples are few, and each counts: a cold thread that is on a CPU at
 * this moment must not be missed because its time is not accounted yet. In wall mode its last tick of sleep is that
 * much too long.
 */
static void consider_cold(struct looks *looks, struct process *process)
{
    bool has_moved = false;
    if (looks->options->mode == MODE_CPU && looks->running > looks->running_known)
        process->wants_all = true;
    if (process->wants_all)
        has_moved = consider_threads(looks, process, process->hot_count, &process->thread_count);
    process_sort_threads(process, process->wants_all);
    process_read_cpu(process, looks->now_ns, false);
    if (process->wants_all)
        gate_learn(process, has_moved, process->has_lost_threads, looks->view, looks->now_ns);
}

/* How many threads of the machine are on a CPU or wait for one. */
static uint64_t read_running(const struct looks *looks)
{
    char text[128];
    uint64_t running;
    ssize_t size = looks->loadavg_fd < 0 ? -1 : pread(looks->loadavg_fd, text, sizeof(text), 0);
    return size > 0 && procfs_parse_running(text, (size_t)size, &running) ? running : UINT64_MAX;
}

void looks_take(struct looks *looks, uint64_t now_ns)
{
    struct targets *targets = looks->targets;
    looks->now_ns = now_ns;
    looks->choice_count = 0;
    looks->running = looks->options->mode == MODE_CPU ? read_running(looks) : UINT64_MAX;
    looks->running_known = 1; /* ourselves */
    if (kernelview_is_open(looks->view))
        look_ahead(looks);
    for (size_t i = 0; i < targets->process_count; i++)
        consider_hot(looks, targets->processes[i]);
    for (size_t i = 0; i < targets->process_count; i++)
        consider_cold(looks, targets->processes[i]);
}

static bool is_over(const struct process *process)
{
    for (size_t i = 0; i < process->thread_count; i++)
        if (!process->threads[i]->is_zombie)
            return false;
    /* Asked once more: between two looks an exec can have put another thread in the main thread's place. */
    return procfs_is_dead(process->proc_fd);
}

void looks_end_processes(struct looks *looks)
{
    for (size_t i = 0; i < looks->targets->process_count;) {
        struct process *process = looks->targets->processes[i];
        if (is_over(process))
            looks_end_process(looks, process);
        else
            i++;
    }
}

void looks_init(struct looks *looks)
{
    looks->loadavg_fd = procfs_open_loadavg();
}

void looks_deinit(struct looks *looks)
{
    if (looks->loadavg_fd >= 0)
        close(looks->loadavg_fd);
    free(looks->choices);
    looks->choices = NULL;
}
