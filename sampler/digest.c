#include "sampler/digest.h"

#include "common/array.h"
#include "sampler/helperlink.h"
#include "sampler/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* What the copy has beyond what the last walk used, for calls that go deeper next time. */
    COPY_SLACK_BYTES = 16 << 10,
    COPY_LIMIT_BYTES = 16 << 20,
    COPY_DECAY = 256 /* from sample to sample; room costs nothing, the top bounds what is copied */
};

const char *failure_name(enum failure failure)
{
    static const char *const names[FAILURE_COUNT] = {
        [FAILURE_NONE] = "none",
        [FAILURE_TIMEOUT] = "timeout",
        [FAILURE_UNINTERRUPTIBLE] = "uninterruptible",
        [FAILURE_NOT_ALLOWED] = "not_allowed",
        [FAILURE_TRACED] = "traced",
        [FAILURE_FOREIGN] = "foreign_abi",
        [FAILURE_EXEC] = "exec",
        [FAILURE_NO_MAPS] = "no_maps",
        [FAILURE_ERROR] = "error",
        [FAILURE_UNWIND] = "unwind",
        [FAILURE_NO_ROOM] = "no_room",
        [FAILURE_BLOCKED] = "signals_blocked",
        [FAILURE_UNLOADED] = "unloaded",
    };
    return names[failure];
}

static int find_thread(struct digest *digest, struct thread_shared *shared)
{
    if (shared->in_profile)
        return 0;
    struct profile_thread thread = {.pid = shared->pid, .tid = shared->tid};
    int error = profile_add_thread(digest->profile, &thread, &shared->profile_thread);
    shared->in_profile = error == 0;
    return error;
}

/* What lies above the outermost frame need not be copied. */
static void learn_top(struct thread_shared *thread, const struct stack *stack, const struct item *item)
{
    uint64_t before = thread->top_avma;
    bool is_same_stack = item->stack.start_avma < before && before <= item->stack.end_avma;
    if (stack->end == STACK_CUT_COPY)
        thread->top_avma = 0; /* perhaps it was in the way */
    else if (stack->end == STACK_COMPLETE && (!is_same_stack || stack->top_avma > before))
        thread->top_avma = stack->top_avma;
}

/* Sets what the next copy of this thread's stack should have. */
static void learn(struct digest *digest, const struct item *item)
{
    struct thread_shared *thread = item->thread;
    const struct stack *stack = &digest->stack;
    digest->has_learnt |= stack->end == STACK_CUT_COPY;
    size_t now = thread->copy_bytes;
    size_t wanted = COPY_SLACK_BYTES;
    const struct memory_range *copy = &item->ranges[0];
    if (item->range_count && stack->top_avma > copy->avma)
        wanted += stack->top_avma - copy->avma;
    /* How much was missing is not known, and samples on their way now have too little too. */
    if (item->range_count && stack->end == STACK_CUT_COPY && wanted < 4 * copy->size)
        wanted = 4 * copy->size;
    if (stack->other_bytes + COPY_SLACK_BYTES > wanted)
        wanted = stack->other_bytes + COPY_SLACK_BYTES;
    if (stack->interrupted_sp_at_avma)
        thread->interrupted_sp_at_avma = stack->interrupted_sp_at_avma;
    if (wanted < now - now / COPY_DECAY) /* down slowly: the next deep call should not be cut */
        wanted = now - now / COPY_DECAY;
    learn_top(thread, stack, item);
    thread->copy_bytes = wanted < COPY_LIMIT_BYTES ? wanted : COPY_LIMIT_BYTES;
}

static int add_frames(struct digest *digest, const struct item *item, uint32_t *ret_stack, bool *ret_in_place)
{
    *ret_in_place = true;
    const struct stack *stack = &digest->stack;
    int error = array_room(&digest->frames, &digest->frame_capacity, stack->count);
    for (size_t i = 0; i < stack->count && !error; i++) {
        struct place place = place_of_frame(item->space, item->map, &stack->frames[i]);
        if (!place.image && !place.space) {
            item->space->maps_stale = true;
            digest->has_learnt = true;
            *ret_in_place = false;
        } else if (place.space) {
            space_find_perfmap(item->space, item->thread->tid);
        }
        error = profile_add_frame(digest->profile, &place, &digest->frames[i]);
    }
    return error ? error : profile_add_stack(digest->profile, digest->frames, stack->count, ret_stack);
}

