#include "judge.h"

#include "unwind/callsite.h"
#include "unwind/patterns.h"

#include <string.h>

enum kind_class kind_class(enum kind kind)
{
    if (kind == KIND_SAME)
        return CLASS_SAME;
    if (kind <= KIND_PEER_SIGNAL)
        return CLASS_BETTER;
    return kind <= KIND_BOTH_CUT ? CLASS_EXPLAINED : CLASS_UNEXPLAINED;
}

const char *kind_name(enum kind kind)
{
    static const char *const names[KIND_COUNT] = {
        [KIND_SAME] = "same",
        [KIND_PEER_SHORT] = "peer_short",
        [KIND_PEER_NO_CALL] = "peer_no_call",
        [KIND_PEER_LOST] = "peer_lost",
        [KIND_NO_RULE] = "no_rule",
        [KIND_NO_RULE_ROOT] = "no_rule_root",
        [KIND_PEER_SKIPPED] = "peer_skipped",
        [KIND_PEER_SIGNAL] = "peer_signal",
        [KIND_COPY] = "copy",
        [KIND_MEMORY] = "memory",
        [KIND_SWITCH] = "switch",
        [KIND_BOTH_CUT] = "both_cut",
        [KIND_SHORT] = "short",
        [KIND_BEYOND_ROOT] = "beyond_root",
        [KIND_DIFFERENT] = "different",
    };
    return names[kind];
}

/* ---- one frame ---- */

/* The bytes are the process's own, not the image's: the check does not lean on how ours reads code. */
static bool is_behind_call(const struct target *target, uint64_t avma)
{
    const struct code_region *region = codemap_find(&target->map->code, frame_lookup_avma(avma, false));
    if (!region)
        return false;
    uint64_t room = avma - region->start_avma;
    size_t size = room < PATTERNS_CALL_BYTES ? (size_t)room : PATTERNS_CALL_BYTES;
    uint8_t bytes[PATTERNS_CALL_BYTES];
    return target_read(target, avma - size, bytes, size) && patterns_end_with_call(bytes, size);
}

