#include "unwind/rule.h"

#include <string.h>

enum { WORD_BYTES = 8, GENERAL_PURPOSE = (1U << REGISTER_PC) - 1 };

static uint64_t word_at(uint64_t cfa, int words)
{
    return cfa + (uint64_t)((int64_t)words * WORD_BYTES);
}

/* The registers whose values lie at fixed places. */
static void restore_saved(const struct rule *rule, struct view *view, uint64_t cfa, struct registers *registers)
{
    for (unsigned changed = rule->changed & RULE_CHANGED; changed; changed &= changed - 1) {
        unsigned i = (unsigned)__builtin_ctz(changed);
        unsigned reg = rule_saved_registers[i];
        if (rule->saved[i] != SAVED_UNKNOWN &&
            view_try_word(view, word_at(cfa, rule->saved[i]), &registers->value[reg]))
            registers->known |= 1U << reg;
        else
            registers->known &= ~(1U << reg);
    }
}

enum rule_answer rule_apply_plain(const struct rule *rule, struct view *view, struct registers *registers)
{
    if (rule->return_in == RETURN_UNDEFINED)
        return RULE_OUTERMOST;
    if (!registers_known(registers, rule->cfa_register))
        return RULE_UNUSABLE;
    uint64_t cfa = registers->value[rule->cfa_register] + (uint64_t)(int64_t)rule->cfa_off;
    uint64_t return_avma;
    const uint8_t *at_cfa =
        view->snapshot->range_count > 0 ? rule_find_copied(rule, &view->snapshot->ranges[0], cfa) : NULL;
    if (rule->return_in == RETURN_IN_REGISTER) {
        if (!registers_known(registers, (unsigned)rule->return_at))
            return RULE_UNUSABLE;
        return_avma = registers->value[rule->return_at];
    } else if (at_cfa) {
        memcpy(&return_avma, at_cfa + rule->return_at * WORD_BYTES, WORD_BYTES);
        view_have(view, word_at(cfa, rule->return_at) + WORD_BYTES);
    } else if (!view_word(view, word_at(cfa, rule->return_at), &return_avma)) {
        return RULE_NEEDS_MEMORY;
    }
    if (at_cfa)
        rule_restore_copied(rule, at_cfa, registers);
    else
        restore_saved(rule, view, cfa, registers);
    registers->value[REGISTER_RSP] = cfa;
    registers->value[REGISTER_PC] = return_avma;
    registers->known &= RULE_PRESERVED | 1U << REGISTER_RSP | 1U << REGISTER_PC;
    return RULE_STEPPED;
}

bool rule_find_cfa(const struct rule *rule, const struct registers *registers, uint64_t *ret_cfa)
{
    if (rule->kind != RULE_PLAIN || rule->return_in != RETURN_AT_CFA || rule->return_at != -1 ||
        !registers_known(registers, rule->cfa_register))
        return false;
    *ret_cfa = registers->value[rule->cfa_register] + (uint64_t)(int64_t)rule->cfa_off;
    return true;
}

/* ---- general rules ---- */

struct evaluation {
    const struct expression_op *ops;
    struct view *view;
    const struct registers *frame;
    uint64_t pc;
    uint64_t cfa;
};

static enum rule_answer evaluate(const struct evaluation *evaluation, const struct location *location,
                                 const uint64_t *first, uint64_t *ret_value)
{
    switch (expression_evaluate(evaluation->ops + location->first_op, location->op_count, first, evaluation->view,
                                evaluation->frame, evaluation->pc, ret_value)) {
    case EXPRESSION_VALUE:
        return RULE_STEPPED;
    case EXPRESSION_NEEDS_MEMORY:
        return RULE_NEEDS_MEMORY;
    case EXPRESSION_UNUSABLE:
        break;
    }
    return RULE_UNUSABLE;
}

static enum rule_answer load(const struct evaluation *evaluation, uint64_t avma, uint64_t *ret_value)
{
    return view_word(evaluation->view, avma, ret_value) ? RULE_STEPPED : RULE_NEEDS_MEMORY;
}