static int unwind_item(struct digest *digest, struct item *item, const struct memory_reader *reader)
{
    struct space *space = item->space;
    if (!space->unwind)
        space->unwind = unwind_space_new(digest->unwinder);
    if (!space->unwind)
        return -ENOMEM;
    struct snapshot snapshot = {
        .registers = item->registers,
        .stack_start_avma = item->stack.start_avma,
        .stack_end_avma = item->stack.end_avma,
        .range_count = item->range_count,
    };
    memcpy(snapshot.ranges, item->ranges, sizeof(snapshot.ranges));
    return unwind_walk(digest->unwinder, space->unwind, &item->map->code, &snapshot, reader, &digest->stack);
}

/* As the helper in the target has walked it. */
static int take_frames(struct digest *digest, const struct item *item)
{
    struct stack *stack = &digest->stack;
    stack_clear(stack);
    for (size_t i = 0; i < item->frame_count; i++) {
        int error = stack_add(stack, item->frames[i], i == 0, i ? FRAME_BY_HELPER : FRAME_INNERMOST);
        if (error)
            return error;
    }
    stack->end = item->end;
    digest->counters.frames_by_helper += item->frame_count - 1;
    return 0;
}

/*
 * Code may have gone, and other code have come to its place, between a helper's sample and our look at the maps: the
 * stack is cut where that may be. -EAGAIN: nothing of it is certain.
 */
static int cut_uncertain(struct stack *stack, const struct item *item)
{
    for (size_t i = 0; i < stack->count; i++) {
        const struct frame *frame = &stack->frames[i];
        if (certaincode_has(item->certain, frame_lookup_avma(frame->avma, frame->exact)))
            continue;
        if (i == 0)
            return -EAGAIN;
        stack->count = i;
        stack->end = STACK_CUT_BAD_PC;
    }
    return 0;
}

/* A stop tells all registers, and so does a signal. */
static bool is_unstopped(const struct item *item)
{
    return !item->helper && item->registers.known != REGISTERS_ALL;
}

/*
 * Of a sleeping thread the kernel tells no callee-saved registers; those of an earlier stop are without what a system
 * call destroys, and BPF tells all but rax.
 */
static bool has_stopped_registers(const struct item *item)
{
    return registers_known(&item->registers, REGISTER_RBP) && !registers_known(&item->registers, REGISTER_RCX);
}

/* A sample of a sleeping thread, which stands until it runs: could it be better, now that the unwinder has seen it? */
static void note_unstopped(struct digest *digest, const struct item *item, bool is_in_place)
{
    enum stack_end end = digest->stack.end;
    /* For want of registers: the next sample of this thread is taken by a stop. */
    bool lacks_registers = !registers_known(&item->registers, REGISTER_RCX);
    bool wants_stop = lacks_registers && (end == STACK_CUT_BAD_RULE || end == STACK_CUT_NO_RULE);
    if (wants_stop)
        thread_note_stuck(item->thread, &item->registers);
    if (wants_stop || end == STACK_CUT_COPY || !is_in_place) {
        item->thread->wants_again = true;
        item->space->wants_look = true;
        digest->has_learnt = true;
    }
}

static void count(struct digest *digest, const struct sample_outcome *outcome, uint64_t count)
{
    struct digest_counters *counters = &digest->counters;
    counters->samples += count;
    if (outcome->is_unstopped)
        counters->unstopped += count;
    if (outcome->is_inferred)
        counters->inferred += count;
    if (outcome->failure == FAILURE_NONE)
        counters->ends[outcome->end] += count;
    else
        counters->failed[outcome->failure] += count;
}

