#include "sampler/helped.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/capture.h"
#include "sampler/flightparts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* A thread that runs and has no timer yet, though the helper knows of it, gets a signal; not too often. */
#define NUDGE_NS       (20 * NS_PER_MS)
#define NUDGE_AGAIN_NS (500 * NS_PER_MS)

/* So many first samples of threads fit into the ring at a time, and as much again. */
enum { FIRST_ASKS_MAX = HELPER_RING_BYTES / 2 / HELPER_FIRST_COPY_BYTES };

/* In wall mode, who has not answered a signal for so long cannot: it is blocked. */
#define ANSWER_NS (300 * NS_PER_MS)

#define FILTER_PERIOD_NS (20 * NS_PER_MS)

#define BLOCKED_PERIOD_NS NS_PER_SEC

/* In wall mode helpers have no timers of threads that would let them notice that they are to go: so they are told. */
enum { WITHDRAW_SIGNALS = 8 };
#define WITHDRAW_NS       (200 * NS_PER_MS)
#define WITHDRAW_PIECE_NS (25 * NS_PER_MS)

/* A target can pretend any number of samples. It cannot have used more CPU time than there is; and it may be so much
 * ahead, for signals that came late. */
#define AHEAD_TICKS 20000

/* Into a program that has just begun, by exec in the place of another, a helper is put as into any that runs: not yet
 * while the dynamic linker is at work. */
enum { INJECT_TRIES = 6 };
#define READY_NS NS_PER_SEC /* a preloaded one has begun by then */
/* No sample has it. */
#define UNLOADS_UNKNOWN UINT32_MAX

/* Samples from before that we have seen code go are on their way for two ticks. */
#define DOUBT_NS          (50 * NS_PER_MS)
#define INJECT_FIRST_NS   (30 * NS_PER_MS)
#define INJECT_AGAIN_NS   (500 * NS_PER_MS)
#define INJECT_TIMEOUT_NS (250 * NS_PER_MS)

static struct helped_process *find_helped(struct helped *helped, const struct process *process)
{
    for (size_t i = 0; i < helped->process_count; i++)
        if (helped->processes[i].process == process)
            return &helped->processes[i];
    return NULL;
}

/* ---- threads ---- */

/* A process in a pid namespace of its own numbers its threads from 1. */
static struct thread *find_thread(const struct helped *helped, const struct helped_process *target, pid_t inner_tid)
{
    struct process *process = target->process;
    if (!target->has_own_tids) {
        struct thread *thread = targets_find_thread(helped->targets, inner_tid);
        return thread && thread->process == process ? thread : NULL;
    }
    for (size_t i = 0; i < process->thread_count; i++)
        if (process->threads[i]->helper_tid == inner_tid)
            return process->threads[i];
    return NULL;
}

static pid_t inner_tid_of(const struct helped_process *target, const struct thread *thread)
{
    struct procfs_status status;
    if (!target->has_own_tids)
        return thread->tid;
    return thread_read_status(thread, &status) == 0 ? status.innermost_tid : 0;
}

/* Has it our signal blocked? Asked once a second at most. */
static bool is_blocked(struct helped *helped, const struct helped_process *target, struct thread *thread)
{
    struct procfs_status status;
    if (thread->helper_blocked_ns && helped->now_ns - thread->helper_blocked_ns < BLOCKED_PERIOD_NS)
        return thread->helper_blocked;
    thread->helper_blocked_ns = helped->now_ns;
    thread->helper_blocked =
        thread_read_status(thread, &status) == 0 && (status.signals_blocked & helperlink_blocking(target->link));
    return thread->helper_blocked;
}

static bool needs_timer(const struct helped *helped)
{
    return helped->options->mode == MODE_CPU && !helped->options->helper_timer_process;
}

/* The helper's own hooks are mostly faster, where it was there before the program. */
static void want_thread(struct helped *helped, struct helped_process *target, struct thread *thread)
{
    if (!thread->helper_seen_ns) {
        thread->helper_seen_ns = helped->now_ns;
        return;
    }
    if (!thread->helper_tid) {
        if (is_blocked(helped, target, thread))
            return;
        thread->helper_tid = inner_tid_of(target, thread);
        if (!thread->helper_tid)
            return;
        thread->helper_slot = helperlink_want_thread(target->link, thread->helper_tid);
    }
    if (thread->is_armed || !needs_timer(helped))
        return;
    if (helperlink_is_blocked(target->link, thread->helper_slot)) {
        if (!is_blocked(helped, target, thread))
            helperlink_unblock_thread(target->link, thread->helper_slot);
        return;
    }
    thread->is_armed = helperlink_has_armed(target->link, thread->helper_slot);
    bool runs = thread->ran_ns > thread->helper_seen_ns;
    if (thread->is_armed || !runs || helped->now_ns - thread->helper_seen_ns < NUDGE_NS ||
        (thread->helper_asked_ns && helped->now_ns - thread->helper_asked_ns < NUDGE_AGAIN_NS))
        return;
    thread->helper_asked_ns = helped->now_ns;
    helperlink_signal(target->link, thread->process->pid, thread->tid, thread->helper_slot);
}

