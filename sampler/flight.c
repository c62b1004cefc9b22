#include "sampler/flight.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "sampler/bpfregs.h"
#include "sampler/flightparts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* So often may one system call be started again, and its timeout with it, before a stop ends it after all. */
enum { RESTARTS_MAX = 4 };

/* Nothing of the space comes any more: the unwinding thread may forget what it has of it. */
static void close_space_if_done(struct flights *flights, struct space *space)
{
    if (!space->ended || space->in_flight)
        return;
    struct item *item = flights_take_item(flights, 0);
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

static struct flight *find_free(struct flights *flights)
{
    for (size_t i = 0; i < TRACER_SLOTS; i++)
        if (!flights->all[i].item)
            return &flights->all[i];
    return NULL;
}

bool flights_may_be_in_restarted_call(const struct thread *thread)
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
    if (!flights_may_be_in_restarted_call(thread))
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
    struct item *item = flights_new_sample(flights, thread, copies * copy_bytes);
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
        flights_drop_sample(flights, thread, item, start_failure(flights, thread, error));
        return;
    }
    if (thread->state != THREAD_RUNNABLE && thread->state != THREAD_RUNNING)
        item->call = thread->call; /* that it has just been found in */
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

uint64_t flights_hash_inner_frames(const struct memory_range *stack, const struct registers *registers)
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
    thread->stopped_hash = flights_hash_inner_frames(&stack, &request->registers);
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
    if (request->outcome == TRACER_CAPTURED && failure == FAILURE_NONE && !flights->is_wall && request->in_wait) {
        if (thread)
            flights_owe(thread, item->count, item->ns);
        flights_drop_sample(flights, thread, item, FAILURE_NONE);
    } else if (request->outcome == TRACER_CAPTURED && failure == FAILURE_NONE) {
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
        flights_drop_sample(flights, thread, item, request->outcome == TRACER_VANISHED ? FAILURE_NONE : failure);
    }
    space->in_flight--;
    close_space_if_done(flights, space);
}

/* The thread is freed while its stop is still to come. */
void flights_forget(struct flights *flights, const struct thread *thread)
{
    for (size_t i = 0; i < TRACER_SLOTS && thread->in_flight; i++)
        if (flights->all[i].item && flights->all[i].thread == thread)
            flights->all[i].thread = NULL;
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
