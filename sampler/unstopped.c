#include "sampler/flight.h"

#include "common/clock.h"
#include "sampler/bpfregs.h"
#include "sampler/capture_arch.h"
#include "sampler/flightparts.h"
#include "sampler/stackcopy.h"

#include <errno.h>
#include <string.h>

/* What is known of a thread in a system call: the kernel keeps the arguments as they were, and the call itself has
 * destroyed rcx and r11 (the pc, and flags). Callee-saved registers are not told. */
static struct registers registers_of_syscall(const struct procfs_syscall *call)
{
    static const uint8_t arguments[] = {REGISTER_RDI, REGISTER_RSI, REGISTER_RDX,
                                        REGISTER_R10, REGISTER_R8,  REGISTER_R9};
    struct registers registers = {.known = 1U << REGISTER_RSP | 1U << REGISTER_PC};
    registers.value[REGISTER_RSP] = call->sp_avma;
    registers.value[REGISTER_PC] = call->pc_avma;
    for (size_t i = 0; i < sizeof(arguments) && call->number >= 0; i++) {
        registers.value[arguments[i]] = call->arguments[i];
        registers.known |= 1U << arguments[i];
    }
    return registers;
}

bool flights_must_not_stop(struct thread *thread)
{
    struct procfs_syscall call;
    if (!flights_may_be_in_restarted_call(thread))
        return false;
    if (thread->has_schedstat)
        return true;
    int error = thread_read_syscall(thread, &call);
    if (error)
        return error != -EAGAIN && !procfs_is_gone(error); /* where it sleeps cannot be known here */
    struct registers now = registers_of_syscall(&call);
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        if (registers_known(&now, reg) && now.value[reg] != thread->restarted_at.value[reg])
            return false;
    return true;
}

static bool are_equal(const struct procfs_schedstat *a, const struct procfs_schedstat *b)
{
    return a->run_ns == b->run_ns && a->slices == b->slices;
}

static bool has_not_run_since(const struct thread *thread, const struct procfs_schedstat *then)
{
    struct procfs_schedstat now;
    return thread_read_schedstat(thread, &now) == 0 && are_equal(&now, then);
}

/* Code of another word size has other registers; and what is in no known code may be that of another map. */
static bool is_known_code(const struct address_map *map, uint64_t pc_avma)
{
    const struct code_region *region = codemap_find(&map->code, pc_avma);
    return region && (!region->image || image_kind(region->image) == IMAGE_ELF);
}

/*
 * Does it sleep where it was when it was stopped last: in the same call, with the same arguments, and the same frames
 * below the one that rbp pointed to? Then it is that frame still, and the registers that a call preserves are as the
 * stop told them.
 */
static bool is_where_it_stopped(const struct thread *thread, const struct item *item)
{
    const struct registers *now = &item->registers;
    const struct registers *then = &thread->stopped_at;
    if (!registers_known(then, REGISTER_RBP) || thread->stopped_hash == 0)
        return false;
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        if (registers_known(now, reg) && now->value[reg] != then->value[reg])
            return false;
    return flights_hash_inner_frames(&item->ranges[0], then) == thread->stopped_hash;
}

/* What the stop told, but for what the call itself changes. */
static void add_stopped_registers(const struct thread *thread, struct item *item)
{
    const uint32_t changed = 1U << REGISTER_RAX | 1U << REGISTER_RCX | 1U << REGISTER_R11;
    item->registers = thread->stopped_at;
    item->registers.known &= ~changed;
}

/* Does nobody stand still for us, or is about to? */
static bool holds_nobody(const struct flights *flights)
{
    if (tracer_holds_any(flights->tracer))
        tracer_collect(flights->tracer);
    return !tracer_holds_any(flights->tracer);
}

