#include "sampler/flight.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "sampler/bpfregs.h"
#include "sampler/capture_arch.h"
#include "sampler/stackcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* So often may one system call be started again, and its timeout with it, before a stop ends it after all. */
enum { RESTARTS_MAX = 4 };

/* The first samples of a thread: what the unwinder learns from them makes the next ones better. */
enum { URGENT_SAMPLES = 3 };

/* An empty item. When all are in work threads that have arrived must not wait for one, so the tracer goes on meanwhile.
 */
static struct item *take_item(struct flights *flights, size_t buffer_bytes)
{
    struct item *item;
    int error;
    while ((error = pipeline_take(flights->pipeline, buffer_bytes, &item)) == -EAGAIN)
        tracer_wait(flights->tracer, -1, clock_now_ns() + NS_PER_MS, false);
    if (error)
        flights->error = error;
    return error ? NULL : item;
}

/* Nothing of the space comes any more: the unwinding thread may forget what it has of it. */
static void close_space_if_done(struct flights *flights, struct space *space)
{
    if (!space->ended || space->in_flight)
        return;
    struct item *item = take_item(flights, 0);
    if (item) {
        item->kind = ITEM_SPACE_END;
        item->space = space;
        pipeline_put(flights->pipeline, item);
    }
}

void flights_end_space(struct flights *flights, struct process *process)
{
    struct space *space = process->space;
    process->space = NULL;
    address_map_unref(process->map);
    process->map = NULL;
    if (space) {
        space->ended = true;
        close_space_if_done(flights, space);
    }
}

/* Nanoseconds that this tick stands for in wall mode: since the thread's last one. */
static uint64_t take_wall_ns(const struct flights *flights, struct thread *thread)
{
    const struct targets *targets = flights->targets;
    uint64_t since_ns = thread->counted_wall_ns;
    thread->counted_tick = targets->tick;
    thread->counted_wall_ns = targets->wall_ns;
    return flights->is_wall ? targets->wall_ns - since_ns : 0;
}

static struct item *new_sample(struct flights *flights, struct thread *thread, size_t buffer_bytes)
{
    struct item *item = take_item(flights, buffer_bytes);
    if (!item)
        return NULL;
    struct process *process = thread->process;
    item->thread = thread_shared_ref(thread->shared);
    memcpy(item->comm, thread->comm, sizeof(item->comm));
    item->space = process->space;
    item->map = process->map ? address_map_ref(process->map) : NULL;
    item->time_ns = flights->targets->ticked_ns;
    item->ns = take_wall_ns(flights, thread);
    item->is_urgent = thread->samples < URGENT_SAMPLES;
    thread->samples++;
    flights->samples++;
    return item;
}

void flights_fail(struct flights *flights, struct thread *thread, enum failure failure)
{
    struct item *item = new_sample(flights, thread, 0);
    if (!item)
        return;
    item->failure = failure;
    pipeline_put(flights->pipeline, item);
}

/* A thread on its way out answers EPERM too: only one that is still there was refused. */
static bool has_ended(const struct thread *thread)
{
    struct procfs_stat stat;
    return thread_read_stat(thread, &stat) < 0 || procfs_stat_is_ending(&stat);
}

/* Why the kernel did not let us seize it. */
static enum failure refusal(struct flights *flights, const struct thread *thread)
{
    char path[48];
    struct procfs_status status;
    if (has_ended(thread))
        return FAILURE_NONE;
    if (thread_read_status(thread, &status) == 0 && status.tracer_pid) {
        othertracer_note(&flights->other_tracer, thread, false, flights->targets->ticked_ns);
        return FAILURE_TRACED;
    }
    /* Nobody traces it now; but somebody may have a moment ago. Opening its memory asks for the same rights. */
    snprintf(path, sizeof(path), "task/%d/mem", (int)thread->tid);
    autoclose int fd = openat(thread->process->proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 || (errno != EACCES && errno != EPERM)) {
        othertracer_note(&flights->other_tracer, thread, true, flights->targets->ticked_ns);
        return FAILURE_TRACED;
    }
    refusal_note(&flights->refusal, thread->process->pid, thread->process->proc_fd);
    return FAILURE_NOT_ALLOWED;
}