/* ---- items ---- */

static struct item *take_item(struct helped *helped, struct helped_process *target, struct thread *thread,
                              const struct helper_event *event, uint32_t ticks)
{
    size_t bytes = event->kind == HELPER_RECORD_COPY ? event->count : 0;
    struct item *item;
    if (thread) {
        item = flights_new_sample(helped->flights, thread, bytes);
    } else {
        if (!target->unseen)
            target->unseen = thread_shared_new(target->process->pid, 0);
        item = target->unseen ? flights_take_item(helped->flights, bytes) : NULL;
    }
    if (!item)
        return NULL;
    if (!thread) {
        item->thread = thread_shared_ref(target->unseen);
        memcpy(item->comm, target->comm, sizeof(item->comm));
        item->space = target->process->space;
        item->map = target->process->map ? address_map_ref(target->process->map) : NULL;
        item->time_ns = helped->targets->ticked_ns;
        item->state = THREAD_RUNNING;
        item->call = -1;
        item->count = 0;
    }
    if (helped->options->mode == MODE_CPU) {
        helped->flights->samples += ticks - item->count;
        item->count = ticks;
        item->ns = ticks * (NS_PER_SEC / helped->options->rate_hz);
        item->state = THREAD_RUNNING;
        if (!thread)
            target->unseen_ns += item->ns;
    }
    if (!item->space || !item->map)
        item->failure = FAILURE_NO_MAPS;
    return item;
}

/* More than it can have run is not believed. */
static bool is_plausible(struct helped *helped, struct helped_process *target, uint64_t ticks)
{
    double seconds = (double)(helped->now_ns - target->first_ns) / (double)NS_PER_SEC;
    double most = seconds * (double)helped->cpu_count * (double)helped->options->rate_hz + AHEAD_TICKS;
    if (helped->options->mode == MODE_WALL)
        most = (seconds * (double)helped->options->rate_hz + 1) * ((double)target->process->thread_count + 1) +
               AHEAD_TICKS;
    target->ticks += ticks;
    return (double)target->ticks <= most;
}

static void put(struct helped *helped, struct item *item)
{
    pipeline_put(helped->pipeline, item);
}

static void put_failure(struct helped *helped, struct helped_process *target, struct thread *thread,
                        const struct helper_event *event, uint32_t ticks, enum failure failure)
{
    struct helper_event nothing = {.kind = HELPER_RECORD_NO_ROOM, .tid = event->tid};
    struct item *item = take_item(helped, target, thread, &nothing, ticks);
    if (!item)
        return;
    item->failure = failure;
    put(helped, item);
}

/* Code may have been unloaded between that sample and the maps that we have. */
static void note_certain(const struct helped_process *target, const struct helper_event *event, struct item *item)
{
    item->is_doubtful = event->unloads != target->map_unloads || target->doubtful_until_ns > target->drained_ns;
    if (item->is_doubtful)
        item->certain = certaincode_ref(target->certain);
}

/* The stack as the kernel has shown it to the helper. */
static void put_copy(struct helped *helped, struct helped_process *target, struct thread *thread,
                     const struct helper_event *event, const uint8_t *bytes)
{
    struct item *item = take_item(helped, target, thread, event, event->ticks);
    if (!item)
        return;
    size_t size = event->count < item->buffer_bytes ? event->count : item->buffer_bytes;
    memcpy(item->buffer, bytes, size);
    item->registers = event->registers;
    item->ranges[0] = (struct memory_range){.avma = event->avma, .bytes = item->buffer, .size = size};
    item->range_count = 1;
    const struct extent *extent =
        item->map ? address_map_extent(item->map, event->registers.value[REGISTER_RSP]) : NULL;
    item->stack = extent ? *extent : (struct extent){0};
    item->helper = target->link;
    item->helper_slot = event->slot;
    note_certain(target, event, item);
    item->is_urgent = true;
    put(helped, item);
}