/* What the kernel itself has of it, without a stop. */
static bool add_kernel_registers(struct flights *flights, const struct thread *thread, struct item *item)
{
    struct registers told;
    /* To load it takes 20 ms. */
    if (flights->may_bpf && !flights->bpfregs && holds_nobody(flights)) {
        flights->bpfregs = bpfregs_new();
        flights->may_bpf = flights->bpfregs != NULL;
    }
    if (!flights->bpfregs || !bpfregs_read(flights->bpfregs, thread->tid, &told) ||
        told.value[REGISTER_RSP] != item->registers.value[REGISTER_RSP] ||
        told.value[REGISTER_PC] != item->registers.value[REGISTER_PC] || !has_not_run_since(thread, &thread->last))
        return false;
    item->registers = told;
    return true;
}

/* Of a thread that is not stopped. false: it has no stack there. */
static bool copy_stack(const struct thread *thread, uint64_t sp_avma, struct item *item)
{
    const struct extent *extent = address_map_extent(item->map, sp_avma);
    size_t wanted = thread->shared->copy_bytes;
    size_t limit = wanted < item->buffer_bytes ? wanted : item->buffer_bytes;
    if (!extent)
        return false;
    struct memory_range stack = {.bytes = item->buffer};
    struct stackcopy copy = {.tid = thread->tid, .mem_fd = item->space->mem_fd, .until_ns = UINT64_MAX};
    uint64_t end_avma = stackcopy_end(sp_avma, thread->shared->top_avma, extent->end_avma);
    stack.size = stackcopy_read(&copy, sp_avma, end_avma, item->buffer, limit, &stack.avma);
    thread->process->memory_was_gone |= copy.memory_gone;
    item->stack = *extent;
    item->ranges[0] = stack;
    item->range_count = 1;
    return stack.size > 0;
}

/* false: it has no stack there, or ran. */
static bool read_sleeping(const struct thread *thread, const struct procfs_syscall *call, struct item *item)
{
    item->registers = registers_of_syscall(call);
    if (!copy_stack(thread, call->sp_avma, item))
        return false;
    item->time_ns = clock_now_ns();
    /* The look at this tick saw it off the CPU with these counters: so all of this is of one moment, and of the image
     * and maps that were looked at then (an exec ends every other thread first, and those that end run). */
    return has_not_run_since(thread, &thread->last);
}

/* What a thread's samples have counted so far. */
struct counted {
    uint64_t tick;
    uint64_t wall_ns;
    uint64_t owed_ticks;
    uint64_t owed_ns;
};

static struct counted counted_of(const struct thread *thread)
{
    return (struct counted){.tick = thread->counted_tick,
                            .wall_ns = thread->counted_wall_ns,
                            .owed_ticks = thread->owed_ticks,
                            .owed_ns = thread->owed_ns};
}

/* Nothing was taken after all. */
static void take_back(struct flights *flights, struct thread *thread, struct item *item, const struct counted *counted)
{
    thread->counted_tick = counted->tick;
    thread->counted_wall_ns = counted->wall_ns;
    flights_owe(thread, counted->owed_ticks, counted->owed_ns);
    flights_drop_sample(flights, thread, item, FAILURE_NONE);
}

void flights_keep(struct flights *flights, struct thread *thread)
{
    thread->is_kept = true;
    flights->kept++;
    flights->kept_from += thread->counted_tick;
}

/*
 * The stack that came with the registers, or what is there now if the thread has not run since. Of one that is on a CPU
 * the counters cannot say that: they stay as they are until the scheduler's next tick.
 */
static bool take_told_stack(const struct thread *thread, const struct told *told, struct item *item)
{
    uint64_t sp_avma = told->registers.value[REGISTER_RSP];
    const struct extent *extent = address_map_extent(item->map, sp_avma);
    item->registers = told->registers;
    if (!extent || told->stack_bytes == 0 || told->stack_bytes > item->buffer_bytes)
        return !told->is_on_cpu && copy_stack(thread, sp_avma, item) && has_not_run_since(thread, &told->counters);
    memcpy(item->buffer, told->stack, told->stack_bytes);
    item->stack = *extent;
    uint64_t size = extent->end_avma - told->stack_avma; /* what comes behind is something else */
    item->ranges[0] = (struct memory_range){.avma = told->stack_avma,
                                            .bytes = item->buffer,
                                            .size = size < told->stack_bytes ? (size_t)size : told->stack_bytes};
    item->range_count = 1;
    return true;
}

