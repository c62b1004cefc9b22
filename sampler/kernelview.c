#include "sampler/kernelview.h"

#include "common/clock.h"
#include "sampler/capture_arch.h"
#include "sampler/stackcopy.h"

#include <string.h>

static void start_loading(struct kernelview *view)
{
    view->is_wanted = false;
    view->bpflook = bpflook_start();
}

static bool is_loading(const struct kernelview *view)
{
    return view->bpflook && !bpflook_is_ready(view->bpflook) && !bpflook_has_failed(view->bpflook);
}

void kernelview_open(struct kernelview *view, uint64_t patience_ns)
{
    if (view->is_wanted)
        start_loading(view);
    for (uint64_t until_ns = clock_now_ns() + patience_ns; is_loading(view) && clock_now_ns() < until_ns;)
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
}

/* So long loading takes on a busy machine, at most. */
#define PATIENCE_NS NS_PER_SEC

void kernelview_begin_tick(struct kernelview *view, uint64_t now_ns)
{
    if (!view->first_tick_ns)
        view->first_tick_ns = now_ns;
    if (is_loading(view) && now_ns - view->first_tick_ns > PATIENCE_NS)
        bpflook_hurry(view->bpflook);
    if (view->is_wanted && now_ns - view->first_tick_ns >= view->delay_ns)
        start_loading(view);
}

void kernelview_deinit(struct kernelview *view)
{
    bpflook_free(view->bpflook);
    view->bpflook = NULL;
}

uint64_t kernelview_load_ns(const struct kernelview *view)
{
    return view->bpflook ? bpflook_load_ns(view->bpflook) : 0;
}

bool kernelview_is_open(const struct kernelview *view)
{
    return view && view->bpflook && bpflook_is_ready(view->bpflook);
}

static struct procfs_schedstat counters_of(const struct bpf_look *look)
{
    return (struct procfs_schedstat){.run_ns = look->run_ns, .wait_ns = look->wait_ns, .slices = look->slices};
}

static struct procfs_stat stat_of(const struct bpf_look *look)
{
    struct procfs_stat stat = {
        .state = bpflook_state(look),
        .flags = look->flags,
        .image_hash = procfs_image_hash(look->code_start_avma, look->code_end_avma, look->first_stack_avma),
        .processor = (int)look->processor,
    };
    memcpy(stat.comm, look->comm, strnlen(look->comm, sizeof(look->comm)));
    return stat;
}

static bool is_between(const struct procfs_schedstat *first, const struct procfs_schedstat *counters,
                       const struct procfs_schedstat *last)
{
    return first->run_ns <= counters->run_ns && counters->run_ns <= last->run_ns &&
           first->wait_ns <= counters->wait_ns && counters->wait_ns <= last->wait_ns &&
           first->slices <= counters->slices && counters->slices <= last->slices;
}

/*
 * The program goes by numbers, which may be another thread's by now. When a thread began is its own; which one that is
 * the counters tell that are read through its descriptor.
 */
static bool is_of(const struct bpf_look *look, struct thread *thread)
{
    struct procfs_schedstat now;
    struct procfs_schedstat told = counters_of(look);
    if (!look->is_there || !thread->has_schedstat ||
        thread->process->unreadable) /* where its image lies would be hidden in /proc */
        return false;
    if (!thread->began_ns && thread_read_schedstat(thread, &now) == 0 && is_between(&thread->last, &told, &now))
        thread->began_ns = look->began_ns;
    return thread->began_ns == look->began_ns;
}

static void ask_for(struct bpf_look *look, const struct thread *thread, enum bpf_look_wants wants)
{
    look->tid = (unsigned)thread->tid;
    look->wants = wants;
    look->known_run_ns = thread->last.run_ns;
    look->known_slices = thread->last.slices;
    look->stack_start_avma = thread->stack.start_avma;
    look->stack_end_avma = thread->stack.end_avma;
    look->handler_avma = thread->shared->interrupted_sp_at_avma;
    look->stack_top_avma = thread->shared->top_avma;
    look->stack_limit_avma = stackcopy_end(0, thread->shared->top_avma, thread->stack.end_avma);
    look->red_zone_bytes = (unsigned)capture_arch.red_zone_bytes;
    size_t copy_bytes = thread->shared->copy_bytes;
    look->stack_bytes = copy_bytes < UINT32_MAX ? (unsigned)copy_bytes : UINT32_MAX;
}