static bool set_frames(struct item *item, const uint64_t *frames, size_t count, enum stack_end end)
{
    if (array_room(&item->frames, &item->frame_capacity, count))
        return false;
    memcpy(item->frames, frames, count * sizeof(frames[0]));
    item->frame_count = count;
    item->end = end;
    return true;
}

static void put_frames(struct helped *helped, struct helped_process *target, struct thread *thread,
                       const struct helper_event *event, const uint64_t *frames, size_t count, enum stack_end end)
{
    struct item *item = take_item(helped, target, thread, event, event->ticks);
    if (!item)
        return;
    if (!set_frames(item, frames, count, end)) {
        helped->flights->error = -ENOMEM;
        pipeline_give_back(helped->pipeline, item);
        return;
    }
    item->helper = target->link;
    note_certain(target, event, item);
    put(helped, item);
}

static void put_last_part(struct helped *helped, struct helped_process *target, struct thread *thread,
                          const struct helper_event *event, const uint8_t *bytes)
{
    enum stack_end end = event->kind == HELPER_RECORD_FRAMES_CUT ? STACK_CUT_DEPTH : STACK_COMPLETE;
    if (event->part == 0) {
        helpedparts_give_up(&helped->parts, target, event->tid);
        put_frames(helped, target, thread, event, (const uint64_t *)(const void *)bytes, event->count, end);
        return;
    }
    const struct helpedpart *part = helpedparts_add(&helped->parts, target, event, bytes, helped->options->max_depth);
    if (!part)
        return;
    put_frames(helped, target, thread, event, part->frames, part->count, end);
    helpedparts_take(&helped->parts, part);
}

/* ---- records ---- */

static void handle_event(struct helped *helped, struct helped_process *target, const struct helper_event *event,
                         const uint8_t *bytes)
{
    struct thread *thread = find_thread(helped, target, event->tid);
    bool is_part = event->kind == HELPER_RECORD_FRAMES_PART; /* the last one of them counts */
    if (!is_plausible(helped, target, is_part ? 0 : (uint64_t)event->ticks + event->blocked_ticks)) {
        target->past.resets++;
        return;
    }
    if (helped->options->thread_count && (!thread || !thread->is_wanted))
        return; /* not of the user's choice */
    if (event->blocked_ticks && !is_part)
        put_failure(helped, target, thread, event, event->blocked_ticks, FAILURE_BLOCKED);
    if (thread)
        thread->helper_answered_ns = helped->now_ns;
    switch (event->kind) {
    case HELPER_RECORD_FRAMES_PART:
        helpedparts_add(&helped->parts, target, event, bytes, helped->options->max_depth);
        break;
    case HELPER_RECORD_FRAMES_LAST:
    case HELPER_RECORD_FRAMES_CUT:
        put_last_part(helped, target, thread, event, bytes);
        break;
    case HELPER_RECORD_COPY:
        helpedparts_drop(&helped->parts, target, event->tid);
        put_copy(helped, target, thread, event, bytes);
        break;
    case HELPER_RECORD_REST:
        put_frames(helped, target, thread, event, (const uint64_t *)(const void *)bytes, 1, STACK_CUT_NO_RULE);
        break;
    case HELPER_RECORD_NO_ROOM:
        put_failure(helped, target, thread, event, event->ticks, FAILURE_NO_ROOM);
        break;
    case HELPER_RECORD_PAD:
        break;
    }
}

static void drain(struct helped *helped, struct helped_process *target)
{
    struct helper_event event;
    const uint8_t *bytes;
    if (!target->link)
        return;
    target->drained_ns = clock_now_ns();
    helperlink_begin_drain(target->link, target->drained_ns);
    while (helperlink_next(target->link, &event, &bytes))
        handle_event(helped, target, &event, bytes);
}

/* ---- ticks ---- */

/* A filter that came during the run may forbid what handlers would do. */
static void look_for_filter(struct helped *helped, struct helped_process *target)
{
    struct procfs_status status;
    if (target->has_filter || helped->now_ns - target->filter_read_ns < FILTER_PERIOD_NS)
        return;
    target->filter_read_ns = helped->now_ns;
    if (procfs_read_status(target->process->proc_fd, &status) < 0 || !status.has_seccomp_filter)
        return;
    /* One that we have ourselves is there from the beginning, and lets both of us work. */
    if (!status.seccomp_filters || status.seccomp_filters > helped->own_filters) {
        target->has_filter = true;
        helperlink_must_not_call(target->link);
    }
}