/*
 * On another stack than at its last sample, a thread that runs may be in a signal handler; a stop looks for the stack
 * that this one leads to.
 */
static bool may_be_in_handler(const struct told *told, const struct item *item)
{
    uint64_t sp_at_avma;
    uint64_t end_avma;
    const struct memory_range *stack = &item->ranges[0];
    return told->stat.state == 'R' && !told->is_where_it_was &&
           capture_arch.find_interrupted(stack->bytes, stack->size, stack->avma, &sp_at_avma, &end_avma);
}

static void note_interrupted(struct flights *flights, const struct thread *thread, const struct interruption *times)
{
    histogram_add(&flights->interrupted_ns, times->ended_ns - times->began_ns);
    if (flights->stoplog)
        stoplog_add(flights->stoplog, &(struct stop){.tid = thread->tid,
                                                     .asked_ns = times->asked_ns,
                                                     .arrived_ns = times->began_ns,
                                                     .released_ns = times->ended_ns,
                                                     .is_interruption = true});
}

bool flights_take_told(struct flights *flights, struct thread *thread, const struct told *told, bool keeps)
{
    struct process *process = thread->process;
    if (!told->has_registers || told->stat.image_hash != process->image_hash ||
        !is_known_code(process->map, told->registers.value[REGISTER_PC]))
        return false;
    if (!flights->is_wall && told->stat.state != 'R') {
        flights_owe_tick(flights, thread);
        return true;
    }
    if (told->stat.state == 'R' && told->is_in_handler)
        return false; /* a stop copies the stack that this one leads to, as well */
    struct counted counted = counted_of(thread);
    struct item *item = flights_new_sample(flights, thread, thread->shared->copy_bytes);
    if (!item)
        return false;
    if (!take_told_stack(thread, told, item) || may_be_in_handler(told, item)) {
        take_back(flights, thread, item, &counted);
        return false;
    }
    item->time_ns = clock_now_ns();
    thread->stack = item->stack;
    thread->may_lose_timeout = capture_arch.may_lose_timeout(told->call);
    item->call = thread_state_call(told->call);
    if (told->interruption.ended_ns)
        note_interrupted(flights, thread, &told->interruption);
    thread->reads++;
    thread->shared->wants_again = false;
    if (keeps && !told->is_on_cpu && thread->seen_off_cpu && are_equal(&told->counters, &thread->last))
        flights_keep(flights, thread);
    pipeline_put(flights->pipeline, item);
    return true;
}

bool flights_read(struct flights *flights, struct thread *thread, bool can_stop)
{
    struct thread_shared *shared = thread->shared;
    struct process *process = thread->process;
    struct procfs_syscall call;
    if (!thread->has_schedstat || !thread->seen_off_cpu || !process->space || !process->map ||
        thread_read_syscall(thread, &call) < 0 || !is_known_code(process->map, call.pc_avma))
        return false;
    struct counted counted = counted_of(thread);
    struct item *item = flights_new_sample(flights, thread, shared->copy_bytes);
    if (!item)
        return false;
    bool is_read = read_sleeping(thread, &call, item);
    if (is_read && thread_is_stuck_at(shared, &item->registers)) {
        if (is_where_it_stopped(thread, item))
            add_stopped_registers(thread, item);
        else if (!add_kernel_registers(flights, thread, item))
            is_read = !can_stop;
    }
    if (!is_read) {
        take_back(flights, thread, item, &counted);
        if (process->memory_was_gone)
            flights_fail(flights, thread, FAILURE_EXEC);
        return process->memory_was_gone;
    }
    shared->wants_again = false;
    thread->may_lose_timeout = capture_arch.may_lose_timeout(call.number);
    item->call = thread->call;
    thread->reads++;
    flights_keep(flights, thread);
    pipeline_put(flights->pipeline, item);
    return true;
}
