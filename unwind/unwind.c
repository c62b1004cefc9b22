#include "unwind/unwind.h"

#include "unwind/callsite.h"
#include "unwind/cfi.h"
#include "unwind/framepointer.h"
#include "unwind/inference.h"
#include "unwind/inspect.h"
#include "unwind/origin.h"
#include "unwind/row.h"
#include "unwind/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From the first frame on whose rbp was inferred, a walk is on trial. This is as it was before. */
struct trial {
    size_t frame_count;
    struct view view;
    uint64_t interrupted_sp_at_avma;
    uint64_t frames_by[FRAME_BY_COUNT];
};

struct unwinder {
    enum unwind_mode mode;
    size_t max_depth;
    struct cfi *cfi;
    struct callsite_cache image_callsites;
    struct inference *inference;
    struct trial trial; /* of the walk in work; not in it, since few need it */
    uint64_t frames_by[FRAME_BY_COUNT];
};

struct unwind_space {
    /* Call sites in anonymous memory, as long as the mappings are these. */
    uint64_t generation;
    struct callsite_cache callsites;
};

/* Signal frames lead to other stacks, upward or downward; one that comes back to where another was is a circle. */
enum { SIGNAL_FRAMES_MAX = 32 };

/* Mostly one is enough: further out rbp is known, since that frame has saved it. */
enum { INFERRED_MAX = 4 };

struct walk {
    struct unwinder *unwinder;
    struct callsites callsites;
    struct view view;
    struct registers registers; /* of the frame that was added last; from a step on, its caller's */
    bool exact;
    enum frame_by by;                 /* likewise */
    bool entered;                     /* no call leads to the frame: see find_rule */
    const struct code_region *region; /* of the frame's lookup address; NULL: none */
    uint64_t signal_sp_avma[SIGNAL_FRAMES_MAX];
    size_t signal_count;
    const struct stack *stack; /* as it was when the step began */
    unsigned inferred;         /* frames; 0: there is no trial */
    bool is_doubtful;          /* in a trial: a frame was entered in another way than by a call or a signal */
};

/* How one step ended: with a caller, whose registers are the walk's then, or with an end of the stack. */
enum step_kind { STEP_CALLER, STEP_END, STEP_NO_MEMORY };

struct step {
    enum step_kind kind;
    enum stack_end end; /* STEP_END */
    enum frame_by by;   /* STEP_CALLER */
    bool exact;         /* STEP_CALLER: the caller was interrupted */
};

static struct step step_end(enum stack_end end)
{
    return (struct step){.kind = STEP_END, .end = end};
}

static struct step step_caller(enum frame_by by, bool exact)
{
    return (struct step){.kind = STEP_CALLER, .by = by, .exact = exact};
}

/* The region of an address; mostly that of the frame before. */
static const struct code_region *find_region(const struct walk *walk, uint64_t avma)
{
    const struct code_region *last = walk->region;
    if (last && avma >= last->start_avma && avma < last->end_avma)
        return last;
    return codemap_find(walk->view.map, avma);
}

/* The walk ends here, unless the frame pointer that it lacks can be inferred. */
static bool infer_rbp(struct walk *walk, const struct inferred_frame *frame)
{
    struct unwinder *unwinder = walk->unwinder;
    struct trial *trial = &unwinder->trial;
    uint64_t rbp;
    if (walk->inferred == INFERRED_MAX ||
        !inference_find_rbp(unwinder->inference, unwinder->cfi, &walk->view, frame, &rbp))
        return false;
    if (walk->inferred == 0) {
        trial->frame_count = walk->stack->count;
        trial->view = walk->view;
        trial->interrupted_sp_at_avma = walk->stack->interrupted_sp_at_avma;
        memcpy(trial->frames_by, unwinder->frames_by, sizeof(trial->frames_by));
    }
    walk->inferred++;
    walk->registers.value[REGISTER_RBP] = rbp;
    walk->registers.known |= 1U << REGISTER_RBP;
    return true;
}