/* A register as operand; the pc is where expressions see it. */
static bool read_register(const struct evaluation *evaluation, unsigned reg, uint64_t *ret_value)
{
    if (!registers_known(evaluation->frame, reg))
        return false;
    *ret_value = reg == REGISTER_PC ? evaluation->pc : evaluation->frame->value[reg];
    return true;
}

static enum rule_answer find_value(const struct evaluation *evaluation, const struct location *location, unsigned reg,
                                   uint64_t *ret_value)
{
    uint64_t value;
    enum rule_answer answer;
    switch ((enum location_kind)location->kind) {
    case LOCATION_SAME:
        if (!registers_known(evaluation->frame, reg))
            return RULE_UNUSABLE;
        *ret_value = evaluation->frame->value[reg];
        return RULE_STEPPED;
    case LOCATION_UNDEFINED:
        return RULE_UNUSABLE;
    case LOCATION_AT_CFA:
        return load(evaluation, evaluation->cfa + (uint64_t)location->off, ret_value);
    case LOCATION_IS_CFA:
        *ret_value = evaluation->cfa + (uint64_t)location->off;
        return RULE_STEPPED;
    case LOCATION_IN_REGISTER:
    case LOCATION_AT_REGISTER:
        if (!read_register(evaluation, location->reg, &value))
            return RULE_UNUSABLE;
        value += (uint64_t)location->off;
        if (location->kind == LOCATION_AT_REGISTER)
            return load(evaluation, value, ret_value);
        *ret_value = value;
        return RULE_STEPPED;
    case LOCATION_AT:
    case LOCATION_IS:
        answer = evaluate(evaluation, location, &evaluation->cfa, &value);
        if (answer == RULE_STEPPED && location->kind == LOCATION_AT)
            return load(evaluation, value, ret_value);
        if (answer == RULE_STEPPED)
            *ret_value = value;
        return answer;
    }
    return RULE_UNUSABLE;
}

static enum rule_answer find_cfa(struct evaluation *evaluation, const struct location *location)
{
    if (location->kind == LOCATION_IS)
        return evaluate(evaluation, location, NULL, &evaluation->cfa);
    return find_value(evaluation, location, REGISTER_RSP, &evaluation->cfa);
}

enum rule_answer rule_apply_general(const struct general_rule *general, bool signal, const struct expression_op *ops,
                                    struct view *view, struct registers *registers, uint64_t lookup_avma)
{
    const struct location *locations = general->registers;
    if (locations[REGISTER_PC].kind == LOCATION_UNDEFINED)
        return RULE_OUTERMOST;
    struct evaluation evaluation = {.ops = ops, .view = view, .frame = registers, .pc = lookup_avma};
    enum rule_answer answer = find_cfa(&evaluation, &general->cfa);
    struct registers caller = {.known = 1U << REGISTER_RSP | 1U << REGISTER_PC};
    if (answer == RULE_STEPPED)
        answer = find_value(&evaluation, &locations[REGISTER_PC], REGISTER_PC, &caller.value[REGISTER_PC]);
    if (answer == RULE_STEPPED)
        answer = find_value(&evaluation, &locations[REGISTER_RSP], REGISTER_RSP, &caller.value[REGISTER_RSP]);
    if (answer != RULE_STEPPED)
        return answer;
    uint32_t wanted = signal ? GENERAL_PURPOSE : RULE_PRESERVED;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        struct view before = *view;
        if (reg == REGISTER_RSP)
            continue;
        /* A register that a call may destroy has the caller's value only where the rule says where that lies. */
        if (!(wanted >> reg & 1U) && locations[reg].kind == LOCATION_SAME)
            continue;
        if (find_value(&evaluation, &locations[reg], reg, &caller.value[reg]) == RULE_STEPPED)
            caller.known |= 1U << reg;
        else
            view_restore(view, &before); /* it is not known; that is nothing to copy more of the stack for */
    }
    *registers = caller;
    return RULE_STEPPED;
}
