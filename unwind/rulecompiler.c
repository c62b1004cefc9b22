#include "unwind/rulecompiler.h"

#include "common/array.h"
#include "unwind/cfientry.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An ELF file with section headers, section names and one section. The entries are 8-aligned. */
enum { SECTION_NULL, SECTION_NAMES, SECTION_FRAMES, SECTION_COUNT };
static const char NAMES[24] = "\0.shstrtab\0.eh_frame";
enum { NAMES_OFF_SHSTRTAB = 1, NAMES_OFF_EH_FRAME = 11 };

struct wrapping {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTION_COUNT];
    char names[sizeof(NAMES)];
};

struct rulecompiler {
    uint8_t *file; /* struct wrapping and the entries of one function */
    size_t file_capacity;
};

struct rulecompiler *rulecompiler_new(void)
{
    elf_version(EV_CURRENT);
    return calloc(1, sizeof(struct rulecompiler));
}

void rulecompiler_free(struct rulecompiler *compiler)
{
    if (!compiler)
        return;
    free(compiler->file);
    free(compiler);
}

/* ---- the image that libdw reads ---- */

static int write_file(struct rulecompiler *compiler, const uint8_t *entries, size_t entry_bytes, size_t *ret_bytes)
{
    size_t size = sizeof(struct wrapping) + entry_bytes;
    int err = array_room(&compiler->file, &compiler->file_capacity, size);
    if (err)
        return err;
    struct wrapping wrapping = {
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                   .e_type = ET_DYN,
                   .e_machine = EM_X86_64,
                   .e_version = EV_CURRENT,
                   .e_shoff = offsetof(struct wrapping, sections),
                   .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = SECTION_COUNT,
                   .e_shstrndx = SECTION_NAMES},
        .sections = {[SECTION_NAMES] = {.sh_name = NAMES_OFF_SHSTRTAB,
                                        .sh_type = SHT_STRTAB,
                                        .sh_offset = offsetof(struct wrapping, names),
                                        .sh_size = sizeof(NAMES),
                                        .sh_addralign = 1},
                     [SECTION_FRAMES] = {.sh_name = NAMES_OFF_EH_FRAME,
                                         .sh_type = SHT_PROGBITS,
                                         .sh_flags = SHF_ALLOC,
                                         .sh_offset = sizeof(struct wrapping),
                                         .sh_size = entry_bytes,
                                         .sh_addralign = 8}},
    };
    memcpy(wrapping.names, NAMES, sizeof(NAMES));
    memcpy(compiler->file, &wrapping, sizeof(wrapping));
    memcpy(compiler->file + sizeof(wrapping), entries, entry_bytes);
    *ret_bytes = size;
    return 0;
}

/* ---- expressions ---- */

/* Decodes one operation; false: not one of ours. Jumps get their target later. */
static bool decode_op(const Dwarf_Op *from, struct expression_op *ret_op)
{
    struct expression_op op = {.atom = from->atom, .operand = from->number};
    uint8_t atom = from->atom;
    if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31) {
        op.atom = DW_OP_constu;
        op.operand = atom - DW_OP_lit0;
    } else if (atom == DW_OP_addr || (atom >= DW_OP_const1u && atom <= DW_OP_consts)) {
        op.atom = DW_OP_constu; /* libdw has extended the sign */
    } else if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31) {
        op.atom = DW_OP_breg0;
        op.reg = atom - DW_OP_breg0;
    } else if (atom == DW_OP_bregx) {
        op.atom = DW_OP_breg0;
        op.reg = from->number < REGISTER_COUNT ? (uint8_t)from->number : REGISTER_COUNT;
        op.operand = from->number2;
    } else if (atom == DW_OP_deref_size || atom == DW_OP_pick) {
        op.size = (uint32_t)from->number;
        if (atom == DW_OP_deref_size && (op.size == 0 || op.size > sizeof(uint64_t)))
            return false;
    }
    if (!expression_knows(op.atom) || op.reg >= REGISTER_COUNT)
        return false;
    *ret_op = op;
    return true;
}

/* The operation that starts at byte `off`, or at the end of all (`count`). */
static bool find_target(const Dwarf_Op *ops, size_t count, uint64_t off, uint16_t *ret_target)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i].offset == off) {
            *ret_target = (uint16_t)i;
            return true;
        }
    }
    /* libdw does not say where the last one ends; jumps there are rare, and it is not far beyond the last one's start.
     */
    enum { OP_BYTES_MAX = 1 + 10 + 10 };
    uint64_t last = count > 0 ? ops[count - 1].offset : 0;
    *ret_target = (uint16_t)count;
    return off > last && off - last <= OP_BYTES_MAX;
}