static struct step step_by_inference(struct walk *walk, const struct rule *rule, uint64_t lookup_avma)
{
    struct rule kept = *rule; /* looking at the function's other rows may make the cache forget */
    struct inferred_frame frame = {
        .region = walk->region,
        .lookup_avma = lookup_avma,
        .exact = walk->exact,
        .sp_avma = walk->registers.value[REGISTER_RSP],
        .cfa_off = kept.cfa_off,
    };
    if (!infer_rbp(walk, &frame))
        return step_end(STACK_CUT_BAD_RULE);
    switch (rule_apply_plain(&kept, &walk->view, &walk->registers)) {
    case RULE_STEPPED:
        break;
    case RULE_NEEDS_MEMORY:
        return step_end(walk->view.cut ? STACK_CUT_COPY : STACK_CUT_BAD_RULE);
    case RULE_OUTERMOST:
    case RULE_UNUSABLE:
        return step_end(STACK_CUT_BAD_RULE);
    }
    if (!inference_is_caller(walk->unwinder->inference, walk->unwinder->cfi, &walk->view, walk->callsites, &frame,
                             walk->registers.value[REGISTER_PC]))
        return step_end(STACK_CUT_BAD_RULE);
    return step_caller(FRAME_BY_CFI, kept.signal);
}

/* A frame pointer is needed that is not known, and nothing else. */
static bool lacks_rbp(const struct walk *walk, const struct rule *rule)
{
    return rule->kind == RULE_PLAIN && rule->return_in == RETURN_AT_CFA && rule->cfa_register == REGISTER_RBP &&
           !registers_known(&walk->registers, REGISTER_RBP);
}

static struct step step_by_cfi(struct walk *walk, const struct rule *rule, uint64_t lookup_avma)
{
    if (rule->kind == RULE_NONE)
        return step_end(STACK_CUT_NO_RULE);
    if (rule->kind == RULE_BAD)
        return step_end(STACK_CUT_BAD_RULE);
    enum frame_by by = rule->kind == RULE_FOREIGN ? FRAME_BY_LIBUNWIND : FRAME_BY_CFI;
    bool exact = rule->signal;
    walk->view.failed = false;
    walk->view.cut = false;
    if (lacks_rbp(walk, rule))
        return step_by_inference(walk, rule, lookup_avma);
    switch (cfi_apply(walk->unwinder->cfi, rule, walk->region, lookup_avma, &walk->view, &walk->registers)) {
    case RULE_STEPPED:
        return step_caller(by, exact);
    case RULE_OUTERMOST:
        return step_end(STACK_COMPLETE);
    case RULE_NEEDS_MEMORY:
        return step_end(walk->view.cut ? STACK_CUT_COPY : STACK_CUT_MEMORY);
    case RULE_UNUSABLE:
        break;
    }
    return step_end(STACK_CUT_BAD_RULE);
}

static struct step step_by_frame_pointer(struct walk *walk)
{
    struct registers caller;
    bool is_first = walk->exact || walk->by != FRAME_BY_FP;
    switch (framepointer_step(&walk->view, walk->callsites, &walk->registers, is_first, &caller)) {
    case FRAMEPOINTER_STEPPED:
        walk->registers = caller;
        return step_caller(FRAME_BY_FP, false);
    case FRAMEPOINTER_OUTERMOST:
        return step_end(STACK_COMPLETE);
    case FRAMEPOINTER_CUT:
        return step_end(STACK_CUT_COPY);
    case FRAMEPOINTER_NOT_BELIEVED:
        break;
    }
    return step_end(STACK_CUT_NO_RULE);
}

/* The word so many words above the stack pointer is the return address, if it is behind a call; else the stack ends so.
 */
