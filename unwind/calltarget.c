#include "unwind/calltarget.h"

#include "unwind/callsite.h"
#include "unwind/gotslot.h"
#include "unwind/instruction_x86_64.h"
#include "unwind/patterns.h"

/* Jumps that are followed from a call; bytes of a function in which jumps to others are looked for. */
enum { HOPS_MAX = 4, LOOK_BYTES = 1 << 14 };

struct search {
    struct cfi *cfi;
    const struct view *view;
    const struct calltarget_function *function;
};

/* The code from `avma` on, up to `size` bytes. Returns how many; 0: none. */
static size_t read_code(const struct view *view, const struct code_region *region, uint64_t avma, void *buffer,
                        size_t size)
{
    uint64_t room = region->end_avma - avma;
    if (size > room)
        size = (size_t)room;
    /* A segment ends where it ends, its mapping at a page. */
    for (; size > 0; size /= 2)
        if (view_read_code(view, region, avma, buffer, size))
            return size;
    return 0;
}

static bool is_rip_relative(const struct instruction *instruction)
{
    return instruction->has_modrm && instruction->mod == 0 && instruction->rm == 5;
}

/* call or jmp through a slot: `next_avma` is the instruction's end. */
static enum calltarget find_slot(const struct search *search, const struct code_region *region, uint64_t slot_avma)
{
    const struct calltarget_function *function = search->function;
    switch (gotslot_find(region->image, slot_avma - region->bias, function->region->image,
                         function->start_avma - function->region->bias)) {
    case GOTSLOT_FUNCTION:
        return CALLTARGET_FUNCTION;
    case GOTSLOT_OTHER:
        return CALLTARGET_OTHER;
    case GOTSLOT_UNKNOWN:
        break;
    }
    return CALLTARGET_OPEN;
}

static bool is_direct_jump(const struct instruction *instruction)
{
    return instruction->map == MAP_ONE && !instruction->is_vex &&
           (instruction->opcode == 0xe9 || instruction->opcode == 0xeb);
}

static bool is_slot_jump(const struct instruction *instruction)
{
    return instruction->map == MAP_ONE && !instruction->is_vex && instruction->opcode == 0xff &&
           instruction->reg == 4 && is_rip_relative(instruction);
}

static bool is_conditional_jump(const struct instruction *instruction)
{
    return !instruction->is_vex && ((instruction->map == MAP_ONE && instruction->opcode >> 4 == 7) ||
                                    (instruction->map == MAP_0F && instruction->opcode >> 4 == 8));
}

/* Where the code at `avma` goes if it is the function, or nothing but jumps. */
static enum calltarget follow_jumps(const struct search *search, uint64_t avma)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    for (unsigned hop = 0; hop < HOPS_MAX; hop++) {
        if (avma == search->function->start_avma)
            return CALLTARGET_FUNCTION;
        const struct code_region *region = codemap_find(search->view->map, avma);
        uint8_t code[sizeof(endbr64) + INSTRUCTION_BYTES_MAX];
        size_t size =
            region && region->image && region->has_bias ? read_code(search->view, region, avma, code, sizeof(code)) : 0;
        size_t at = size > sizeof(endbr64) && memcmp(code, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0;
        struct instruction instruction;
        if (!instruction_decode(code + at, size - at, &instruction))
            return CALLTARGET_OTHER;
        uint64_t next = avma + at + instruction.bytes;
        if (is_slot_jump(&instruction))
            return find_slot(search, region, next + (uint64_t)(int64_t)instruction.displacement);
        if (!is_direct_jump(&instruction))
            return CALLTARGET_OTHER;
        avma = next + (uint64_t)instruction.immediate;
    }
    return CALLTARGET_OTHER;
}

/* A function that was called instead of ours: does it jump to ours at its end? */
static bool has_tail_call(const struct search *search, uint64_t avma)
{
    uint8_t code[LOOK_BYTES];
    uint64_t start_avma, end_avma;
    const struct code_region *region = codemap_find(search->view->map, avma);
    if (!region || !cfi_find_function(search->cfi, region, avma, &start_avma, &end_avma) || start_avma != avma ||
        end_avma <= start_avma)
        return false;
    size_t size = end_avma - avma < sizeof(code) ? (size_t)(end_avma - avma) : sizeof(code);
    size = read_code(search->view, region, avma, code, size);
    struct instruction instruction;
    for (size_t at = 0; at < size && instruction_decode(code + at, size - at, &instruction); at += instruction.bytes) {
        uint64_t next = avma + at + instruction.bytes;
        uint64_t target = next + (uint64_t)instruction.immediate;
        bool is_slot = is_slot_jump(&instruction);
        bool is_out = (is_direct_jump(&instruction) || is_conditional_jump(&instruction)) &&
                      (target < start_avma || target >= end_avma);
        if ((is_slot &&
             find_slot(search, region, next + (uint64_t)(int64_t)instruction.displacement) == CALLTARGET_FUNCTION) ||
            (is_out && follow_jumps(search, target) == CALLTARGET_FUNCTION))
            return true;
    }
    return false;
}

enum calltarget calltarget_find(struct cfi *cfi, const struct view *view, const struct code_region *region,
                                uint64_t return_avma, const struct calltarget_function *function)
{
    enum { DIRECT_BYTES = 5, SLOT_BYTES = 6 };
    struct search search = {.cfi = cfi, .view = view, .function = function};
    uint64_t room = return_avma - region->start_avma;
    size_t size = room < PATTERNS_CALL_BYTES ? (size_t)room : PATTERNS_CALL_BYTES;
    uint8_t bytes[PATTERNS_CALL_BYTES];
    if (size == 0 || !view_read_code(view, region, return_avma - size, bytes, size) ||
        !patterns_end_with_call(bytes, size))
        return CALLTARGET_NONE;
    const uint8_t *end = bytes + size;
    int32_t distance;
    memcpy(&distance, end - sizeof(distance), sizeof(distance));
    uint64_t target = return_avma + (uint64_t)(int64_t)distance;
    /* A call through a register, behind a byte that could be a direct call's: its distance leads nowhere. */
    if (size >= DIRECT_BYTES && end[-DIRECT_BYTES] == 0xe8 && codemap_find(view->map, target)) {
        enum calltarget found = follow_jumps(&search, target);
        return found == CALLTARGET_OTHER && has_tail_call(&search, target) ? CALLTARGET_FUNCTION : found;
    }
    if (size >= SLOT_BYTES && end[-SLOT_BYTES] == 0xff && end[1 - SLOT_BYTES] == 0x15)
        return find_slot(&search, region, target);
    return CALLTARGET_OPEN;
}