static bool add_expression(struct compiled_rule *rule, const Dwarf_Op *ops, size_t count, struct location *location)
{
    if (count > COMPILED_OPS_MAX - rule->op_count)
        return false;
    location->first_op = (uint32_t)rule->op_count;
    location->op_count = (uint16_t)count;
    for (size_t i = 0; i < count; i++) {
        struct expression_op *op = &rule->ops[rule->op_count + i];
        if (!decode_op(&ops[i], op))
            return false;
        enum { JUMP_BYTES = 3 };
        if ((op->atom == DW_OP_bra || op->atom == DW_OP_skip) &&
            !find_target(ops, count, ops[i].offset + JUMP_BYTES + (uint64_t)(int64_t)(int16_t)op->operand, &op->target))
            return false;
    }
    rule->op_count += count;
    return true;
}

/* A register plus a number: one operation. */
static bool is_register_sum(const Dwarf_Op *ops, size_t count, struct location *ret)
{
    struct expression_op op;
    if (count != 1 || !decode_op(ops, &op) || op.atom != DW_OP_breg0)
        return false;
    ret->reg = op.reg;
    ret->off = (int64_t)op.operand;
    return true;
}

static bool reduce_cfa(struct compiled_rule *rule, const Dwarf_Op *ops, size_t count)
{
    struct location *cfa = &rule->general.cfa;
    *cfa = (struct location){.kind = LOCATION_IN_REGISTER};
    if (is_register_sum(ops, count, cfa))
        return true;
    if (count == 2 && ops[1].atom == DW_OP_deref && is_register_sum(ops, 1, cfa)) {
        cfa->kind = LOCATION_AT_REGISTER;
        return true;
    }
    cfa->kind = LOCATION_IS;
    return count > 0 && add_expression(rule, ops, count, cfa);
}

/* What dwarf_frame_register gives: NULL for "same value", nothing for "undefined", else a location or, with
 * DW_OP_stack_value at the end, a value; it starts with the CFA or is one register. */
static bool reduce_register(struct compiled_rule *rule, const Dwarf_Op *ops, size_t count, struct location *location)
{
    *location = (struct location){.kind = LOCATION_UNDEFINED};
    if (!ops) {
        location->kind = LOCATION_SAME;
        return true;
    }
    if (count == 0)
        return true;
    if (count == 1 && ops[0].atom == DW_OP_regx) {
        location->kind = LOCATION_IN_REGISTER;
        location->reg = (uint8_t)ops[0].number;
        return ops[0].number < REGISTER_COUNT;
    }
    if (ops[0].atom != DW_OP_call_frame_cfa)
        return false;
    bool is_value = ops[count - 1].atom == DW_OP_stack_value;
    const Dwarf_Op *rest = ops + 1;
    size_t rest_count = count - 1 - is_value;
    if (rest_count == 0 || (rest_count == 1 && rest[0].atom == DW_OP_plus_uconst)) {
        location->kind = is_value ? LOCATION_IS_CFA : LOCATION_AT_CFA;
        location->off = rest_count ? (int64_t)rest[0].number : 0;
        return true;
    }
    if (!is_value && is_register_sum(rest, rest_count, location)) {
        location->kind = LOCATION_AT_REGISTER;
        return true;
    }
    location->kind = is_value ? LOCATION_IS : LOCATION_AT;
    return add_expression(rule, rest, rest_count, location);
}

/* ---- the row ---- */

static bool reduce_frame(Dwarf_Frame *frame, struct compiled_rule *rule)
{
    Dwarf_Op *ops;
    size_t count;
    if (dwarf_frame_cfa(frame, &ops, &count) != 0 || !reduce_cfa(rule, ops, count))
        return false;
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++) {
        Dwarf_Op memory[3];
        if (dwarf_frame_register(frame, (int)reg, memory, &ops, &count) != 0 ||
            !reduce_register(rule, ops, count, &rule->general.registers[reg]))
            return false;
    }
    return true;
}

static bool words_from_cfa(const struct location *location, int8_t *ret_words)
{
    if (location->off % 8 != 0 || location->off / 8 <= INT8_MIN || location->off / 8 > INT8_MAX)
        return false;
    *ret_words = (int8_t)(location->off / 8);
    return true;
}

/* A word that the rule needs, relative to the CFA. */
static void note_reach(struct rule *rule, int words)
{
    if (words >= 0)
        rule->changed |= RULE_UPWARD;
    else if (-words > rule->depth)
        rule->depth = (uint8_t)-words;
}

static bool make_plain_return(const struct location *location, struct rule *rule)
{
    switch (location->kind) {
    case LOCATION_UNDEFINED:
        rule->return_in = RETURN_UNDEFINED;
        return true;
    case LOCATION_AT_CFA:
        rule->return_in = RETURN_AT_CFA;
        if (!words_from_cfa(location, &rule->return_at))
            return false;
        note_reach(rule, rule->return_at);
        return true;
    case LOCATION_IN_REGISTER:
        rule->return_in = RETURN_IN_REGISTER;
        rule->return_at = (int8_t)location->reg;
        return true;
    default:
        return false;
    }
}