static struct step step_by_return_at_sp(struct walk *walk, unsigned words, enum stack_end otherwise)
{
    uint64_t return_avma;
    uint64_t place = walk->registers.value[REGISTER_RSP] + words * sizeof(return_avma);
    if (!view_read(&walk->view, place, &return_avma, sizeof(return_avma)) ||
        !framepointer_is_return(&walk->view, walk->callsites, return_avma))
        return step_end(otherwise);
    walk->registers.value[REGISTER_PC] = return_avma;
    walk->registers.value[REGISTER_RSP] = place + sizeof(return_avma);
    walk->registers.known &= RULE_PRESERVED | 1U << REGISTER_RSP | 1U << REGISTER_PC;
    return step_caller(FRAME_BY_INSPECTION, false);
}

/* The thread went where no code is: it called through a bad pointer, and the call has pushed where it came from. */
static struct step step_from_bad_pc(struct walk *walk)
{
    return step_by_return_at_sp(walk, 0, STACK_CUT_BAD_PC);
}

/* struct ucontext at the stack pointer: flags, link, stack (40 bytes), then the registers (asm/sigcontext.h). */
static struct step step_by_ucontext(struct walk *walk)
{
    enum { REGISTERS_OFF = 40, UCONTEXT_REGISTERS = 17 };
    static const uint8_t order[UCONTEXT_REGISTERS] = {
        REGISTER_R8,  REGISTER_R9,  REGISTER_R10, REGISTER_R11, REGISTER_R12, REGISTER_R13,
        REGISTER_R14, REGISTER_R15, REGISTER_RDI, REGISTER_RSI, REGISTER_RBP, REGISTER_RBX,
        REGISTER_RDX, REGISTER_RAX, REGISTER_RCX, REGISTER_RSP, REGISTER_PC};
    uint64_t values[UCONTEXT_REGISTERS];
    if (!view_read(&walk->view, walk->registers.value[REGISTER_RSP] + REGISTERS_OFF, values, sizeof(values)))
        return step_end(walk->view.cut ? STACK_CUT_COPY : STACK_CUT_MEMORY);
    for (size_t i = 0; i < UCONTEXT_REGISTERS; i++)
        walk->registers.value[order[i]] = values[i];
    walk->registers.known = REGISTERS_ALL;
    return step_caller(FRAME_BY_INSPECTION, true);
}

static struct step step_by_inspection(struct walk *walk, const struct inspection *inspection)
{
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    struct step step = step_by_return_at_sp(walk, inspection->return_words, STACK_CUT_NO_RULE);
    if (step.kind == STEP_CALLER && inspection->rbp_at_sp &&
        !view_try_word(&walk->view, sp, &walk->registers.value[REGISTER_RBP]))
        walk->registers.known &= ~(1U << REGISTER_RBP);
    return step;
}

/* Does a call stand before the frame's address? */
static enum callsite_verdict find_callsite(const struct walk *walk, uint64_t pc)
{
    return callsites_find(walk->callsites, &walk->view, walk->region, pc);
}

/*
 * In an image the bytes before a trampoline may be a call that does not return. JIT code is not worth the doubt: a look
 * at it is a system call that takes a lock of the target's, for each frame of each sample.
 */
static bool is_sigreturn(const struct walk *walk, uint64_t pc)
{
    bool may_be = walk->exact || walk->region->image || find_callsite(walk, pc) == CALLSITE_OTHER;
    return may_be && inspect_is_sigreturn(&walk->view, walk->region, pc);
}

/* No unwind information covers the address. */
static struct step step_without_rule(struct walk *walk)
{
    uint64_t pc = walk->registers.value[REGISTER_PC];
    if (is_sigreturn(walk, pc))
        return step_by_ucontext(walk);
    if (walk->unwinder->mode == UNWIND_DWARF || walk->entered)
        return step_end(STACK_CUT_NO_RULE);
    struct step step;
    struct inspection inspection;
    if (walk->exact && inspect_find(&walk->view, walk->region, pc, &inspection)) {
        step = step_by_inspection(walk, &inspection);
        if (step.kind == STEP_CALLER)
            return step;
    }
    step = step_by_frame_pointer(walk);
    unsigned words;
    if (step.kind == STEP_END && step.end == STACK_CUT_NO_RULE && !walk->exact &&
        origin_is_near(&walk->view, walk->callsites, &walk->registers, &words))
        return step_by_return_at_sp(walk, words, STACK_CUT_NO_RULE);
    return step;
}