/* mov $__NR_rt_sigreturn, %rax (or %eax); syscall: what the kernel pushed as a handler's return address. */
static bool is_trampoline(const struct target *target, uint64_t avma)
{
    static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    static const uint8_t narrow[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
    uint8_t bytes[sizeof(wide)];
    return codemap_find(&target->map->code, avma) && target_read(target, avma, bytes, sizeof(bytes)) &&
           (memcmp(bytes, wide, sizeof(wide)) == 0 || memcmp(bytes, narrow, sizeof(narrow)) == 0);
}

static bool is_credible(const struct target *target, const struct trace *trace, size_t n)
{
    uint64_t avma = trace->frames[n].avma;
    if (n == 0 || is_behind_call(target, avma) || is_trampoline(target, avma))
        return true;
    return is_trampoline(target, trace->frames[n - 1].avma) && codemap_find(&target->map->code, avma);
}

static size_t credible_count(const struct target *target, const struct trace *trace, size_t from)
{
    size_t n = from;
    while (n < trace->count && is_credible(target, trace, n))
        n++;
    return n;
}

static bool is_prepared(const struct target *target, struct peer_libdwfl *libdwfl, uint64_t avma)
{
    enum { NOP = 0x90 };
    uint8_t byte;
    struct peer_row row;
    return target_read(target, avma - 1, &byte, 1) && byte == NOP && peer_libdwfl_find_row(libdwfl, avma - 1, &row) &&
           row.start_avma == avma - 1;
}

/* Only a signal has an interrupted frame above its trampoline, and a trampoline is nothing else's caller. */
static bool is_possible(const struct target *target, const struct trace *ours, size_t n)
{
    if (ours->frames[n].exact && is_trampoline(target, ours->frames[n - 1].avma))
        return true;
    if (!ours->frames[n].exact && is_behind_call(target, ours->frames[n].avma))
        return true;
    bool interrupts = n + 1 == ours->count || ours->frames[n + 1].exact;
    return interrupts && is_trampoline(target, ours->frames[n].avma);
}

static bool has_frame(const struct trace *trace, uint64_t avma)
{
    for (size_t i = 0; i < trace->count; i++)
        if (trace->frames[i].avma == avma)
            return true;
    return false;
}

/* Entered by a jump: in generated code, found by frame pointer by everybody. */
static bool is_jumped(const struct target *target, const struct trace_frame *frame, const struct trace *const *peers)
{
    const struct code_region *region = codemap_find(&target->map->code, frame->avma);
    return frame->by == FRAME_BY_FP && region && !region->image && has_frame(peers[PEER_LIBDWFL], frame->avma) &&
           has_frame(peers[PEER_LIBUNWIND], frame->avma);
}

/* The thread is at the first instruction of a function, or a signal came there, so its handler says; and the frame is
 * where it came in truth. */
static bool is_injected(struct peer_libdwfl *libdwfl, const struct target *target, const struct trace *ours, size_t n)
{
    struct peer_row row;
    bool is_interrupted = n == 1 || (ours->frames[n - 1].exact && is_trampoline(target, ours->frames[n - 2].avma));
    return is_interrupted && peer_libdwfl_find_row(libdwfl, ours->frames[n - 1].avma, &row) &&
           row.start_avma == ours->frames[n - 1].avma && codemap_find(&target->map->code, ours->frames[n].avma);
}

static void find_impossible(const struct target *target, struct peer_libdwfl *libdwfl, const struct trace *ours,
                            const struct trace *const *peers, struct judgement *judgement)
{
    for (size_t i = 1; i < ours->count; i++) {
        if (is_possible(target, ours, i))
            continue;
        if (is_prepared(target, libdwfl, ours->frames[i].avma) || is_injected(libdwfl, target, ours, i) ||
            is_jumped(target, &ours->frames[i], peers))
            judgement->prepared++;
        else if (judgement->impossible++ == 0)
            judgement->impossible_at = i;
    }
}

/* ---- whole walks ---- */

static bool find_row(struct peer_libdwfl *libdwfl, const struct trace *trace, size_t n, struct peer_row *ret_row)
{
    const struct trace_frame *frame = &trace->frames[n];
    return peer_libdwfl_find_row(libdwfl, frame_lookup_avma(frame->avma, frame->exact), ret_row);
}

static void find_roots(struct peer_libdwfl *libdwfl, const struct trace *const *peers, bool *at_root)
{
    const struct trace *dwfl = peers[PEER_LIBDWFL];
    const struct trace *unwind = peers[PEER_LIBUNWIND];
    at_root[PEER_LIBDWFL] = dwfl->at_root && dwfl->count;
    if (!unwind->at_root || !unwind->count)
        return;
    uint64_t last_avma = unwind->frames[unwind->count - 1].avma;
    struct peer_row row;
    at_root[PEER_LIBUNWIND] = (find_row(libdwfl, unwind, unwind->count - 1, &row) && row.is_outermost) ||
                              (at_root[PEER_LIBDWFL] && dwfl->frames[dwfl->count - 1].avma == last_avma);
}

static enum peer choose_best(const struct judgement *judgement, const struct trace *ours,
                             const struct trace *const *peers)
{
    const bool *at_root = judgement->at_root;
    const size_t *used = judgement->used;
    if (at_root[PEER_LIBDWFL] != at_root[PEER_LIBUNWIND])
        return at_root[PEER_LIBDWFL] ? PEER_LIBDWFL : PEER_LIBUNWIND;
    if (!at_root[PEER_LIBDWFL] && used[PEER_LIBDWFL] != used[PEER_LIBUNWIND])
        return used[PEER_LIBDWFL] > used[PEER_LIBUNWIND] ? PEER_LIBDWFL : PEER_LIBUNWIND;
    size_t common[PEER_COUNT];
    for (int p = 0; p < PEER_COUNT; p++)
        common[p] = trace_common(ours, ours->count, peers[p], used[p]);
    return common[PEER_LIBDWFL] >= common[PEER_LIBUNWIND] ? PEER_LIBDWFL : PEER_LIBUNWIND;
}

static enum kind ours_ended(const struct target *target, const struct trace *peer, const struct judgement *judgement)
{
    switch (target->stack.end) {
    case STACK_CUT_COPY:
        return KIND_COPY;
    case STACK_CUT_MEMORY:
        return KIND_MEMORY;
    case STACK_CUT_NO_RULE:
        if (judgement->covered)
            return KIND_SHORT;
        if (!judgement->at_root[judgement->best])
            return KIND_NO_RULE;
        /* A frame that ours could have checked and believed. */
        if (target->mode != UNWIND_DWARF && is_credible(target, peer, judgement->at))
            return KIND_SHORT;
        return KIND_NO_RULE_ROOT;
    default:
        return KIND_SHORT;
    }
}

static bool has_skipped(const struct target *target, const struct trace *ours, const struct trace *peer, size_t used)
{
    if (ours->count != used + 1)
        return false;
    for (size_t n = 1; n < ours->count; n++) {
        if (ours->frames[n].by != FRAME_BY_INSPECTION)
            continue;
        bool same = trace_common(ours, n, peer, n) == n;
        for (size_t i = n; i < used && same; i++)
            same = ours->frames[i + 1].avma == peer->frames[i].avma;
        if (same)
            return is_behind_call(target, ours->frames[n].avma);
    }
    return false;
}

/* From `at` on; the last may be one that was prepared. */
static bool is_all_credible(const struct target *target, struct peer_libdwfl *libdwfl, const struct trace *ours,
                            size_t at)
{
    size_t good = credible_count(target, ours, at);
    return good == ours->count || (good + 1 == ours->count && is_prepared(target, libdwfl, ours->frames[good].avma));
}

/*
 * Did a signal come at `pc_avma`, as the frame says that the kernel made below the return address into the trampoline?
 * Offsets as in asm/sigcontext.h; 0x33 is the code segment of 64-bit programs.
 */
static bool was_interrupted(const struct target *target, uint64_t trampoline_avma, uint64_t pc_avma)
{
    enum { FRAME_WORDS = 25, PC_WORD = 1 + 21, SEGMENT_WORD = 1 + 23, SEGMENT = 0x33 };
    const struct memory_range *stack = &target->snapshot.ranges[0];
    for (size_t off = (size_t)(-stack->avma & 7U); off + FRAME_WORDS * 8 <= stack->size; off += 8) {
        uint64_t frame[FRAME_WORDS];
        memcpy(frame, stack->bytes + off, sizeof(frame));
        if (frame[0] == trampoline_avma && frame[PC_WORD] == pc_avma && (frame[SEGMENT_WORD] & 0xffffU) == SEGMENT)
            return true;
    }
    return false;
}

static bool has_lost_switch(const struct target *target, const struct trace *ours, const struct judgement *judgement)
{
    return target->stack.end == STACK_CUT_BAD_PC && !judgement->at_root[PEER_LIBDWFL] &&
           judgement->used[PEER_LIBDWFL] == ours->count && judgement->agrees[PEER_LIBDWFL];
}

static bool has_lost_signal(const struct target *target, const struct trace *ours, size_t at, bool peer_at_root)
{
    return ours->at_root >= peer_at_root && at > 0 && at < ours->count && ours->frames[at].exact &&
           is_trampoline(target, ours->frames[at - 1].avma) &&
           was_interrupted(target, ours->frames[at - 1].avma, ours->frames[at].avma);
}

static enum kind find_kind(const struct target *target, struct peer_libdwfl *libdwfl, const struct trace *ours,
                           const struct trace *peer, const struct judgement *judgement)
{
    size_t at = judgement->at;
    bool peer_at_root = judgement->at_root[judgement->best];
    if (has_lost_switch(target, ours, judgement))
        return KIND_SWITCH;
    if (at == ours->count)
        return ours_ended(target, peer, judgement);
    if (has_skipped(target, ours, peer, judgement->used[judgement->best]))
        return KIND_PEER_SKIPPED;
    if (has_lost_signal(target, ours, at, peer_at_root))
        return KIND_PEER_SIGNAL;
    bool credible = is_all_credible(target, libdwfl, ours, at);
    if (at == judgement->used[judgement->best]) {
        if (peer_at_root)
            return KIND_BEYOND_ROOT;
        if (!credible)
            return KIND_DIFFERENT;
        return ours->at_root ? KIND_PEER_SHORT : KIND_BOTH_CUT;
    }
    if (is_credible(target, ours, at) && !is_credible(target, peer, at))
        return KIND_PEER_NO_CALL;
    return credible && ours->at_root && !peer_at_root ? KIND_PEER_LOST : KIND_DIFFERENT;
}

struct judgement judge(const struct target *target, struct peer_libdwfl *libdwfl, const struct trace *ours,
                       const struct trace *const *peers)
{
    struct judgement judgement = {.kind = KIND_SAME};
    find_roots(libdwfl, peers, judgement.at_root);
    for (int p = 0; p < PEER_COUNT; p++) {
        const struct trace *peer = peers[p];
        judgement.used[p] = judgement.at_root[p] ? peer->count : credible_count(target, peer, 0);
        judgement.agrees[p] = trace_common(ours, ours->count, peer, judgement.used[p]) == judgement.used[p];
        judgement.is_same[p] =
            peer->count == ours->count && trace_common(ours, ours->count, peer, peer->count) == ours->count;
    }
    find_impossible(target, libdwfl, ours, peers, &judgement);
    judgement.best = choose_best(&judgement, ours, peers);
    const struct trace *best = peers[judgement.best];
    size_t used = judgement.used[judgement.best];
    judgement.at = trace_common(ours, ours->count, best, used);
    if (judgement.at == ours->count && judgement.at == used)
        return judgement;
    struct peer_row row;
    judgement.covered = judgement.at > 0 && find_row(libdwfl, ours, judgement.at - 1, &row);
    judgement.kind = find_kind(target, libdwfl, ours, best, &judgement);
    return judgement;
}