static enum bpf_look_wants wants_of(const struct thread *thread, enum kernelview_reads reads)
{
    if (reads == KERNELVIEW_READS_NOBODY || !thread->is_wanted)
        return BPF_LOOK_COUNTERS;
    if (reads == KERNELVIEW_READS_RUNNABLE)
        return BPF_LOOK_REGISTERS_IF_RUNNABLE;
    return thread->is_kept ? BPF_LOOK_REGISTERS_IF_MOVED : BPF_LOOK_REGISTERS;
}

static void look_at_batch(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns,
                          enum kernelview_reads reads)
{
    view->looked_ns = now_ns;
    memset(view->looked_at, 0, sizeof(view->looked_at));
    for (size_t i = 0; i < count; i++)
        ask_for(bpflook_slot(view->bpflook, i), threads[i], wants_of(threads[i], reads));
    if (!bpflook_ask(view->bpflook, count))
        return;
    for (size_t i = 0; i < count; i++) {
        const struct bpf_look *look = bpflook_slot(view->bpflook, i);
        struct thread *thread = threads[i];
        if (!is_of(look, thread))
            continue;
        view->looked_at[i] = thread;
        thread->told_slot = i;
        thread->fresh = counters_of(look);
        thread->has_fresh = true;
        thread->told_stat = stat_of(look);
        thread->told_on_cpu = look->is_on_cpu;
        thread->told_threads = look->threads;
        thread->first_tid = look->first_tid;
        thread->told_ns = now_ns;
    }
}

void kernelview_look(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns,
                     enum kernelview_reads reads)
{
    for (size_t i = 0; i < count && kernelview_is_open(view); i += KERNELVIEW_BATCH)
        look_at_batch(view, threads + i, count - i < KERNELVIEW_BATCH ? count - i : KERNELVIEW_BATCH, now_ns, reads);
}

/* A signal handler's own stack leads to another one, which is not copied. */
static bool is_in_handler(const struct bpf_look *look)
{
    uint64_t sp_avma = look->words[BPF_REGISTERS_SP];
    return sp_avma <= look->handler_avma && look->handler_avma - sp_avma < BPF_LOOK_HANDLER_BYTES;
}

static bool is_on_stack(const struct bpf_look *look)
{
    uint64_t sp_avma = look->words[BPF_REGISTERS_SP];
    return look->stack_start_avma <= sp_avma && sp_avma < look->stack_end_avma;
}

/* What the slot says of the thread; nothing, if it is of another one. */
static struct told told_of(const struct bpf_look *look, const unsigned char *stack, struct thread *thread)
{
    if (!is_of(look, thread))
        return (struct told){.is_known = false};
    thread->first_tid = look->first_tid;
    struct told told = {
        .is_known = true,
        .is_on_cpu = look->is_on_cpu,
        .stat = stat_of(look),
        .counters = counters_of(look),
        .call = (int64_t)look->words[BPF_REGISTERS_CALL],
        .is_where_it_was = is_on_stack(look),
        .is_in_handler = is_in_handler(look),
        .stack = stack,
        .stack_bytes = look->has_registers ? look->copied_bytes : 0,
        .stack_avma = look->copied_avma,
    };
    told.has_registers = look->has_registers && capture_arch.registers_at_entry(look->words, &told.registers);
    return told;
}