/*
 * By the frame pointer, if it can be believed: unwind information, where there is some, must not say otherwise. In a
 * signal trampoline rbp still is what the interrupted code had: its own caller's record, not its.
 */
static bool step_by_frame_pointer_first(struct walk *walk, const struct rule *rule, struct step *ret_step)
{
    enum { RECORD_BYTES = 16 };
    uint64_t cfa;
    if (walk->exact || rule->signal || !rule_find_cfa(rule, &walk->registers, &cfa) ||
        !registers_known(&walk->registers, REGISTER_RBP) || walk->registers.value[REGISTER_RBP] + RECORD_BYTES != cfa)
        return false;
    struct view before = walk->view;
    *ret_step = step_by_frame_pointer(walk);
    if (ret_step->kind == STEP_CALLER)
        return true;
    view_restore(&walk->view, &before); /* what it looked for in vain is not needed */
    return false;
}

/*
 * A return address that no call stands before was not made by one: a signal trampoline, the start of a coroutine. It is
 * where the frame begins, not where it goes on: its own rules and name are those of that address, not of the function
 * before it, and a frame pointer there is somebody else's. Looked at only where that function ends, or nothing is
 * known.
 */
static bool was_called(const struct walk *walk, const struct rule *rule, const struct frame *frame)
{
    uint64_t pc = frame->avma;
    if (frame->by == FRAME_BY_FP && !walk->region->image)
        return true; /* looked at already, by framepointer_step */
    if (rule->kind != RULE_NONE && !rulecache_row_ends(rule, pc - walk->region->bias))
        return true;
    return find_callsite(walk, pc) != CALLSITE_OTHER;
}

/* The rule of the frame; NULL: no memory. Frames that were not called become exact ones. */
static const struct rule *find_rule(struct walk *walk, struct frame *frame, uint64_t *ret_lookup_avma)
{
    uint64_t pc = walk->registers.value[REGISTER_PC];
    *ret_lookup_avma = frame_lookup_avma(pc, walk->exact);
    walk->entered = false;
    const struct rule *rule = cfi_find(walk->unwinder->cfi, walk->region, *ret_lookup_avma);
    if (!rule || walk->exact || was_called(walk, rule, frame))
        return rule;
    const struct code_region *region = find_region(walk, pc);
    if (!region)
        return rule;
    walk->entered = true;
    walk->exact = true;
    walk->region = region;
    frame->exact = true;
    *ret_lookup_avma = pc;
    if (walk->inferred > 0 && !inspect_is_sigreturn(&walk->view, region, pc) &&
        !inspect_is_thread_end(&walk->view, region, pc))
        walk->is_doubtful = true;
    return cfi_find(walk->unwinder->cfi, region, pc);
}

static struct step step_take(struct walk *walk, struct frame *frame)
{
    if (!walk->region)
        return step_from_bad_pc(walk);
    uint64_t lookup_avma;
    const struct rule *rule = find_rule(walk, frame, &lookup_avma);
    if (!rule)
        return (struct step){.kind = STEP_NO_MEMORY};
    bool has_rule = rule->kind != RULE_NONE;
    if (walk->exact || !has_rule) {
        switch (origin_find(&walk->view, walk->region, &walk->registers, lookup_avma, walk->exact && !walk->entered,
                            has_rule)) {
        case ORIGIN_OUTERMOST:
            return step_end(STACK_COMPLETE);
        case ORIGIN_ENTRY:
            return step_by_return_at_sp(walk, 0, STACK_COMPLETE);
        case ORIGIN_RETURN_AT_SP:
            return step_by_return_at_sp(walk, 0, STACK_CUT_NO_RULE);
        case ORIGIN_NONE:
            break;
        }
    }
    if (!has_rule)
        return step_without_rule(walk);
    /* Go's trampoline has unwind information, which says that it was called. */
    if (walk->entered && !rule->signal &&
        inspect_is_sigreturn(&walk->view, walk->region, walk->registers.value[REGISTER_PC]))
        return step_by_ucontext(walk);
    struct step step;
    if (walk->unwinder->mode == UNWIND_FP && step_by_frame_pointer_first(walk, rule, &step))
        return step;
    return step_by_cfi(walk, rule, lookup_avma);
}

