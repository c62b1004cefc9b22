#include "unwind/inference.h"

#include "common/hash.h"
#include "unwind/calltarget.h"
#include "unwind/inspect.h"
#include "unwind/prologue.h"

#include <stdlib.h>

enum { SLOTS = 512, MARKS_MAX = 2048 };

/* How deep the stack is at an address; 0: not known, which is remembered too. */
struct depth_slot {
    const struct image *image; /* NULL: unused */
    uint64_t svma;
    bool exact;
    int32_t cfa_off;
    int32_t depth;
};

/* What the call before an address calls. */
struct call_slot {
    const struct image *image; /* NULL: unused */
    uint64_t svma;
    const struct image *function_image;
    uint64_t function_svma;
    enum calltarget target;
};

struct inference {
    struct prologue *prologue; /* NULL until it is needed */
    struct prologue_mark marks[MARKS_MAX];
    uint8_t code[PROLOGUE_CODE_MAX];
    struct depth_slot depths[SLOTS];
    struct call_slot calls[SLOTS];
};

struct inference *inference_new(void)
{
    return calloc(1, sizeof(struct inference));
}

void inference_free(struct inference *inference)
{
    if (!inference)
        return;
    prologue_free(inference->prologue);
    free(inference);
}

/* ---- the frame pointer ---- */

static int32_t mark_depth(const struct rule *rule, int32_t cfa_off)
{
    if (rule->kind != RULE_PLAIN)
        return -1;
    if (rule->cfa_register == REGISTER_RSP && rule->cfa_off > 0)
        return rule->cfa_off;
    return rule->cfa_register == REGISTER_RBP && rule->cfa_off == cfa_off ? 0 : -1;
}

/* What the function's rows say of the CFA. Returns how many marks; 0: too many rows, or none. */
static size_t find_marks(struct inference *inference, struct cfi *cfi, const struct code_region *region,
                         uint64_t start_avma, size_t size, int32_t cfa_off)
{
    size_t count = 0;
    for (uint64_t avma = start_avma; avma < start_avma + size;) {
        const struct rule *rule = cfi_find(cfi, region, avma);
        if (!rule || count == MARKS_MAX)
            return 0;
        inference->marks[count++] =
            (struct prologue_mark){.off = (uint32_t)(avma - start_avma), .depth = mark_depth(rule, cfa_off)};
        uint64_t end_avma = rulecache_row_end(rule) + region->bias;
        if (end_avma <= avma)
            return 0;
        avma = end_avma;
    }
    return count;
}

static int32_t find_depth(struct inference *inference, struct cfi *cfi, const struct view *view,
                          const struct inferred_frame *frame)
{
    uint64_t start_avma, end_avma;
    if (!inference->prologue)
        inference->prologue = prologue_new();
    if (!inference->prologue || !cfi_find_function(cfi, frame->region, frame->lookup_avma, &start_avma, &end_avma) ||
        start_avma > frame->lookup_avma || start_avma < frame->region->start_avma)
        return 0;
    uint64_t limit = end_avma < frame->region->end_avma ? end_avma : frame->region->end_avma;
    struct prologue_code code = {.bytes = inference->code, .marks = inference->marks, .frame_off = frame->cfa_off};
    code.size = limit - start_avma < PROLOGUE_CODE_MAX ? (size_t)(limit - start_avma) : PROLOGUE_CODE_MAX;
    uint64_t off = frame->lookup_avma - start_avma + !frame->exact;
    if (off > code.size || !view_read_code(view, frame->region, start_avma, inference->code, code.size))
        return 0;
    code.mark_count = find_marks(inference, cfi, frame->region, start_avma, code.size, frame->cfa_off);
    /* A part of a function that stands elsewhere begins with the frame set up. */
    if (code.mark_count == 0 || code.marks[0].depth <= 0)
        return 0;
    return prologue_depth(inference->prologue, &code, (uint32_t)off, frame->exact);
}

bool inference_find_rbp(struct inference *inference, struct cfi *cfi, const struct view *view,
                        const struct inferred_frame *frame, uint64_t *ret_rbp)
{
    const struct image *image = frame->region->image;
    uint64_t svma = frame->lookup_avma - frame->region->bias;
    struct depth_slot *slot = &inference->depths[hash_pair((uintptr_t)image, svma) % SLOTS];
    if (slot->image != image || slot->svma != svma || slot->exact != frame->exact || slot->cfa_off != frame->cfa_off)
        *slot = (struct depth_slot){.image = image,
                                    .svma = svma,
                                    .exact = frame->exact,
                                    .cfa_off = frame->cfa_off,
                                    .depth = find_depth(inference, cfi, view, frame)};
    if (slot->depth <= 0)
        return false;
    *ret_rbp = frame->sp_avma + (uint64_t)(int64_t)slot->depth - (uint64_t)(int64_t)frame->cfa_off;
    return true;
}

/* ---- the check ---- */

static enum calltarget find_target(struct inference *inference, struct cfi *cfi, const struct view *view,
                                   const struct code_region *region, uint64_t return_avma,
                                   const struct calltarget_function *function)
{
    uint64_t svma = return_avma - region->bias;
    uint64_t function_svma = function->start_avma - function->region->bias;
    struct call_slot *slot = &inference->calls[hash_pair((uintptr_t)region->image, svma) % SLOTS];
    if (slot->image != region->image || slot->svma != svma || slot->function_image != function->region->image ||
        slot->function_svma != function_svma)
        *slot = (struct call_slot){.image = region->image,
                                   .svma = svma,
                                   .function_image = function->region->image,
                                   .function_svma = function_svma,
                                   .target = calltarget_find(cfi, view, region, return_avma, function)};
    return slot->target;
}

bool inference_is_caller(struct inference *inference, struct cfi *cfi, const struct view *view,
                         struct callsites callsites, const struct inferred_frame *frame, uint64_t return_avma)
{
    const struct code_region *region =
        return_avma ? codemap_find(view->map, frame_lookup_avma(return_avma, false)) : NULL;
    struct calltarget_function function = {.region = frame->region};
    uint64_t end_avma;
    if (!region || !cfi_find_function(cfi, frame->region, frame->lookup_avma, &function.start_avma, &end_avma))
        return false;
    if (callsites_find(callsites, view, region, return_avma) != CALLSITE_CALL)
        return inspect_is_sigreturn(view, region, return_avma);
    if (!region->image || !region->has_bias)
        return true;
    enum calltarget target = find_target(inference, cfi, view, region, return_avma, &function);
    return target == CALLTARGET_FUNCTION || target == CALLTARGET_OPEN;
}
