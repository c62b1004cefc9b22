#include "unwind/prologue.h"

#include "unwind/instruction_x86_64.h"

#include <stdlib.h>
#include <string.h>

enum { RSP = 4, RBP = 5, WORD = 8, DEPTH_LIMIT = 1 << 24, UNSEEN = 0, UNKNOWN = -1 };

struct prologue {
    int32_t depth[PROLOGUE_CODE_MAX + 1];    /* by offset: UNSEEN, UNKNOWN, or the depth before the instruction there */
    uint32_t pending[PROLOGUE_CODE_MAX * 2]; /* offsets to go on from; each at most twice, see reach */
    size_t pending_count;
    /* The question, and what was seen of it on the way: the depth before the call that ends at `off`. */
    uint32_t off;
    bool exact;
    int32_t before_call;
};

struct prologue *prologue_new(void)
{
    return calloc(1, sizeof(struct prologue));
}

void prologue_free(struct prologue *prologue)
{
    free(prologue);
}

/* ---- what an instruction does ---- */

enum flow { FLOW_ON, FLOW_CALL, FLOW_BRANCH, FLOW_JUMP, FLOW_INDIRECT, FLOW_END };

static enum flow flow_of(const struct instruction *instruction)
{
    uint8_t opcode = instruction->opcode;
    if (instruction->is_vex)
        return FLOW_ON;
    if (instruction->map == MAP_0F) {
        if (opcode >> 4 == 8)
            return FLOW_BRANCH;
        return opcode == 0x0b ? FLOW_END : FLOW_ON; /* ud2 */
    }
    if (instruction->map != MAP_ONE)
        return FLOW_ON;
    if (opcode >> 4 == 7 || (opcode >= 0xe0 && opcode <= 0xe3))
        return FLOW_BRANCH;
    switch (opcode) {
    case 0xc2: /* ret */
    case 0xc3:
    case 0xca:
    case 0xcb:
    case 0xcf:
    case 0xcc: /* int3 */
    case 0xf4: /* hlt */
        return FLOW_END;
    case 0xe8:
        return FLOW_CALL;
    case 0xe9:
    case 0xeb:
        return FLOW_JUMP;
    case 0xff:
        if (instruction->reg == 2 || instruction->reg == 3)
            return FLOW_CALL;
        return instruction->reg == 4 || instruction->reg == 5 ? FLOW_INDIRECT : FLOW_ON;
    default:
        return FLOW_ON;
    }
}

static bool is_register(const struct instruction *instruction, uint8_t reg)
{
    return instruction->mod == 3 && instruction->rm == reg && !(instruction->rex & REX_B);
}

static bool is_reg_rsp(const struct instruction *instruction)
{
    return instruction->reg == RSP && !(instruction->rex & REX_R);
}

static int32_t checked(int64_t depth)
{
    return depth > 0 && depth < DEPTH_LIMIT && depth % WORD == 0 ? (int32_t)depth : UNKNOWN;
}

/* The depth of an operand's address: displacement(%rsp) or displacement(%rbp). */
static int32_t address_depth(const struct instruction *instruction, int32_t depth, int32_t frame_off)
{
    enum { SIB_RSP_ALONE = 0x24 };
    if (instruction->mod == 3 || instruction->has_address_prefix || (instruction->rex & (REX_B | REX_X)))
        return UNKNOWN;
    if (instruction->rm == RSP && instruction->sib == SIB_RSP_ALONE && depth != UNKNOWN)
        return checked((int64_t)depth - instruction->displacement);
    if (instruction->rm == RBP && instruction->mod != 0 && frame_off > 0)
        return checked((int64_t)frame_off - instruction->displacement);
    return UNKNOWN;
}