/* Why a thread could not be asked to stop. FAILURE_NONE: because it has ended. */
static enum failure start_failure(struct flights *flights, const struct thread *thread, int error)
{
    switch (error) {
    case -ESRCH:
        return FAILURE_NONE;
    case -EBUSY:
        return FAILURE_TIMEOUT;
    case -EPERM:
        return refusal(flights, thread);
    default:
        return FAILURE_ERROR;
    }
}

/* Gives the sample up as failed, or as none (FAILURE_NONE: its thread has ended, there is nothing to tell). */
static void drop_sample(struct flights *flights, struct thread *thread, struct item *item, enum failure failure)
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

static struct flight *find_free(struct flights *flights)
{
    for (size_t i = 0; i < TRACER_SLOTS; i++)
        if (!flights->all[i].item)
            return &flights->all[i];
    return NULL;
}

/*
 * Does it sleep ever since a stop, but for the moment in which its system call was started again? A later call may look
 * the same, but it has been on a CPU once more to leave the first.
 */
static bool may_be_in_restarted_call(const struct thread *thread)
{
    struct procfs_schedstat now; /* the last look may be of before a call that has ended since */
    if (!registers_known(&thread->restarted_at, REGISTER_PC))
        return false;
    if (!thread->has_schedstat)
        return true;
    return thread->seen_off_cpu && thread_read_schedstat(thread, &now) == 0 &&
           now.slices <= thread->restarted_slices + 1;
}

/* Without counters every later call that looks the same is taken for the same. */
static bool may_restart(struct thread *thread)
{
    if (!may_be_in_restarted_call(thread))
        thread->restarts = 0;
    return thread->has_schedstat ? thread->restarts < RESTARTS_MAX : thread->restarts == 0;
}

/* Of its last stop, if that was on the stack that it is thought to be on. */
static uint64_t last_sp(const struct thread *thread)
{
    uint64_t sp = thread->stopped_at.value[REGISTER_RSP];
    bool is_there = registers_known(&thread->stopped_at, REGISTER_RSP) && thread->stack.start_avma <= sp &&
                    sp < thread->stack.end_avma;
    return is_there ? sp : 0;
}

void flights_start(struct flights *flights, struct thread *thread)
{
    size_t copy_bytes = thread->shared->copy_bytes;
    uint64_t interrupted_sp_at_avma = thread->shared->interrupted_sp_at_avma;
    unsigned copies = interrupted_sp_at_avma ? 2 : 1;
    struct item *item = new_sample(flights, thread, copies * copy_bytes);
    if (!item)
        return;
    struct flight *flight = find_free(flights);
    int error = -EBUSY;
    if (flight) {
        flight->request = (struct tracer_request){
            .pid = thread->process->pid,
            .tid = thread->tid,
            .buffer = item->buffer,
            .buffer_bytes = item->buffer_bytes,
            .stack_bytes_max = copy_bytes,
            .interrupted_sp_at_avma = interrupted_sp_at_avma,
            .restarted_at = may_restart(thread) ? (struct registers){.known = 0} : thread->restarted_at,
            .held_ns_max = TRACER_HELD_NS_MAX,
            .mem_fd = item->space->mem_fd,
            .stack_start_avma = thread->stack.start_avma,
            .stack_end_avma = thread->stack.end_avma,
            .stack_top_avma = thread->shared->top_avma,
            .last_sp_avma = last_sp(thread),
        };
        error = tracer_start(flights->tracer, &flight->request);
    }
    if (error) {
        drop_sample(flights, thread, item, start_failure(flights, thread, error));
        return;
    }
    flight->item = item;
    flight->thread = thread;
    thread->in_flight = item;
    item->space->in_flight++;
}