/* What is to be compared with the caller. */
struct frame_place {
    uint64_t pc_avma;
    uint64_t sp_avma;
};

/* A caller's frame lies above; only an interrupted one may lie anywhere, and then not where an earlier one was. */
static bool step_makes_progress(struct walk *walk, const struct step *step, struct frame_place frame)
{
    uint64_t caller_sp = walk->registers.value[REGISTER_RSP];
    if (!step->exact) {
        /* Code that has popped its return address into a register (vfork of glibc) has its CFA at the stack pointer. */
        bool popped = walk->exact && !walk->entered && caller_sp == frame.sp_avma &&
                      walk->registers.value[REGISTER_PC] != frame.pc_avma;
        return caller_sp > frame.sp_avma || popped;
    }
    for (size_t i = 0; i < walk->signal_count; i++) {
        if (walk->signal_sp_avma[i] == frame.sp_avma)
            return false;
    }
    if (walk->signal_count == SIGNAL_FRAMES_MAX)
        return false;
    walk->signal_sp_avma[walk->signal_count++] = frame.sp_avma;
    return true;
}

/* The thread got a signal after a call through a bad pointer, which can be seen. */
static bool was_bad_call(const struct walk *walk)
{
    struct walk interrupted = *walk;
    return step_from_bad_pc(&interrupted).kind == STEP_CALLER;
}

/* Is the caller one? Its region becomes the walk's. STACK_END_COUNT: it goes on. */
static enum stack_end step_judge(struct walk *walk, const struct step *step, struct frame_place frame)
{
    uint64_t pc = walk->registers.value[REGISTER_PC];
    if (pc == 0 && !step->exact)
        return STACK_COMPLETE;
    if (!step_makes_progress(walk, step, frame))
        return STACK_CUT_NO_PROGRESS;
    walk->region = find_region(walk, frame_lookup_avma(pc, step->exact));
    if (!walk->region && !(step->exact && was_bad_call(walk)))
        return STACK_CUT_BAD_PC;
    return STACK_END_COUNT;
}

/*
 * The frame at `frame_sp_avma` is a signal trampoline, where the stack pointer points at the kernel's struct ucontext;
 * did the signal come on another stack? Then whoever copies stacks wants to know where that one is written down.
 */
static void note_other_stack(const struct walk *walk, uint64_t frame_sp_avma, struct stack *stack)
{
    enum { UCONTEXT_RSP_OFF = 160 };
    const struct snapshot *snapshot = walk->view.snapshot;
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    uint64_t written;
    bool is_same = snapshot->stack_end_avma == 0 || (sp >= snapshot->stack_start_avma &&
                                                     sp < snapshot->stack_end_avma && sp >= snapshot->ranges[0].avma);
    if (stack->interrupted_sp_at_avma == 0 && !is_same && snapshot->range_count > 0 &&
        snapshot_read(snapshot, frame_sp_avma + UCONTEXT_RSP_OFF, &written, sizeof(written)) && written == sp)
        stack->interrupted_sp_at_avma = frame_sp_avma + UCONTEXT_RSP_OFF;
}