/* Groups and moves in which rsp can be what is written; otherwise it is only read. */
static int32_t depth_behind_modrm(const struct instruction *instruction, int32_t depth, int32_t frame_off)
{
    enum { ADD = 0, SUB = 5, COMPARE = 7 };
    bool is_wide = instruction->rex & REX_W;
    bool is_rm = is_register(instruction, RSP);
    uint8_t opcode = instruction->opcode;
    switch (opcode) {
    case 0x81:
    case 0x83:
        if (!is_rm || instruction->reg == COMPARE)
            return depth;
        if (depth == UNKNOWN || !is_wide || (instruction->reg != ADD && instruction->reg != SUB))
            return UNKNOWN;
        return checked(depth + (instruction->reg == SUB ? instruction->immediate : -instruction->immediate));
    case 0x84: /* test */
    case 0x85:
        return depth;
    case 0x89:
        if (!is_rm)
            return depth;
        return is_wide && instruction->reg == RBP && !(instruction->rex & REX_R) && frame_off > 0 ? frame_off : UNKNOWN;
    case 0x8b:
        if (!is_reg_rsp(instruction))
            return depth;
        return is_wide && is_register(instruction, RBP) && frame_off > 0 ? frame_off : UNKNOWN;
    case 0x8d:
        if (!is_reg_rsp(instruction))
            return depth;
        return is_wide ? address_depth(instruction, depth, frame_off) : UNKNOWN;
    case 0x8f: /* pop */
        return is_rm || depth == UNKNOWN ? UNKNOWN : checked((int64_t)depth - WORD);
    case 0xff:
        if (instruction->reg == 6) /* push */
            return depth == UNKNOWN || instruction->has_operand_prefix ? UNKNOWN : checked((int64_t)depth + WORD);
        return is_rm && instruction->reg < 2 ? UNKNOWN : depth;
    case 0x86: /* xchg */
    case 0x87:
        return is_rm || is_reg_rsp(instruction) ? UNKNOWN : depth;
    case 0x63:
    case 0x69:
    case 0x6b:
        return is_reg_rsp(instruction) ? UNKNOWN : depth;
    case 0xc1:
    case 0xc7:
    case 0xd1:
    case 0xd3:
    case 0xf7:
        return is_rm && (opcode != 0xf7 || instruction->reg > 1) ? UNKNOWN : depth;
    default:
        break;
    }
    /* The arithmetic of two operands: 1 to r/m, 3 to reg; 38 to 3b compare. */
    if (opcode < 0x38 && (opcode & 7) == 1 && is_rm)
        return UNKNOWN;
    if (opcode < 0x38 && (opcode & 7) == 3 && is_reg_rsp(instruction))
        return UNKNOWN;
    return depth;
}

static int32_t depth_behind_0f(const struct instruction *instruction, int32_t depth)
{
    switch (instruction->opcode) {
    case 0xa0: /* push %fs, push %gs */
    case 0xa8:
        return depth == UNKNOWN ? UNKNOWN : checked((int64_t)depth + WORD);
    case 0xa1:
    case 0xa9:
        return depth == UNKNOWN ? UNKNOWN : checked((int64_t)depth - WORD);
    default:
        break;
    }
    bool writes_reg = instruction->opcode >> 4 == 4 || instruction->opcode == 0xaf || instruction->opcode == 0xb6 ||
                      instruction->opcode == 0xb7;
    return writes_reg && is_reg_rsp(instruction) ? UNKNOWN : depth;
}

/* The depth when the instruction has run, and, of a call, when that returns. */
static int32_t depth_behind(const struct instruction *instruction, int32_t depth, int32_t frame_off)
{
    uint8_t opcode = instruction->opcode;
    if (instruction->is_vex || (instruction->map != MAP_ONE && instruction->map != MAP_0F))
        return depth;
    if (instruction->map == MAP_0F)
        return depth_behind_0f(instruction, depth);
    if (instruction->has_modrm)
        return depth_behind_modrm(instruction, depth, frame_off);
    bool is_push = opcode >> 3 == 0x50 >> 3 || opcode == 0x68 || opcode == 0x6a || opcode == 0x9c;
    bool is_pop = opcode >> 3 == 0x58 >> 3 || opcode == 0x9d;
    if (is_push || is_pop) {
        bool is_odd = instruction->has_operand_prefix || (opcode == 0x58 + RSP && !(instruction->rex & REX_B));
        return depth == UNKNOWN || is_odd ? UNKNOWN : checked((int64_t)depth + (is_push ? WORD : -WORD));
    }
    if (opcode == 0xc9) /* leave */
        return frame_off > 0 ? checked((int64_t)frame_off - WORD) : UNKNOWN;
    bool writes_rsp = opcode == 0xc8 || /* enter; xchg %rax,%rsp; mov $n,%rsp */
                      ((opcode == 0x90 + RSP || opcode == 0xb8 + RSP) && !(instruction->rex & REX_B));
    return writes_rsp ? UNKNOWN : depth;
}