static bool make_plain_saved(const struct general_rule *general, struct rule *rule)
{
    for (unsigned i = 0; i < RULE_SAVED; i++) {
        const struct location *location = &general->registers[rule_saved_registers[i]];
        if (location->kind == LOCATION_SAME)
            rule->saved[i] = SAVED_NOWHERE;
        else if (location->kind == LOCATION_UNDEFINED)
            rule->saved[i] = SAVED_UNKNOWN;
        else if (location->kind != LOCATION_AT_CFA || !words_from_cfa(location, &rule->saved[i]) ||
                 rule->saved[i] == SAVED_NOWHERE)
            return false;
        rule->changed |= (uint8_t)((rule->saved[i] != SAVED_NOWHERE) << i);
        if (location->kind == LOCATION_AT_CFA)
            note_reach(rule, rule->saved[i]);
    }
    return true;
}

/* Can all that the row says be said in a plain rule? */
static bool make_plain(const struct general_rule *general, struct rule *rule)
{
    const struct location *cfa = &general->cfa;
    /* What expressions see as the pc is not the register's value in a frame that has called. */
    const struct location *pc = &general->registers[REGISTER_PC];
    if (cfa->reg == REGISTER_PC || (pc->kind == LOCATION_IN_REGISTER && pc->reg == REGISTER_PC))
        return false;
    if (cfa->kind != LOCATION_IN_REGISTER || cfa->off != (int32_t)cfa->off)
        return false;
    rule->cfa_register = cfa->reg;
    rule->cfa_off = (int32_t)cfa->off;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        const struct location *location = &general->registers[reg];
        bool is_default = location->kind == LOCATION_SAME || location->kind == LOCATION_UNDEFINED;
        /* What throws saves these for __builtin_eh_return, on x86-64 with these two registers. A call destroys them, so
         * no caller's row speaks of them. */
        if (reg == REGISTER_RAX || reg == REGISTER_RDX)
            is_default |= location->kind == LOCATION_AT_CFA;
        if (reg == REGISTER_RSP)
            is_default = location->kind == LOCATION_IS_CFA && location->off == 0;
        bool is_saved = false;
        for (unsigned i = 0; i < RULE_SAVED; i++)
            is_saved |= rule_saved_registers[i] == reg;
        if (!is_default && !is_saved)
            return false;
    }
    return make_plain_return(&general->registers[REGISTER_PC], rule) && make_plain_saved(general, rule);
}

static void compile_frame(Dwarf_Frame *frame, struct compiled_rule *rule)
{
    if (!reduce_frame(frame, rule))
        return;
    struct rule plain = {.kind = RULE_PLAIN};
    if (!rule->rule.signal && make_plain(&rule->general, &plain))
        rule->rule = plain;
    else
        rule->rule.kind = RULE_GENERAL;
}

static void compile_file(const struct rulecompiler *compiler, size_t file_bytes, uint64_t svma,
                         struct compiled_rule *rule)
{
    Elf *elf = elf_memory((char *)compiler->file, file_bytes);
    Dwarf_CFI *cfi = elf ? dwarf_getcfi_elf(elf) : NULL;
    Dwarf_Frame *frame = NULL;
    if (cfi && dwarf_cfi_addrframe(cfi, svma, &frame) == 0)
        compile_frame(frame, rule);
    free(frame);
    if (cfi)
        dwarf_cfi_end(cfi);
    if (elf)
        elf_end(elf);
}

int rulecompiler_run(struct rulecompiler *compiler, const struct cfitable *table, const struct cfi_function *function,
                     uint64_t svma, struct compiled_rule *ret_rule)
{
    size_t size;
    const uint8_t *entries = cfitable_bytes(table, &size);
    size_t file_bytes;
    int err = write_file(compiler, entries + function->cie_off, function->end_off - function->cie_off, &file_bytes);
    if (err)
        return err;
    /* Not from dwarf_frame_info: behind a DW_CFA_restore_state, elfutils 0.188 says that the row started where the
     * remembered one did. */
    ret_rule->start_svma = function->start_svma;
    ret_rule->end_svma = function->end_svma;
    cfi_program_row(entries + function->program_off, function->end_off - function->program_off, function->code_align,
                    svma, &ret_rule->start_svma, &ret_rule->end_svma);
    ret_rule->rule = (struct rule){.kind = RULE_FOREIGN, .signal = function->signal};
    ret_rule->op_count = 0;
    compile_file(compiler, file_bytes, svma, ret_rule);
    return 0;
}
