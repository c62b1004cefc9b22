#include "unwind/instruction_x86_64.h"

#include <string.h>

/* What follows an opcode. */
enum {
    NO = 0x00,    /* no such opcode, or a prefix */
    OP = 0x01,    /* there is one */
    MOD = 0x02,   /* ModRM, with what belongs to it */
    BYTE = 0x04,  /* immediate of 1 byte */
    HALF = 0x08,  /* of 2 */
    FULL = 0x10,  /* of 4; of 2 with an operand prefix */
    WIDE = 0x20,  /* the same, but 8 with REX.W */
    JUMP = 0x40,  /* a distance of 4, whatever the prefixes */
    PLACE = 0x80, /* an address of 8; of 4 with an address prefix */

    M = OP | MOD,
    MB = M | BYTE,
    MF = M | FULL,
    B = OP | BYTE,
    F = OP | FULL,
    J = OP | JUMP,
    P = OP | PLACE
};

/* clang-format off */
static const uint8_t one_byte[256] = {
    /*         0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */    M,  M,  M,  M,  B,  F, NO, NO,  M,  M,  M,  M,  B,  F, NO, NO,
    /* 1 */    M,  M,  M,  M,  B,  F, NO, NO,  M,  M,  M,  M,  B,  F, NO, NO,
    /* 2 */    M,  M,  M,  M,  B,  F, NO, NO,  M,  M,  M,  M,  B,  F, NO, NO,
    /* 3 */    M,  M,  M,  M,  B,  F, NO, NO,  M,  M,  M,  M,  B,  F, NO, NO,
    /* 4 */   NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    /* 5 */   OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, OP,
    /* 6 */   NO, NO, NO,  M, NO, NO, NO, NO,  F, MF,  B, MB, OP, OP, OP, OP,
    /* 7 */    B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,  B,
    /* 8 */   MB, MF, NO, MB,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 9 */   OP, OP, OP, OP, OP, OP, OP, OP, OP, OP, NO, OP, OP, OP, OP, OP,
    /* a */    P,  P,  P,  P, OP, OP, OP, OP,  B,  F, OP, OP, OP, OP, OP, OP,
    /* b */    B,  B,  B,  B,  B,  B,  B,  B, OP | WIDE, OP | WIDE, OP | WIDE, OP | WIDE,
                                                    OP | WIDE, OP | WIDE, OP | WIDE, OP | WIDE,
    /* c */   MB, MB, OP | HALF, OP, NO, NO, MB, MF, B | HALF, OP, OP | HALF, OP, OP, B, NO, OP,
    /* d */    M,  M,  M,  M, NO, NO, NO, OP,  M,  M,  M,  M,  M,  M,  M,  M,
    /* e */    B,  B,  B,  B,  B,  B,  B,  B,  J,  J, NO,  B, OP, OP, OP, OP,
    /* f */   NO, OP, NO, NO, OP, OP,  M,  M, OP, OP, OP, OP, OP, OP,  M,  M,
};

static const uint8_t two_byte[256] = {
    /*         0   1   2   3   4   5   6   7   8   9   a   b   c   d   e   f */
    /* 0 */    M,  M,  M,  M, NO, OP, OP, OP, OP, OP, NO, OP, NO,  M, NO, NO,
    /* 1 */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 2 */    M,  M,  M,  M, NO, NO, NO, NO,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 3 */   OP, OP, OP, OP, OP, OP, NO, OP, NO, NO, NO, NO, NO, NO, NO, NO,
    /* 4 */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 5 */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 6 */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* 7 */   MB, MB, MB, MB,  M,  M,  M, OP, NO, NO, NO, NO,  M,  M,  M,  M,
    /* 8 */    J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,  J,
    /* 9 */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* a */   OP, OP, OP,  M, MB,  M, NO, NO, OP, OP, OP,  M, MB,  M,  M,  M,
    /* b */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M, MB,  M,  M,  M,  M,  M,
    /* c */    M,  M, MB,  M, MB, MB, MB,  M, OP, OP, OP, OP, OP, OP, OP, OP,
    /* d */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* e */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
    /* f */    M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,  M,
};
/* clang-format on */

struct cursor {
    const uint8_t *code;
    size_t size;
    size_t position;
    bool bad;
};

static uint8_t take(struct cursor *cursor)
{
    if (cursor->position >= cursor->size) {
        cursor->bad = true;
        return 0;
    }
    return cursor->code[cursor->position++];
}

/* Little-endian, sign-extended. */
static int64_t take_number(struct cursor *cursor, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)take(cursor) << (8 * i);
    if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1) & 1)
        value |= UINT64_MAX << (8 * bytes);
    return (int64_t)value;
}

/* Returns the first byte behind the prefixes. A REX counts only right before the opcode. */
static uint8_t take_prefixes(struct cursor *cursor, struct instruction *instruction)
{
    for (;;) {
        uint8_t byte = take(cursor);
        if (cursor->bad)
            return 0;
        if (byte >> 4 == 4) {
            instruction->rex = byte & 0xf;
            continue;
        }
        bool is_segment = byte == 0x26 || byte == 0x2e || byte == 0x36 || byte == 0x3e;
        if (byte == 0x66)
            instruction->has_operand_prefix = true;
        else if (byte == 0x67)
            instruction->has_address_prefix = true;
        else if (byte == 0x64 || byte == 0x65)
            instruction->has_segment = true;
        else if (!is_segment && byte != 0xf0 && byte != 0xf2 && byte != 0xf3)
            return byte;
        instruction->rex = 0;
    }
}