/*
 * Nearly all frames, and nearly all of the time: return addresses whose rule is known and plain, with all that it needs
 * in the copy. Takes as many as there are, and leaves whatever is otherwise to the steps above, untouched; so there is
 * nothing here that these do not do too.
 */
static void walk_plain(struct walk *walk, struct rulecache *cache, struct stack *stack)
{
    const struct memory_range *copy = &walk->view.snapshot->ranges[0];
    struct registers *registers = &walk->registers;
    size_t limit = walk->unwinder->max_depth < stack->capacity ? walk->unwinder->max_depth : stack->capacity;
    size_t first = stack->count;
    while (stack->count < limit && walk->region && walk->region->image && walk->region->has_bias) {
        uint64_t svma = frame_lookup_avma(registers->value[REGISTER_PC], false) - walk->region->bias;
        const struct rule *rule = rulecache_find(cache, walk->region->image, svma);
        if (!rule || rule->kind != RULE_PLAIN || rule->return_in != RETURN_AT_CFA ||
            rulecache_row_ends(rule, svma + 1) || !registers_known(registers, rule->cfa_register))
            break;
        uint64_t cfa = registers->value[rule->cfa_register] + (uint64_t)(int64_t)rule->cfa_off;
        const uint8_t *at_cfa = rule_find_copied(rule, copy, cfa);
        if (!at_cfa || cfa <= registers->value[REGISTER_RSP])
            break;
        uint64_t return_avma;
        memcpy(&return_avma, at_cfa + rule->return_at * (int)sizeof(return_avma), sizeof(return_avma));
        const struct code_region *region = find_region(walk, frame_lookup_avma(return_avma, false));
        if (!region)
            break;
        walk->region = region;
        rule_restore_copied(rule, at_cfa, registers);
        registers->value[REGISTER_RSP] = cfa;
        registers->value[REGISTER_PC] = return_avma;
        registers->known &= RULE_PRESERVED | 1U << REGISTER_RSP | 1U << REGISTER_PC;
        view_have(&walk->view, cfa + (uint64_t)(int64_t)(rule->return_at + 1) * sizeof(return_avma));
        stack->frames[stack->count++] = (struct frame){.avma = return_avma, .by = FRAME_BY_CFI};
    }
    if (stack->count > first)
        walk->by = FRAME_BY_CFI;
    walk->unwinder->frames_by[FRAME_BY_CFI] += stack->count - first;
}

static int walk_callers(struct walk *walk, struct stack *stack)
{
    struct rulecache *cache = cfi_cache(walk->unwinder->cfi);
    bool is_quick = walk->unwinder->mode != UNWIND_FP && walk->view.snapshot->range_count > 0;
    for (;;) {
        if (is_quick && !walk->exact)
            walk_plain(walk, cache, stack);
        struct frame_place frame = {.pc_avma = walk->registers.value[REGISTER_PC],
                                    .sp_avma = walk->registers.value[REGISTER_RSP]};
        struct step step = step_take(walk, &stack->frames[stack->count - 1]);
        if (step.kind == STEP_NO_MEMORY)
            return -ENOMEM;
        if (step.kind == STEP_CALLER && step.exact)
            note_other_stack(walk, frame.sp_avma, stack);
        enum stack_end end = step.kind == STEP_END ? step.end : step_judge(walk, &step, frame);
        if (end == STACK_END_COUNT && stack->count >= walk->unwinder->max_depth)
            end = STACK_CUT_DEPTH;
        if (end != STACK_END_COUNT) {
            stack->end = end;
            return 0;
        }
        int err = stack_add(stack, walk->registers.value[REGISTER_PC], step.exact, step.by);
        if (err)
            return err;
        walk->unwinder->frames_by[step.by]++;
        walk->exact = step.exact;
        walk->by = step.by;
    }
}

/* Is it one that a call leads to, or, in generated code, that HotSpot's interpreter has made? Exact ones are looked at
 * when they are entered. */