/*
 * Where its stack is, by maps that may have to be read for it: stacks grow, and new threads have new ones. The item's
 * map becomes the one of now.
 */
static void find_stack(struct flights *flights, struct thread *thread, struct item *item)
{
    uint64_t sp = item->registers.value[REGISTER_RSP];
    uint64_t pc = item->registers.value[REGISTER_PC];
    const struct extent *extent = address_map_extent(item->map, sp);
    bool is_new_place = !extent || !codemap_find(&item->map->code, pc);
    struct process *process = thread ? thread->process : NULL;
    if (is_new_place && process && process->space == item->space && mapper_may_retry(process) &&
        mapper_read_maps(flights->mapper, thread) == 0) {
        address_map_unref(item->map);
        item->map = address_map_ref(process->map);
        extent = address_map_extent(item->map, sp);
    }
    item->stack = extent ? *extent : (struct extent){0};
    if (thread)
        thread->stack = item->stack;
}

static enum failure flight_failure(struct flights *flights, const struct tracer_request *request)
{
    switch (request->outcome) {
    case TRACER_CAPTURED:
        return request->memory_gone ? FAILURE_EXEC : FAILURE_NONE;
    case TRACER_TIMEOUT:
        return FAILURE_TIMEOUT;
    case TRACER_FOREIGN:
        if (!flights->foreign_pid)
            flights->foreign_pid = request->pid;
        return FAILURE_FOREIGN;
    default:
        return FAILURE_ERROR;
    }
}

/*
 * A vfork'ed child's memory is its parent's, and is not gone after its exec; that another image runs now says that the
 * snapshot may be of either.
 */
static bool has_left_image(const struct thread *thread)
{
    struct procfs_stat stat;
    return thread->process->is_fork && thread_read_stat(thread, &stat) == 0 &&
           stat.image_hash != thread->process->image_hash;
}

/*
 * The stack from its pointer to the frame that rbp points to, return address included, as one number: what lies between
 * a system call and the first frame for which rbp is needed. 0: it is not in the copy, or unlikely far.
 */
static uint64_t hash_inner_frames(const struct memory_range *stack, const struct registers *registers)
{
    enum { RECORD_BYTES = 16, FAR_BYTES = 64 << 10, LEAST_BYTES = 64 };
    uint64_t off = registers->value[REGISTER_RSP] - stack->avma;
    uint64_t wanted = registers->value[REGISTER_RBP] + RECORD_BYTES - registers->value[REGISTER_RSP];
    if (wanted > FAR_BYTES)
        wanted = LEAST_BYTES; /* an ordinary register there */
    if (off > stack->size || wanted > stack->size - off)
        return 0;
    return hash_bytes(stack->bytes + off, (size_t)wanted) | 1;
}

static void note_stop(struct thread *thread, const struct tracer_request *request)
{
    struct memory_range stack = {.avma = request->bytes_avma, .bytes = request->buffer, .size = request->bytes};
    thread->stopped_at = request->registers;
    thread->stopped_hash = hash_inner_frames(&stack, &request->registers);
    if (request->restarted)
        thread->may_lose_timeout = request->may_lose_timeout;
    if (!request->restarted || request->is_endless) {
        thread->restarted_at.known = 0; /* the call is over, or may be started again without end */
        return;
    }
    thread->restarts++;
    thread->restarted_at = request->registers;
    thread->restarted_slices = request->restarted_slices;
}

/* The stack, and the one that its signal handler interrupted. */
static void take_copies(struct item *item, const struct tracer_request *request)
{
    item->range_count = 0;
    if (request->bytes == 0)
        return;
    item->ranges[item->range_count++] =
        (struct memory_range){.avma = request->bytes_avma, .bytes = request->buffer, .size = request->bytes};
    if (request->other_bytes == 0)
        return;
    const struct extent *extent = address_map_extent(item->map, request->other_avma + request->other_bytes - 1);
    item->ranges[item->range_count++] = (struct memory_range){
        .avma = request->other_avma,
        .bytes = request->other,
        .size = request->other_bytes,
        .mapping_end_avma = extent ? extent->end_avma : 0,
    };
}

