#include "unwind/unwind.h"

#include "unwind/callsite.h"
#include "unwind/cfi.h"
#include "unwind/framepointer.h"
#include "unwind/origin.h"
#include "unwind/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct unwinder {
    enum unwind_mode mode;
    size_t max_depth;
    struct cfi *cfi;
    struct callsite_cache image_callsites;
    struct unwind_counters counters;
};

struct unwind_space {
    /* Call sites in anonymous memory, as long as the mappings are these. */
    uint64_t generation;
    struct callsite_cache callsites;
};

/* Signal frames lead to other stacks, upward or downward; one that comes back to where another was is a circle. */
enum { SIGNAL_FRAMES_MAX = 32 };

struct walk {
    struct unwinder *unwinder;
    struct callsites callsites;
    struct view view;
    struct registers registers; /* of the frame that was added last */
    bool exact;
    uint64_t signal_sp_avma[SIGNAL_FRAMES_MAX];
    size_t signal_count;
};

/* How one step ended: with a caller, or with an end of the stack. */
enum step_kind { STEP_CALLER, STEP_END, STEP_NO_MEMORY };

struct step {
    enum step_kind kind;
    enum stack_end end; /* STEP_END */
    enum frame_by by;   /* STEP_CALLER, with the fields below */
    struct registers caller;
    bool exact; /* the caller was interrupted */
};

static struct step step_end(enum stack_end end)
{
    return (struct step){.kind = STEP_END, .end = end};
}

static struct step step_by_cfi(struct walk *walk, const struct cfi_rule *rule, uint64_t lookup_avma)
{
    if (cfi_rule_kind(rule) == CFI_NONE)
        return step_end(STACK_CUT_NO_RULE);
    if (cfi_rule_kind(rule) == CFI_BAD)
        return step_end(STACK_CUT_BAD_RULE);
    struct step step = {.kind = STEP_CALLER, .by = FRAME_BY_CFI, .exact = cfi_rule_is_signal(rule)};
    switch (cfi_apply(walk->unwinder->cfi, rule, &walk->view, &walk->registers, lookup_avma, &step.caller)) {
    case CFI_STEPPED:
        return step;
    case CFI_OUTERMOST:
        return step_end(STACK_COMPLETE);
    case CFI_NEEDS_MEMORY:
        return step_end(walk->view.cut ? STACK_CUT_COPY : STACK_CUT_MEMORY);
    case CFI_NO_PROGRESS:
        return step_end(STACK_CUT_NO_PROGRESS);
    case CFI_UNUSABLE:
        break;
    }
    return step_end(STACK_CUT_BAD_RULE);
}

static struct step step_by_frame_pointer(struct walk *walk)
{
    struct step step = {.kind = STEP_CALLER, .by = FRAME_BY_FP};
    switch (framepointer_step(&walk->view, walk->callsites, &walk->registers, walk->exact, &step.caller)) {
    case FRAMEPOINTER_STEPPED:
        return step;
    case FRAMEPOINTER_OUTERMOST:
        return step_end(STACK_COMPLETE);
    case FRAMEPOINTER_CUT:
        return step_end(STACK_CUT_COPY);
    case FRAMEPOINTER_NOT_BELIEVED:
        break;
    }
    return step_end(STACK_CUT_NO_RULE);
}

/* The word at the stack pointer is the return address, if it is behind a call; else the stack ends so. */
static struct step step_by_return_at_sp(struct walk *walk, enum stack_end otherwise)
{
    uint64_t return_avma;
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    if (!view_read(&walk->view, sp, &return_avma, sizeof(return_avma)) ||
        !framepointer_is_return(&walk->view, walk->callsites, return_avma))
        return step_end(otherwise);
    /* Not by a frame pointer, but believed for the same reason. */
    struct step step = {.kind = STEP_CALLER, .by = FRAME_BY_FP, .caller = walk->registers};
    step.caller.value[REGISTER_PC] = return_avma;
    step.caller.value[REGISTER_RSP] = sp + sizeof(return_avma);
    return step;
}

/* The thread went where no code is: it called through a bad pointer, and the call has pushed where it came from. */
static struct step step_from_bad_pc(struct walk *walk)
{
    return step_by_return_at_sp(walk, STACK_CUT_BAD_PC);
}

static struct step step_take(struct walk *walk)
{
    uint64_t lookup_avma = frame_lookup_avma(walk->registers.value[REGISTER_PC], walk->exact);
    const struct code_region *region = codemap_find(walk->view.map, lookup_avma);
    if (!region)
        return step_from_bad_pc(walk);
    const struct cfi_rule *rule = cfi_find(walk->unwinder->cfi, region, lookup_avma);
    if (!rule)
        return (struct step){.kind = STEP_NO_MEMORY};
    bool has_rule = cfi_rule_kind(rule) != CFI_NONE;

    switch (origin_find(&walk->view, region, &walk->registers, lookup_avma, walk->exact, has_rule)) {
    case ORIGIN_OUTERMOST:
        return step_end(STACK_COMPLETE);
    case ORIGIN_ENTRY:
        return step_by_return_at_sp(walk, STACK_COMPLETE);
    case ORIGIN_RETURN_AT_SP:
        return step_by_return_at_sp(walk, STACK_CUT_NO_RULE);
    case ORIGIN_NONE:
        break;
    }
    switch (walk->unwinder->mode) {
    case UNWIND_DWARF:
        break;
    case UNWIND_AUTO:
        if (!has_rule)
            return step_by_frame_pointer(walk);
        break;
    case UNWIND_FP:
        /* In a signal trampoline rbp still is what the interrupted code had: its own caller's record, not its. */
        if (!has_rule || (!walk->exact && !cfi_rule_is_signal(rule))) {
            uint64_t top_avma = walk->view.top_avma;
            struct step step = step_by_frame_pointer(walk);
            if (step.kind == STEP_CALLER || !has_rule)
                return step;
            walk->view.top_avma = top_avma; /* what it looked for in vain is not needed */
        }
        break;
    }
    return step_by_cfi(walk, rule, lookup_avma);
}