static const struct thread *any_thread(const struct process *process)
{
    return process->thread_count ? process->threads[0] : NULL;
}

/* The process is another program now, by exec, or the helper in it has gone. */
static void lose_helper(struct helped *helped, struct helped_process *target)
{
    target->tries = 0;
    target->try_ns = helped->now_ns + INJECT_FIRST_NS;
    if (!target->link)
        return;
    drain(helped, target);
    struct helper_counters counters = helperlink_counters(target->link);
    helper_counters_add(&target->past, &counters);
    target->link = NULL;
    target->is_checked = false;
    target->map_unloads = 0;
    certaincode_unref(target->certain);
    target->certain = NULL;
    for (size_t i = 0; i < target->process->thread_count; i++) {
        struct thread *thread = target->process->threads[i];
        thread->helper_tid = 0;
        thread->helper_seen_ns = 0;
        thread->is_armed = false;
    }
}

/* The process is another program than before. The helper may be in this one already: put there before we knew. */
static void note_exec(struct helped *helped, struct helped_process *target)
{
    if (target->link && helperlink_is_mapped(target->link, target->process->proc_fd))
        return;
    /* Else check_helper has counted this one, or no helper went away with it. */
    if (target->link)
        target->past.execs++;
    lose_helper(helped, target);
}

static void try_again(struct helped *helped, struct helped_process *target)
{
    struct helperlink *link;
    struct strbuf why = {0};
    target->try_ns = ++target->tries < INJECT_TRIES ? helped->now_ns + INJECT_AGAIN_NS : 0;
    int error = array_room(&target->own, &target->own_capacity, target->own_count + 1);
    if (!error)
        error = helperlink_inject(helped->options, target->process->pid, target->process->proc_fd, INJECT_TIMEOUT_NS,
                                  &link, &why);
    strbuf_deinit(&target->why_not);
    target->why_not = why;
    if (error)
        return;
    target->own[target->own_count++] = link;
    target->link = link;
    target->try_ns = 0;
    target->is_checked = true;
    helperlink_set_map(link, target->process->map);
}

/* A program that was launched may have become another one before we looked for the first time; or no helper has come.
 */
static void check_helper(struct helped *helped, struct helped_process *target)
{
    bool is_ready;
    if (!target->link || target->is_checked || !target->process->map)
        return;
    if (!target->began_ns)
        target->began_ns = helped->now_ns;
    int error = helperlink_state(target->link, &is_ready);
    if (!error && !is_ready && helped->now_ns - target->began_ns < READY_NS)
        return;
    target->is_checked = true;
    if (error || !helperlink_is_mapped(target->link, target->process->proc_fd)) {
        target->past.execs++;
        lose_helper(helped, target);
    }
}

/* What lasts: told by a helper that was there from the beginning; else what is there when we begin, as long as it
 * stays. */
static void find_certain(struct helped_process *target)
{
    target->certain = helperlink_lasting(target->link);
    if (!target->certain)
        target->certain = certaincode_of_map(target->process->map);
}

/* Of what there was at the beginning some may be gone, and others in its place. */
static void forget_gone(struct helped_process *target)
{
    struct certaincode *before = target->certain;
    if (!before || before->is_told)
        return;
    target->certain =
        target->last_map ? certaincode_kept(before, target->last_map, target->process->map) : certaincode_new();
    certaincode_unref(before);
}

/* Space and maps of the process as they are now. */
static void refresh(struct helped *helped, struct helped_process *target)
{
    struct process *process = target->process;
    const struct thread *thread = any_thread(process);
    struct procfs_stat stat;
    if (!thread || thread_read_stat(thread, &stat) < 0 || procfs_stat_is_ending(&stat))
        return;
    if (thread->tid == process->pid)
        memcpy(target->comm, stat.comm, sizeof(target->comm));
    if (process->space && stat.image_hash != process->image_hash)
        note_exec(helped, target);
    /* What is unloaded from now on is counted later than this. */
    uint32_t unloads = target->link ? helperlink_unloads(target->link) : 0;
    struct address_map *before = process->map ? address_map_ref(process->map) : NULL;
    if (unloads != target->map_unloads && process->space)
        process->space->maps_stale = true;
    sampling_refresh(helped->sampling, thread, stat.image_hash, helped->now_ns);
    /* Code that goes while the maps are read makes it uncertain of what moment they are. */
    bool is_of_then = target->link && helperlink_unloads(target->link) == unloads;
    if (process->map != before)
        target->map_unloads = is_of_then ? unloads : UNLOADS_UNKNOWN;
    address_map_unref(target->last_map);
    target->last_map = before;
    if (!process->map || !target->link)
        return;
    if (helperlink_set_map(target->link, process->map)) {
        target->doubtful_until_ns = helped->now_ns + DOUBT_NS;
        forget_gone(target);
    }
    helperlink_set_map_unloads(target->link, target->map_unloads);
    if (!target->certain && target->is_checked)
        find_certain(target);
}