static int add_sample(struct digest *digest, const struct item *item)
{
    const struct sample_outcome *outcome = &item->thread->outcome;
    struct profile_sample sample = {.thread = item->thread->profile_thread,
                                    .thread_name = outcome->thread_name,
                                    .stack = outcome->stack,
                                    .state = outcome->state,
                                    .account = (enum sample_account)outcome->account,
                                    .kind = (enum sample_kind)outcome->kind,
                                    .count = item->count,
                                    .ns = item->ns};
    count(digest, outcome, item->count);
    return profile_add_sample(digest->profile, &sample);
}

/* The walk has ended: its frames, and what is known of the thread now. */
static int add_walk(struct digest *digest, const struct item *item, struct sample_outcome *outcome)
{
    bool is_in_place;
    outcome->kind = digest->stack.end == STACK_COMPLETE ? SAMPLE_WHOLE : SAMPLE_TRUNCATED;
    outcome->end = (uint8_t)digest->stack.end;
    outcome->is_unstopped = is_unstopped(item);
    outcome->is_inferred = outcome->is_unstopped && (digest->stack.inferred > 0 || has_stopped_registers(item));
    digest->counters.frames += digest->stack.count;
    if (!item->frame_count)
        learn(digest, item);
    int error = add_frames(digest, item, &outcome->stack, &is_in_place);
    if (outcome->is_unstopped) {
        digest->counters.by_bpf += registers_known(&item->registers, REGISTER_RCX);
        note_unstopped(digest, item, is_in_place);
    }
    return error;
}

static int note_state(struct digest *digest, const struct item *item, struct sample_outcome *outcome)
{
    char name[THREAD_STATE_NAME_BYTES];
    outcome->account = item->state == THREAD_RUNNING    ? ACCOUNT_RUN
                       : item->state == THREAD_RUNNABLE ? ACCOUNT_WAIT
                                                        : ACCOUNT_REST;
    outcome->state = 0;
    if (item->state == THREAD_STATE_UNKNOWN)
        return 0;
    thread_state_name(item->state, item->call, name);
    return strings_add(&digest->profile->strings, name, &outcome->state);
}

int digest_add(struct digest *digest, struct item *item, const struct memory_reader *reader)
{
    struct sample_outcome *outcome = &item->thread->outcome;
    *outcome = (struct sample_outcome){.kind = SAMPLE_FAILED};
    int error = find_thread(digest, item->thread);
    if (!error)
        error = strings_add(&digest->profile->strings, item->comm, &outcome->thread_name);
    if (!error)
        error = note_state(digest, item, outcome);
    if (error)
        return error;
    digest->profile->threads[item->thread->profile_thread].name = outcome->thread_name;
    if (item->failure == FAILURE_NONE) {
        error = item->frame_count ? take_frames(digest, item) : unwind_item(digest, item, reader);
        if (!error && item->helper && !item->frame_count)
            helperlink_learn(item->helper, digest->unwinder, item, &digest->stack);
        if (!error && item->is_doubtful)
            error = cut_uncertain(&digest->stack, item);
        if (error == -EINVAL || error == -EAGAIN)
            item->failure = error == -EINVAL ? FAILURE_UNWIND : FAILURE_UNLOADED;
        else if (!error)
            error = add_walk(digest, item, outcome);
        if (error && error != -EINVAL && error != -EAGAIN)
            return error;
    }
    outcome->failure = (uint8_t)item->failure;
    outcome->is_known = true;
    return add_sample(digest, item);
}

int digest_repeat(struct digest *digest, const struct item *item)
{
    if (!item->thread->outcome.is_known)
        return 0;
    digest->counters.kept += item->count;
    return add_sample(digest, item);
}

int digest_init(struct digest *digest, enum unwind_mode mode, size_t max_depth, struct profile *profile)
{
    *digest = (struct digest){.profile = profile, .unwinder = unwinder_new(mode, max_depth)};
    return digest->unwinder ? 0 : -ENOMEM;
}

void digest_deinit(struct digest *digest)
{
    unwinder_free(digest->unwinder);
    stack_deinit(&digest->stack);
    free(digest->frames);
    *digest = (struct digest){0};
}

void digest_finish(struct digest *digest, uint64_t unwind_ns)
{
    digest->counters.unwind_ns = unwind_ns;
    digest->counters.unwind = unwinder_counters(digest->unwinder);
}
