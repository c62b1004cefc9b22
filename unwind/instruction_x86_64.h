/*
 * Where an x86-64 instruction ends, and of what parts it consists: for walking over code from one instruction to the
 * next. Not a disassembler: it says nothing of what instructions mean.
 *
 * Known are 64-bit mode's one-byte opcodes and the maps 0F, 0F 38 and 0F 3A, with legacy prefixes, REX, VEX and EVEX;
 * not 3DNow!, XOP, APX, nor opcodes that are undefined there. Of opcodes that exist with some operands only, also the
 * other ones are given a length. Format: Intel SDM volume 2, chapter 2 and appendix A.
 */
#ifndef UNWIND_INSTRUCTION_X86_64_H
#define UNWIND_INSTRUCTION_X86_64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INSTRUCTION_BYTES_MAX = 15 };

enum instruction_map { MAP_ONE, MAP_0F, MAP_0F38, MAP_0F3A, MAP_5 = 5, MAP_6 };

enum { REX_B = 1, REX_X = 2, REX_R = 4, REX_W = 8 };

struct instruction {
    uint8_t bytes; /* its length */
    uint8_t map;   /* enum instruction_map */
    uint8_t opcode;
    uint8_t rex;             /* REX_ bits; of VEX and EVEX instructions 0 */
    bool has_operand_prefix; /* 66 */
    bool has_address_prefix; /* 67 */
    bool has_segment;        /* FS or GS */
    bool is_vex;             /* VEX or EVEX */
    bool has_modrm;
    uint8_t mod; /* of ModRM, its three fields as they stand; registers without their REX bit */
    uint8_t reg;
    uint8_t rm;
    uint8_t sib; /* 0: none */
    int32_t displacement;
    int64_t immediate; /* sign-extended; a jump's distance from the instruction's end */
};

/* false: unknown, or longer than `size`; *ret is undefined then. */
bool instruction_decode(const uint8_t *code, size_t size, struct instruction *ret);

#endif