void helped_begin_tick(struct helped *helped, uint64_t now_ns)
{
    helped->now_ns = now_ns;
    for (size_t i = 0; i < helped->process_count; i++) {
        struct helped_process *target = &helped->processes[i];
        if (target->link)
            helperlink_beat(target->link, now_ns);
        if (!target->process)
            continue;
        if (!target->first_ns)
            target->first_ns = now_ns;
        refresh(helped, target);
        check_helper(helped, target);
        if (target->link && helperlink_is_withdrawn(target->link)) {
            target->past.gone++; /* it has not heard of us for long: we were stopped, or the machine */
            lose_helper(helped, target);
        }
        if (target->try_ns && now_ns >= target->try_ns && target->process->map)
            try_again(helped, target);
        if (!target->link)
            continue;
        drain(helped, target);
        look_for_filter(helped, target);
    }
}

/* Does it still sleep where it slept when our signal came, so that this sample stands until it runs? */
static bool is_where_it_was(struct thread *thread)
{
    struct procfs_syscall now;
    const struct procfs_syscall *then = &thread->helper_slept_at;
    if (thread->helper_answered_ns < thread->helper_asked_ns || !thread->helper_asked_ns ||
        thread->last.slices > thread->helper_slices + 1 || !thread->seen_off_cpu)
        return false;
    return then->sp_avma && thread_read_syscall(thread, &now) == 0 && now.number == then->number &&
           now.sp_avma == then->sp_avma && now.pc_avma == then->pc_avma;
}

/* Wall mode: where is it? */
static void ask_thread(struct helped *helped, struct helped_process *target, const struct choice *choice)
{
    struct thread *thread = choice->thread;
    struct helper_event nothing = {.tid = thread->tid};
    if (!thread->helper_tid)
        return;
    if (choice->stat.state != 'R' && choice->stat.state != 'S') {
        put_failure(helped, target, thread, &nothing, 1, FAILURE_UNINTERRUPTIBLE);
        return;
    }
    if (choice->stat.state == 'S' && is_where_it_was(thread)) {
        flights_keep(helped->flights, thread);
        return;
    }
    if (is_blocked(helped, target, thread)) {
        put_failure(helped, target, thread, &nothing, 1, FAILURE_BLOCKED);
        return;
    }
    bool is_waiting = thread->helper_answered_ns < thread->helper_asked_ns;
    if (is_waiting && helped->now_ns - thread->helper_asked_ns < ANSWER_NS)
        return;
    if (is_waiting)
        put_failure(helped, target, thread, &nothing, 1, FAILURE_BLOCKED);
    /* Nothing is known of its stack: a good part of it comes. */
    if (!thread->helper_answered_ns && ++helped->first_asks > FIRST_ASKS_MAX)
        return;
    thread->helper_slept_at = (struct procfs_syscall){0};
    if (choice->stat.state == 'S')
        thread_read_syscall(thread, &thread->helper_slept_at);
    thread->helper_slices = thread->last.slices;
    thread->helper_asked_ns = helped->now_ns;
    helperlink_signal(target->link, thread->process->pid, thread->tid, thread->helper_slot);
}

void helped_take(struct helped *helped, const struct choice *choices, size_t count)
{
    for (size_t i = 0; i < helped->process_count; i++) {
        struct helped_process *target = &helped->processes[i];
        for (size_t j = 0; target->process && target->link && target->is_checked && j < target->process->thread_count;
             j++)
            want_thread(helped, target, target->process->threads[j]);
    }
    helped->first_asks = 0;
    for (size_t i = 0; i < count && helped->options->mode == MODE_WALL; i++) {
        struct helped_process *target = find_helped(helped, choices[i].thread->process);
        if (target && target->link && target->is_checked)
            ask_thread(helped, target, &choices[i]);
    }
}

void helped_end_thread(struct helped *helped, struct thread *thread)
{
    struct helped_process *target = find_helped(helped, thread->process);
    if (!target)
        return;
    drain(helped, target);
    if (thread->helper_tid && target->link)
        helperlink_end_thread(target->link, thread->helper_slot, thread->helper_tid);
}