/* ---- the ways through a function ---- */

static const struct prologue_mark *find_mark(const struct prologue_code *code, uint32_t off)
{
    size_t low = 0, high = code->mark_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (code->marks[middle].off <= off)
            low = middle;
        else
            high = middle;
    }
    return &code->marks[low];
}

/* A way leads to `off`. Each offset becomes known once, and unknown once. */
static void reach(struct prologue *prologue, const struct prologue_code *code, uint64_t off, int32_t depth)
{
    if (off >= code->size)
        return;
    const struct prologue_mark *mark = find_mark(code, (uint32_t)off);
    if (mark->depth > 0)
        depth = mark->depth;
    int32_t before = prologue->depth[off];
    if (before == depth || before == UNKNOWN)
        return;
    prologue->depth[off] = before == UNSEEN ? depth : UNKNOWN;
    prologue->pending[prologue->pending_count++] = (uint32_t)off;
}

/*
 * Large frames are taken a page at a time, so that the guard page is met:
 *   lea -n(%rsp),%reg; L: sub $0x1000,%rsp; or $0,(%rsp) or mov; cmp %reg,%rsp; jne L
 * Returns the bytes from the lea to behind the loop, and the depth there; 0: something else.
 */
static size_t match_probe_loop(const uint8_t *code, size_t size, const struct instruction *lea, int32_t depth,
                               int32_t *ret_depth)
{
    enum { SUB, TOUCH, CMP, JNE, PARTS };
    struct instruction parts[PARTS];
    size_t at[PARTS + 1] = {lea->bytes};
    if (lea->opcode != 0x8d || lea->map != MAP_ONE || lea->is_vex || !(lea->rex & REX_W) || is_reg_rsp(lea) ||
        lea->rm != RSP || depth == UNKNOWN)
        return 0;
    for (size_t i = 0; i < PARTS; i++) {
        if (at[i] >= size || !instruction_decode(code + at[i], size - at[i], &parts[i]) || parts[i].map != MAP_ONE ||
            parts[i].is_vex)
            return 0;
        at[i + 1] = at[i] + parts[i].bytes;
    }
    bool is_loop = parts[SUB].opcode == 0x81 && parts[SUB].reg == 5 && is_register(&parts[SUB], RSP) &&
                   parts[TOUCH].has_modrm && parts[TOUCH].mod != 3 && parts[CMP].opcode == 0x39 &&
                   is_register(&parts[CMP], RSP) && parts[CMP].reg == lea->reg &&
                   (parts[CMP].rex & REX_R) == (lea->rex & REX_R) && parts[JNE].opcode == 0x75 &&
                   parts[JNE].immediate == (int64_t)at[SUB] - (int64_t)at[PARTS];
    if (!is_loop)
        return 0;
    *ret_depth = address_depth(lea, depth, 0);
    return at[PARTS];
}

/* One instruction, at an offset whose depth has changed. */
static void follow(struct prologue *prologue, const struct prologue_code *code, uint32_t off)
{
    struct instruction instruction;
    int32_t depth = prologue->depth[off];
    if (!instruction_decode(code->bytes + off, code->size - off, &instruction))
        return;
    int32_t probed;
    size_t probe_bytes = match_probe_loop(code->bytes + off, code->size - off, &instruction, depth, &probed);
    if (probe_bytes > 0) {
        reach(prologue, code, off + probe_bytes, probed);
        return;
    }
    uint64_t next = (uint64_t)off + instruction.bytes;
    enum flow flow = flow_of(&instruction);
    if (flow == FLOW_CALL && next == prologue->off)
        prologue->before_call = prologue->before_call == UNSEEN || prologue->before_call == depth ? depth : UNKNOWN;
    if (flow == FLOW_BRANCH || flow == FLOW_JUMP)
        reach(prologue, code, next + (uint64_t)instruction.immediate, depth);
    if (flow == FLOW_ON || flow == FLOW_CALL || flow == FLOW_BRANCH)
        reach(prologue, code, next, depth_behind(&instruction, depth, code->frame_off));
}