/* Of those that run: their CPUs are interrupted, one after the other. */
static void interrupt(struct kernelview *view, struct thread *const *threads, const size_t *slots, size_t count,
                      struct told *told)
{
    for (size_t i = 0; i < count; i++) {
        struct thread *thread = threads[i];
        if (!told[i].is_known || !told[i].is_on_cpu || told[i].has_registers)
            continue;
        struct bpf_look *look = bpflook_slot(view->bpflook, slots[i]);
        uint64_t asked_ns = clock_now_ns();
        ask_for(look, thread, BPF_LOOK_REGISTERS);
        look->tid = thread->first_tid;
        if (!bpflook_read_running(view->bpflook, slots[i], told[i].stat.processor) || !look->has_registers)
            continue;
        struct told read = told_of(look, bpflook_stack(view->bpflook, slots[i]), thread);
        if (!read.is_known)
            continue;
        told[i] = read;
        told[i].interruption = (struct interruption){
            .asked_ns = asked_ns, .began_ns = look->began_reading_ns, .ended_ns = look->ended_reading_ns};
    }
}

/* Asks for those that are marked, at once. */
static void read_marked(struct kernelview *view, struct thread *const *threads, const size_t *slots, size_t count,
                        const bool *marks, struct told *told)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (!marks[i])
            continue;
        ask_for(bpflook_slot(view->bpflook, slots[i]), threads[i], BPF_LOOK_REGISTERS);
        if (end <= slots[i])
            end = slots[i] + 1;
    }
    bool is_told = end && bpflook_ask(view->bpflook, end);
    for (size_t i = 0; i < count && is_told; i++)
        if (marks[i])
            told[i] =
                told_of(bpflook_slot(view->bpflook, slots[i]), bpflook_stack(view->bpflook, slots[i]), threads[i]);
}

/* Nothing is known of it that makes a sample; it may have run, or begun to, while it was looked at. */
static bool is_unread(const struct told *told)
{
    return told->is_known && !told->has_registers && !procfs_stat_is_ending(&told->stat);
}

static bool is_in_its_slot(const struct kernelview *view, const struct thread *thread)
{
    return thread->told_ns == view->looked_ns && view->looked_at[thread->told_slot] == thread;
}

/* Who is in one since the last look has that one, and nobody is in one of these any more. */
static void give_slots(struct kernelview *view, struct thread *const *threads, size_t count, size_t *ret_slots)
{
    bool is_given[KERNELVIEW_BATCH] = {false};
    for (size_t i = 0; i < count; i++)
        if (is_in_its_slot(view, threads[i]))
            is_given[threads[i]->told_slot] = true;
    for (size_t i = 0, next = 0; i < count; i++) {
        if (is_in_its_slot(view, threads[i])) {
            ret_slots[i] = threads[i]->told_slot;
            continue;
        }
        while (is_given[next])
            next++;
        ret_slots[i] = next++;
    }
}

/* What the look at this tick told of it. False: no registers, though it was on no CPU. */
static bool take_look(const struct kernelview *view, struct thread *thread, struct told *ret)
{
    const struct bpf_look *look = bpflook_slot(view->bpflook, thread->told_slot);
    *ret = (struct told){.is_known = false};
    if (thread->told_ns != view->looked_ns)
        return false;
    if (is_in_its_slot(view, thread) && look->has_registers)
        *ret = told_of(look, bpflook_stack(view->bpflook, thread->told_slot), thread);
    else if (thread->told_on_cpu)
        *ret = (struct told){.is_known = true, .is_on_cpu = true, .stat = thread->told_stat};
    return ret->is_known;
}

void kernelview_read(struct kernelview *view, struct thread *const *threads, size_t count, struct told *ret)
{
    size_t slots[KERNELVIEW_BATCH] = {0};
    bool marks[KERNELVIEW_BATCH] = {false};
    for (size_t i = 0; i < count; i++)
        ret[i].is_known = false;
    if (!kernelview_is_open(view))
        return;
    give_slots(view, threads, count, slots);
    for (size_t i = 0; i < count; i++)
        marks[i] = !take_look(view, threads[i], &ret[i]);
    for (size_t i = 0; i < count; i++)
        view->looked_at[slots[i]] = NULL;
    read_marked(view, threads, slots, count, marks, ret);
    interrupt(view, threads, slots, count, ret);
    for (size_t i = 0; i < count; i++)
        marks[i] = is_unread(&ret[i]);
    read_marked(view, threads, slots, count, marks, ret);
    interrupt(view, threads, slots, count, ret);
}