void helped_end_process(struct helped *helped, struct process *process)
{
    struct helped_process *target = find_helped(helped, process);
    if (!target)
        return;
    drain(helped, target);
    target->process = NULL;
}

/* ---- life ---- */

int helped_init(struct helped *helped, const struct capture_target *targets, size_t count)
{
    struct procfs_status own;
    helped->cpu_count = (unsigned)get_nprocs();
    autoclose int proc_fd = procfs_open_process(getpid());
    if (proc_fd >= 0 && procfs_read_status(proc_fd, &own) == 0)
        helped->own_filters = own.seccomp_filters;
    helped->processes = calloc(count ? count : 1, sizeof(helped->processes[0]));
    if (!helped->processes)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct procfs_status status;
        if (!targets[i].link)
            continue;
        struct helped_process *target = &helped->processes[helped->process_count++];
        target->link = targets[i].link;
        target->process = targets_find_process(helped->targets, targets[i].pid);
        if (target->process && procfs_read_status(target->process->proc_fd, &status) == 0)
            target->has_own_tids = status.innermost_tgid != status.tgid;
    }
    return 0;
}

static void deinit_process(struct helped_process *target)
{
    for (size_t i = 0; i < target->own_count; i++)
        helperlink_free(target->own[i]);
    free(target->own);
    address_map_unref(target->last_map);
    certaincode_unref(target->certain);
    strbuf_deinit(&target->why_not);
    thread_shared_unref(target->unseen);
}

const char *helped_why_missing(const struct helped *helped)
{
    for (size_t i = 0; i < helped->process_count; i++) {
        const struct helped_process *target = &helped->processes[i];
        if (!target->link)
            return target->why_not.data ? target->why_not.data : "it had too little time";
    }
    return NULL;
}

void helped_deinit(struct helped *helped)
{
    for (size_t i = 0; i < helped->process_count; i++)
        deinit_process(&helped->processes[i]);
    free(helped->processes);
    helpedparts_deinit(&helped->parts);
    *helped = (struct helped){0};
}

/* Whoever runs next notices. In wall mode nobody has a timer: some thread is told, and if it cannot hear, another. */
static void withdraw(struct helped *helped, struct helped_process *target)
{
    struct process *process = target->process;
    helperlink_ask_withdraw(target->link);
    if (procfs_is_dead(process->proc_fd))
        return;
    if (helped->options->mode == MODE_CPU) {
        helperlink_wait_withdrawn(target->link, WITHDRAW_NS);
        return;
    }
    size_t told = 0;
    for (size_t i = 0; i < process->thread_count && told < WITHDRAW_SIGNALS && target->is_checked; i++) {
        if (is_blocked(helped, target, process->threads[i]))
            continue;
        told++;
        helperlink_signal(target->link, process->pid, process->threads[i]->tid, HELPER_SLOT_WATCH);
        if (helperlink_wait_withdrawn(target->link, WITHDRAW_PIECE_NS))
            return;
    }
}

void helped_finish(struct helped *helped)
{
    for (size_t i = 0; i < helped->process_count; i++) {
        struct helped_process *target = &helped->processes[i];
        if (!target->process || !target->link)
            continue;
        withdraw(helped, target);
        drain(helped, target);
    }
}

void helped_account(const struct helped *helped, struct account *account)
{
    uint64_t period_ns = NS_PER_SEC / helped->options->rate_hz;
    uint64_t sampled_ns = 0;
    for (size_t i = 0; i < helped->process_count; i++) {
        const struct helped_process *target = &helped->processes[i];
        if (target->unseen)
            account_unseen(account, target->unseen, target->comm, target->unseen_ns);
        sampled_ns += target->ticks * period_ns;
    }
    /* A thread with one sample is not for all of its time a sampled one: what was lost shows. */
    if (helped->options->mode == MODE_CPU && sampled_ns < account->cpu_ns_sampled)
        account->cpu_ns_sampled = sampled_ns;
}

struct helper_counters helped_counters(const struct helped *helped)
{
    struct helper_counters sum = {0};
    for (size_t i = 0; i < helped->process_count; i++) {
        const struct helped_process *target = &helped->processes[i];
        helper_counters_add(&sum, &target->past);
        if (target->link) {
            struct helper_counters counters = helperlink_counters(target->link);
            helper_counters_add(&sum, &counters);
        } else {
            sum.missing++;
        }
    }
    sum.lost += helped->parts.lost;
    return sum;
}