/* A caller's frame lies above; only an interrupted one may lie anywhere, and then not where an earlier one was. */
static bool step_makes_progress(struct walk *walk, const struct step *step)
{
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    uint64_t caller_sp = step->caller.value[REGISTER_RSP];
    if (!step->exact) {
        /* Code that has popped its return address into a register (vfork of glibc) has its CFA at the stack pointer. */
        bool popped =
            walk->exact && caller_sp == sp && step->caller.value[REGISTER_PC] != walk->registers.value[REGISTER_PC];
        return caller_sp > sp || popped;
    }
    for (size_t i = 0; i < walk->signal_count; i++) {
        if (walk->signal_sp_avma[i] == sp)
            return false;
    }
    if (walk->signal_count == SIGNAL_FRAMES_MAX)
        return false;
    walk->signal_sp_avma[walk->signal_count++] = sp;
    return true;
}

/* The caller's pc is code; or the thread got a signal after a call through a bad pointer, which can be seen. */
static bool caller_is_credible(struct walk *walk, const struct step *step)
{
    uint64_t pc = step->caller.value[REGISTER_PC];
    if (codemap_find(walk->view.map, frame_lookup_avma(pc, step->exact)))
        return true;
    if (!step->exact)
        return false;
    struct walk interrupted = *walk;
    interrupted.registers = step->caller;
    return step_from_bad_pc(&interrupted).kind == STEP_CALLER;
}

static enum stack_end step_judge(struct walk *walk, const struct step *step)
{
    if (step->caller.value[REGISTER_PC] == 0 && !step->exact)
        return STACK_COMPLETE;
    if (!step_makes_progress(walk, step))
        return STACK_CUT_NO_PROGRESS;
    if (!caller_is_credible(walk, step))
        return STACK_CUT_BAD_PC;
    return STACK_END_COUNT; /* it goes on */
}

static void count_frame(struct unwinder *unwinder, enum frame_by by)
{
    if (by == FRAME_BY_FP)
        unwinder->counters.frames_fp++;
    else
        unwinder->counters.frames_libunwind++;
}

static int walk_callers(struct walk *walk, struct stack *stack)
{
    for (;;) {
        struct step step = step_take(walk);
        if (step.kind == STEP_NO_MEMORY)
            return -ENOMEM;
        enum stack_end end = step.kind == STEP_END ? step.end : step_judge(walk, &step);
        if (end == STACK_END_COUNT && stack->count >= walk->unwinder->max_depth)
            end = STACK_CUT_DEPTH;
        if (end != STACK_END_COUNT) {
            stack->end = end;
            return 0;
        }
        int err = stack_add(stack, step.caller.value[REGISTER_PC], step.exact, step.by);
        if (err)
            return err;
        count_frame(walk->unwinder, step.by);
        walk->registers = step.caller;
        walk->exact = step.exact;
    }
}

int unwind_walk(struct unwinder *unwinder, struct unwind_space *space, const struct codemap *map,
                const struct snapshot *snapshot, const struct memory_reader *reader, struct stack *ret_stack)
{
    stack_clear(ret_stack);
    if (!registers_known(&snapshot->registers, REGISTER_PC) || !registers_known(&snapshot->registers, REGISTER_RSP))
        return -EINVAL;
    if (space->generation != map->generation) {
        memset(&space->callsites, 0, sizeof(space->callsites));
        space->generation = map->generation;
    }
    struct walk walk = {
        .unwinder = unwinder,
        .callsites = {.images = &unwinder->image_callsites, .anonymous = &space->callsites},
        .view = {.map = map, .snapshot = snapshot, .reader = reader},
        .registers = snapshot->registers,
        .exact = true,
    };
    int err = stack_add(ret_stack, walk.registers.value[REGISTER_PC], true, FRAME_INNERMOST);
    if (!err)
        err = walk_callers(&walk, ret_stack);
    ret_stack->top_avma = walk.view.top_avma;
    return err;
}

struct unwinder *unwinder_new(enum unwind_mode mode, size_t max_depth)
{
    struct unwinder *unwinder = calloc(1, sizeof(*unwinder));
    if (!unwinder)
        return NULL;
    unwinder->mode = mode;
    unwinder->max_depth = max_depth;
    unwinder->cfi = cfi_new();
    if (!unwinder->cfi) {
        free(unwinder);
        return NULL;
    }
    return unwinder;
}

void unwinder_free(struct unwinder *unwinder)
{
    if (!unwinder)
        return;
    cfi_free(unwinder->cfi);
    free(unwinder);
}

struct unwind_space *unwind_space_new(struct unwinder *unwinder)
{
    (void)unwinder;
    return calloc(1, sizeof(struct unwind_space));
}

void unwind_space_free(struct unwind_space *space)
{
    free(space);
}

struct unwind_counters unwinder_counters(const struct unwinder *unwinder)
{
    return unwinder->counters;
}