static bool is_credible(const struct walk *walk, const struct frame *frame)
{
    if (frame->exact || framepointer_is_return(&walk->view, walk->callsites, frame->avma))
        return true;
    const struct code_region *region = codemap_find(walk->view.map, frame_lookup_avma(frame->avma, false));
    return frame->by == FRAME_BY_FP && region && !region->image;
}

/*
 * What was inferred counts only if all that comes of it is right: the walk comes to the stack's beginning, and by
 * return addresses. Else it ends where it would have ended without. If a larger copy could tell, that is said.
 */
static void conclude_trial(const struct walk *walk, struct stack *stack)
{
    const struct trial *trial = &walk->unwinder->trial;
    bool is_right = stack->end == STACK_COMPLETE && !walk->is_doubtful;
    for (size_t i = trial->frame_count; i < stack->count && is_right; i++)
        is_right = is_credible(walk, &stack->frames[i]);
    if (is_right) {
        stack->inferred = walk->inferred;
        return;
    }
    stack->count = trial->frame_count;
    memcpy(walk->unwinder->frames_by, trial->frames_by, sizeof(trial->frames_by));
    if (stack->end == STACK_CUT_COPY)
        return;
    stack->end = STACK_CUT_BAD_RULE;
    stack->interrupted_sp_at_avma = trial->interrupted_sp_at_avma;
    stack->top_avma = trial->view.top_avma;
    stack->other_bytes = trial->view.other_bytes;
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
        .stack = ret_stack,
    };
    walk.region = codemap_find(map, walk.registers.value[REGISTER_PC]);
    int err = stack_add(ret_stack, walk.registers.value[REGISTER_PC], true, FRAME_INNERMOST);
    if (!err)
        err = walk_callers(&walk, ret_stack);
    ret_stack->top_avma = walk.view.top_avma;
    ret_stack->other_bytes = walk.view.other_bytes;
    if (!err && walk.inferred > 0)
        conclude_trial(&walk, ret_stack);
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
    unwinder->inference = inference_new();
    if (unwinder->cfi && unwinder->inference)
        return unwinder;
    unwinder_free(unwinder);
    return NULL;
}

void unwinder_free(struct unwinder *unwinder)
{
    if (!unwinder)
        return;
    inference_free(unwinder->inference);
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

bool unwinder_find_row(struct unwinder *unwinder, const struct codemap *map, uint64_t lookup_avma,
                       struct unwind_row *ret_row)
{
    const struct code_region *region = codemap_find(map, lookup_avma);
    if (!region || !region->image || !region->has_bias)
        return false;
    const struct rule *rule = cfi_find(unwinder->cfi, region, lookup_avma);
    if (!rule || (rule->kind != RULE_PLAIN && rule->kind != RULE_NONE) || rule->signal)
        return false;
    uint64_t start_avma = rulecache_row_start(rule) + region->bias;
    uint64_t end_avma = rulecache_row_end(rule) + region->bias;
    ret_row->start_avma = start_avma < region->start_avma || start_avma > lookup_avma ? region->start_avma : start_avma;
    ret_row->end_avma = end_avma > region->end_avma || end_avma <= lookup_avma ? region->end_avma : end_avma;
    ret_row->rule = *rule;
    return true;
}

struct unwind_counters unwinder_counters(const struct unwinder *unwinder)
{
    struct cfi_counters cfi = cfi_counters(unwinder->cfi);
    struct unwind_counters counters = {
        .rule_hits = cfi.hits,
        .rule_row_hits = cfi.row_hits,
        .rules_compiled = cfi.compiled,
        .rules_uncovered = cfi.uncovered,
        .rules_bad = cfi.bad,
        .rules_foreign = cfi.foreign,
        .rule_flushes = cfi.flushes,
        .rules = cfi.rows,
        .rule_bytes = cfi.bytes,
    };
    memcpy(counters.frames_by, unwinder->frames_by, sizeof(counters.frames_by));
    return counters;
}