/* ModRM, SIB and displacement. */
static void take_modrm(struct cursor *cursor, struct instruction *instruction)
{
    uint8_t modrm = take(cursor);
    instruction->has_modrm = true;
    instruction->mod = modrm >> 6;
    instruction->reg = modrm >> 3 & 7;
    instruction->rm = modrm & 7;
    if (instruction->mod == 3)
        return;
    unsigned displacement = instruction->mod == 1 ? 1 : instruction->mod == 2 ? 4 : 0;
    uint8_t base = instruction->rm;
    if (base == 4) {
        instruction->sib = take(cursor);
        base = instruction->sib & 7;
    }
    /* mod 0: rm 5 is rip-relative, a SIB with base 5 has no base. */
    if (instruction->mod == 0 && base == 5)
        displacement = 4;
    instruction->displacement = (int32_t)take_number(cursor, displacement);
}

static void take_operands(struct cursor *cursor, struct instruction *instruction, uint8_t what)
{
    bool is_short = instruction->has_operand_prefix && !(instruction->rex & REX_W);
    if (what & MOD)
        take_modrm(cursor, instruction);
    /* test alone of groups F6 and F7 has an immediate. */
    bool is_group_3 = instruction->map == MAP_ONE && (instruction->opcode & 0xfe) == 0xf6 && !instruction->is_vex;
    if (is_group_3 && instruction->reg < 2)
        what |= instruction->opcode == 0xf6 ? BYTE : FULL;
    if (what & HALF)
        instruction->immediate = take_number(cursor, 2);
    if (what & BYTE)
        instruction->immediate = take_number(cursor, 1);
    if (what & FULL)
        instruction->immediate = take_number(cursor, is_short ? 2 : 4);
    if (what & WIDE)
        instruction->immediate = take_number(cursor, instruction->rex & REX_W ? 8 : is_short ? 2 : 4);
    if (what & JUMP)
        instruction->immediate = take_number(cursor, 4);
    if (what & PLACE)
        instruction->immediate = take_number(cursor, instruction->has_address_prefix ? 4 : 8);
}

/* Of VEX and EVEX instructions, by their map. */
static uint8_t find_vector_operands(uint8_t map, uint8_t opcode)
{
    switch (map) {
    case MAP_0F:
        return opcode == 0x77 ? OP : M | (two_byte[opcode] & BYTE);
    case MAP_0F38:
    case MAP_5:
    case MAP_6:
        return M;
    case MAP_0F3A:
        return MB;
    default:
        return NO;
    }
}

static uint8_t take_vector_opcode(struct cursor *cursor, struct instruction *instruction, uint8_t first)
{
    enum { VEX2 = 0xc5, VEX3 = 0xc4, VEX3_MAP = 0x1f, EVEX_MAP = 7 };
    instruction->is_vex = true;
    instruction->rex = 0;
    uint8_t payload = take(cursor);
    if (first == VEX2) {
        instruction->map = MAP_0F;
    } else {
        instruction->map = payload & (first == VEX3 ? VEX3_MAP : EVEX_MAP);
        take(cursor);
        if (first != VEX3)
            take(cursor);
    }
    instruction->opcode = take(cursor);
    return find_vector_operands(instruction->map, instruction->opcode);
}

static uint8_t take_opcode(struct cursor *cursor, struct instruction *instruction)
{
    uint8_t first = take_prefixes(cursor, instruction);
    if (first == 0xc4 || first == 0xc5 || first == 0x62)
        return take_vector_opcode(cursor, instruction, first);
    instruction->opcode = first;
    if (first != 0x0f)
        return one_byte[first];
    instruction->map = MAP_0F;
    instruction->opcode = take(cursor);
    if (instruction->opcode == 0x38 || instruction->opcode == 0x3a) {
        instruction->map = instruction->opcode == 0x38 ? MAP_0F38 : MAP_0F3A;
        instruction->opcode = take(cursor);
        return instruction->map == MAP_0F38 ? M : MB;
    }
    return two_byte[instruction->opcode];
}

bool instruction_decode(const uint8_t *code, size_t size, struct instruction *ret)
{
    struct cursor cursor = {.code = code, .size = size < INSTRUCTION_BYTES_MAX ? size : INSTRUCTION_BYTES_MAX};
    memset(ret, 0, sizeof(*ret));
    uint8_t what = take_opcode(&cursor, ret);
    if (what == NO || cursor.bad)
        return false;
    take_operands(&cursor, ret, what);
    /* Group 1A is pop alone; its other codes begin XOP instructions. */
    if (!ret->is_vex && ret->map == MAP_ONE && ret->opcode == 0x8f && ret->reg != 0)
        return false;
    ret->bytes = (uint8_t)cursor.position;
    return !cursor.bad;
}