/* The tracer's word that a flight has ended. */
static void finish_flight(void *context, struct tracer_request *request)
{
    struct flights *flights = context;
    struct flight *flight = (struct flight *)request;
    struct item *item = flight->item;
    struct thread *thread = flight->thread;
    struct space *space = item->space;
    flight->item = NULL;
    if (thread) {
        thread->in_flight = NULL;
        if (request->released_ns) /* it was not, if it was killed in its stop */
            cpushare_stopped(&thread->share, request->released_ns - request->interrupted_ns);
    }
    if (flights->stoplog && request->released_ns)
        stoplog_add(flights->stoplog, &(struct stop){.tid = request->tid,
                                                     .asked_ns = request->interrupted_ns,
                                                     .arrived_ns = request->arrived_ns,
                                                     .released_ns = request->released_ns});
    enum failure failure = flight_failure(flights, request);
    if (failure == FAILURE_NONE && thread && has_left_image(thread))
        failure = FAILURE_EXEC;
    if (thread && request->memory_gone)
        thread->process->memory_was_gone = true;
    if (request->outcome == TRACER_CAPTURED && failure == FAILURE_NONE) {
        item->registers = request->registers;
        item->time_ns = request->released_ns;
        find_stack(flights, thread, item);
        take_copies(item, request);
        if (thread)
            note_stop(thread, request);
        if (request->interrupted_sp_at_avma)
            item->thread->interrupted_sp_at_avma = request->interrupted_sp_at_avma;
        pipeline_put(flights->pipeline, item);
    } else {
        drop_sample(flights, thread, item, request->outcome == TRACER_VANISHED ? FAILURE_NONE : failure);
    }
    space->in_flight--;
    close_space_if_done(flights, space);
}

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
    if (!may_be_in_restarted_call(thread))
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

static bool has_not_run(const struct thread *thread)
{
    struct procfs_schedstat now;
    return thread_read_schedstat(thread, &now) == 0 && now.run_ns == thread->last.run_ns &&
           now.slices == thread->last.slices;
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
    return hash_inner_frames(&item->ranges[0], then) == thread->stopped_hash;
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
        told.value[REGISTER_PC] != item->registers.value[REGISTER_PC] || !has_not_run(thread))
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
    return has_not_run(thread);
}

/* Nothing was taken after all. */
static void take_back(struct flights *flights, struct thread *thread, struct item *item, uint64_t counted_tick,
                      uint64_t counted_wall_ns)
{
    thread->counted_tick = counted_tick;
    thread->counted_wall_ns = counted_wall_ns;
    drop_sample(flights, thread, item, FAILURE_NONE);
}

static void keep(struct flights *flights, struct thread *thread)
{
    thread->is_kept = true;
    flights->kept++;
    flights->kept_from += thread->counted_tick;
}

static bool are_equal(const struct procfs_schedstat *a, const struct procfs_schedstat *b)
{
    return a->run_ns == b->run_ns && a->slices == b->slices;
}

/* The stack that came with the registers, or what is there now if the thread has not run since. */
static bool take_told_stack(const struct thread *thread, const struct told *told, struct item *item)
{
    struct procfs_schedstat now;
    item->registers = told->registers;
    if (told->stack_bytes && told->stack_bytes <= item->buffer_bytes) {
        memcpy(item->buffer, told->stack, told->stack_bytes);
        item->stack = thread->stack;
        item->ranges[0] =
            (struct memory_range){.avma = told->stack_avma, .bytes = item->buffer, .size = told->stack_bytes};
        item->range_count = 1;
        return true;
    }
    return copy_stack(thread, told->registers.value[REGISTER_RSP], item) && thread_read_schedstat(thread, &now) == 0 &&
           are_equal(&now, &told->counters);
}