static void follow_all(struct prologue *prologue, const struct prologue_code *code)
{
    while (prologue->pending_count > 0)
        follow(prologue, code, prologue->pending[--prologue->pending_count]);
}

static int32_t answer(const struct prologue *prologue)
{
    return prologue->exact ? prologue->depth[prologue->off] : prologue->before_call;
}

/* ---- places that no direct way leads to ---- */

struct jumps {
    int32_t indirect; /* the depth of all of them; UNSEEN: there is none; UNKNOWN: they differ */
    int32_t direct;
};

static void note_jump(int32_t *depths, int32_t depth)
{
    *depths = *depths == UNSEEN || *depths == depth ? depth : UNKNOWN;
}

/* The jumps with the frame pointer's mark. Those behind an epilogue have another one. */
static struct jumps find_jumps(const struct prologue *prologue, const struct prologue_code *code)
{
    struct jumps jumps = {UNSEEN, UNSEEN};
    for (uint32_t off = 0; off < code->size; off++) {
        struct instruction instruction;
        if (prologue->depth[off] == UNSEEN || find_mark(code, off)->depth != 0 ||
            !instruction_decode(code->bytes + off, code->size - off, &instruction))
            continue;
        enum flow flow = flow_of(&instruction);
        uint64_t target = off + instruction.bytes + (uint64_t)instruction.immediate;
        if (flow == FLOW_INDIRECT)
            note_jump(&jumps.indirect, prologue->depth[off]);
        else if ((flow == FLOW_BRANCH || flow == FLOW_JUMP) && target < code->size)
            note_jump(&jumps.direct, prologue->depth[off]);
    }
    return jumps;
}

/* Behind the last instruction before `off` that was seen; UINT32_MAX: there is none. */
static uint32_t find_gap(const struct prologue *prologue, const struct prologue_code *code, uint32_t off)
{
    struct instruction instruction;
    while (off > 0 && prologue->depth[off - 1] == UNSEEN)
        off--;
    if (off == 0 || !instruction_decode(code->bytes + off - 1, code->size - off + 1, &instruction))
        return UINT32_MAX;
    return off - 1 + instruction.bytes;
}

/* From where nothing leads on to, one piece of code after the other, until the place is met or passed. */
static void follow_gaps(struct prologue *prologue, const struct prologue_code *code, int32_t depth)
{
    uint32_t at = find_gap(prologue, code, prologue->off);
    while (at < prologue->off + (uint32_t)prologue->exact && answer(prologue) == UNSEEN) {
        struct instruction instruction;
        if (prologue->depth[at] == UNSEEN) {
            if (find_mark(code, at)->depth != 0)
                return;
            reach(prologue, code, at, depth);
            follow_all(prologue, code);
        }
        if (!instruction_decode(code->bytes + at, code->size - at, &instruction))
            return;
        at += instruction.bytes;
    }
}

int32_t prologue_depth(struct prologue *prologue, const struct prologue_code *code, uint32_t off, bool exact)
{
    struct prologue_code looked_at = *code;
    if (looked_at.size > PROLOGUE_CODE_MAX)
        looked_at.size = PROLOGUE_CODE_MAX;
    if (off + (uint64_t)exact > looked_at.size || code->mark_count == 0)
        return 0;
    memset(prologue->depth, 0, (looked_at.size + 1) * sizeof(prologue->depth[0]));
    prologue->pending_count = 0;
    prologue->before_call = UNSEEN;
    prologue->off = off;
    prologue->exact = exact;
    for (size_t i = 0; i < code->mark_count; i++) {
        if (code->marks[i].depth > 0)
            reach(prologue, &looked_at, code->marks[i].off, code->marks[i].depth);
    }
    follow_all(prologue, &looked_at);
    if (answer(prologue) == UNSEEN) {
        struct jumps jumps = find_jumps(prologue, &looked_at);
        int32_t depth = jumps.indirect != UNSEEN ? jumps.indirect : jumps.direct;
        if (depth > 0)
            follow_gaps(prologue, &looked_at, depth);
    }
    int32_t depth = answer(prologue);
    return depth > 0 ? depth : 0;
}
