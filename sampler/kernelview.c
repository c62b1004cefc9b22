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

static void look_at_batch(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns)
{
    view->looked_ns = now_ns;
    for (size_t i = 0; i < count; i++) {
        struct bpf_look *look = bpflook_slot(view->bpflook, i);
        look->tid = (unsigned)threads[i]->tid;
        look->wants_registers = 0;
    }
    if (!bpflook_ask(view->bpflook, 0, count))
        return;
    for (size_t i = 0; i < count; i++) {
        const struct bpf_look *look = bpflook_slot(view->bpflook, i);
        struct thread *thread = threads[i];
        if (!is_of(look, thread))
            continue;
        thread->fresh = counters_of(look);
        thread->has_fresh = true;
        thread->told_stat = stat_of(look);
        thread->told_on_cpu = look->is_on_cpu;
        thread->told_threads = look->threads;
        thread->first_tid = look->first_tid;
        thread->told_ns = now_ns;
    }
}

void kernelview_look(struct kernelview *view, struct thread *const *threads, size_t count, uint64_t now_ns)
{
    for (size_t i = 0; i < count && kernelview_is_open(view); i += KERNELVIEW_BATCH)
        look_at_batch(view, threads + i, count - i < KERNELVIEW_BATCH ? count - i : KERNELVIEW_BATCH, now_ns);
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

static void ask_for_stack(struct bpf_look *look, const struct thread *thread)
{
    look->tid = (unsigned)thread->tid;
    look->wants_registers = 1;
    look->stack_start_avma = thread->stack.start_avma;
    look->stack_end_avma = thread->stack.end_avma;
    look->handler_avma = thread->shared->interrupted_sp_at_avma;
    look->stack_top_avma = thread->shared->top_avma;
    look->stack_limit_avma = stackcopy_end(0, thread->shared->top_avma, thread->stack.end_avma);
    look->red_zone_bytes = (unsigned)capture_arch.red_zone_bytes;
    size_t copy_bytes = thread->shared->copy_bytes;
    look->stack_bytes = copy_bytes < UINT32_MAX ? (unsigned)copy_bytes : UINT32_MAX;
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
        ask_for_stack(look, thread);
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

/* Nothing is known of it that makes a sample; it may have run, or begun to, while it was looked at. */
static bool is_unread(const struct told *told)
{
    return told->is_known && !told->has_registers && !procfs_stat_is_ending(&told->stat);
}

static void read_again(struct kernelview *view, struct thread *const *threads, const size_t *slots, size_t count,
                       struct told *told)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_unread(&told[i]))
            continue;
        struct bpf_look *look = bpflook_slot(view->bpflook, slots[i]);
        ask_for_stack(look, threads[i]);
        if (!bpflook_ask(view->bpflook, slots[i], 1))
            continue;
        told[i] = told_of(look, bpflook_stack(view->bpflook, slots[i]), threads[i]);
    }
    interrupt(view, threads, slots, count, told);
}

/* The look at this tick saw it on a CPU: it need not be asked about again before it is interrupted. */
static bool was_on_cpu(const struct kernelview *view, const struct thread *thread)
{
    return thread->told_ns == view->looked_ns && thread->told_on_cpu;
}

/* All that are on no CPU, at once. Each has a slot of its own. */
static bool read_batch(struct kernelview *view, struct thread *const *threads, size_t count, size_t *ret_slots,
                       struct told *ret)
{
    size_t asked = 0;
    size_t last = count;
    for (size_t i = 0; i < count; i++) {
        bool runs = was_on_cpu(view, threads[i]);
        ret_slots[i] = runs ? --last : asked++;
        ret[i] = (struct told){.is_known = runs, .is_on_cpu = runs, .stat = threads[i]->told_stat};
        if (!runs)
            ask_for_stack(bpflook_slot(view->bpflook, ret_slots[i]), threads[i]);
    }
    if (asked && !bpflook_ask(view->bpflook, 0, asked))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct bpf_look *look = bpflook_slot(view->bpflook, ret_slots[i]);
        if (!ret[i].is_known)
            ret[i] = told_of(look, bpflook_stack(view->bpflook, ret_slots[i]), threads[i]);
    }
    return true;
}

void kernelview_read(struct kernelview *view, struct thread *const *threads, size_t count, struct told *ret)
{
    size_t slots[KERNELVIEW_BATCH] = {0};
    for (size_t i = 0; i < count; i++)
        ret[i].is_known = false;
    if (!kernelview_is_open(view) || !read_batch(view, threads, count, slots, ret))
        return;
    interrupt(view, threads, slots, count, ret);
    read_again(view, threads, slots, count, ret);
}