static void note_displaced(struct flights *flights, const struct thread *thread, const struct cpuworkers_times *times)
{
    histogram_add(&flights->displaced_ns, times->ended_ns - times->began_ns);
    if (flights->stoplog)
        stoplog_add(flights->stoplog, &(struct stop){.tid = thread->tid,
                                                     .asked_ns = times->asked_ns,
                                                     .arrived_ns = times->began_ns,
                                                     .released_ns = times->ended_ns,
                                                     .is_displaced = true});
}

bool flights_take_told(struct flights *flights, struct thread *thread, const struct told *told, bool keeps)
{
    struct process *process = thread->process;
    if (!told->has_registers || told->stat.image_hash != process->image_hash ||
        !is_known_code(process->map, told->registers.value[REGISTER_PC]))
        return false;
    /* Elsewhere it may be in a signal handler: a stop looks for the stack that this one leads to. */
    if (told->stat.state == 'R' && !told->is_where_it_was)
        return false;
    uint64_t counted_tick = thread->counted_tick;
    uint64_t counted_wall_ns = thread->counted_wall_ns;
    struct item *item = new_sample(flights, thread, thread->shared->copy_bytes);
    if (!item)
        return false;
    if (!take_told_stack(thread, told, item)) {
        take_back(flights, thread, item, counted_tick, counted_wall_ns);
        return false;
    }
    item->time_ns = clock_now_ns();
    thread->stack = item->stack;
    thread->may_lose_timeout = capture_arch.may_lose_timeout(told->call);
    if (told->times.ended_ns)
        note_displaced(flights, thread, &told->times);
    thread->reads++;
    thread->shared->wants_again = false;
    if (keeps && thread->seen_off_cpu && are_equal(&told->counters, &thread->last))
        keep(flights, thread);
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
    uint64_t counted_tick = thread->counted_tick;
    uint64_t counted_wall_ns = thread->counted_wall_ns;
    struct item *item = new_sample(flights, thread, shared->copy_bytes);
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
        take_back(flights, thread, item, counted_tick, counted_wall_ns);
        if (process->memory_was_gone)
            flights_fail(flights, thread, FAILURE_EXEC);
        return process->memory_was_gone;
    }
    shared->wants_again = false;
    thread->may_lose_timeout = capture_arch.may_lose_timeout(call.number);
    thread->reads++;
    keep(flights, thread);
    pipeline_put(flights->pipeline, item);
    return true;
}

void flights_end_keep(struct flights *flights, struct thread *thread, bool with_this_tick)
{
    if (!thread->is_kept)
        return;
    const struct targets *targets = flights->targets;
    uint64_t tick = with_this_tick ? targets->tick : targets->tick - 1;
    uint64_t wall_ns = with_this_tick ? targets->wall_ns : targets->last_wall_ns;
    thread->is_kept = false;
    flights->kept--;
    flights->kept_from -= thread->counted_tick;
    if (tick <= thread->counted_tick)
        return;
    struct item *item = take_item(flights, 0);
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

uint64_t flights_samples(const struct flights *flights)
{
    return flights->samples + flights->kept * flights->targets->tick - flights->kept_from;
}

/* The thread is freed while its stop is still to come. */
void flights_forget(struct flights *flights, const struct thread *thread)
{
    for (size_t i = 0; i < TRACER_SLOTS && thread->in_flight; i++)
        if (flights->all[i].item && flights->all[i].thread == thread)
            flights->all[i].thread = NULL;
}

void flights_count_again(struct flights *flights, struct thread *thread)
{
    flights->samples++;
    thread->in_flight->count++;
    thread->in_flight->ns += take_wall_ns(flights, thread);
}

void flights_deinit(struct flights *flights)
{
    bpfregs_free(flights->bpfregs);
    flights->bpfregs = NULL;
}

void flights_attach(struct flights *flights)
{
    tracer_set_sink(flights->tracer, finish_flight, flights);
}
