#include "rulepair.h"

#include <errno.h>
#include <stdlib.h>

static const uint64_t MEMORY = UINT64_C(0x7ffd00000000);
enum { MEMORY_BYTES = RULEPAIR_WORDS * 8, KEPT = RULE_PRESERVED | 1U << REGISTER_RSP | 1U << REGISTER_PC };

/* A place in the middle half, 8-aligned. */
static uint64_t random_place(struct rulepair *pair)
{
    return MEMORY + MEMORY_BYTES / 4 + rng_below(&pair->rng, RULEPAIR_WORDS / 2) * 8;
}

int rulepair_init(struct rulepair *pair)
{
    *pair = (struct rulepair){.rng = {.state = 1}, .map = {.generation = 1}};
    pair->foreign = foreign_new();
    pair->words = calloc(RULEPAIR_WORDS, sizeof(*pair->words));
    if (!pair->foreign || !pair->words) {
        rulepair_deinit(pair);
        return -ENOMEM;
    }
    for (size_t i = 0; i < RULEPAIR_WORDS; i++)
        pair->words[i] = random_place(pair);
    pair->snapshot = (struct snapshot){
        .stack_start_avma = MEMORY,
        .stack_end_avma = MEMORY + 2 * (uint64_t)MEMORY_BYTES,
        .ranges = {{.avma = MEMORY, .bytes = (const uint8_t *)pair->words, .size = MEMORY_BYTES}},
        .range_count = 1,
    };
    return 0;
}

void rulepair_deinit(struct rulepair *pair)
{
    foreign_free(pair->foreign);
    free(pair->words);
    *pair = (struct rulepair){0};
}

struct registers rulepair_registers(struct rulepair *pair, uint64_t pc_avma)
{
    struct registers registers = {.known = (1U << REGISTER_COUNT) - 1};
    for (unsigned reg = 0; reg < REGISTER_PC; reg++)
        registers.value[reg] = random_place(pair);
    registers.value[REGISTER_PC] = pc_avma;
    return registers;
}

struct registers rulepair_edge_registers(struct rulepair *pair, uint64_t pc_avma)
{
    enum { NEAR_WORDS = 24 };
    struct registers registers = rulepair_registers(pair, pc_avma);
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        uint64_t off = rng_below(&pair->rng, NEAR_WORDS) * 8;
        bool is_low = rng_below(&pair->rng, 2) == 0;
        registers.value[reg] = is_low ? MEMORY - NEAR_WORDS * 4 + off : MEMORY + MEMORY_BYTES - NEAR_WORDS * 4 + off;
    }
    return registers;
}

static enum rule_answer apply(struct view *view, const struct compiled_rule *compiled, uint64_t lookup_avma,
                              struct registers *registers)
{
    if (compiled->rule.kind == RULE_PLAIN)
        return rule_apply_plain(&compiled->rule, view, registers);
    return rule_apply_general(&compiled->general, compiled->rule.signal, compiled->ops, view, registers, lookup_avma);
}

enum rule_answer rulepair_apply(struct rulepair *pair, const struct compiled_rule *compiled, uint64_t lookup_avma,
                                struct registers *registers)
{
    struct view view = {.map = &pair->map, .snapshot = &pair->snapshot};
    return apply(&view, compiled, lookup_avma, registers);
}

/*
 * Of the registers that a call may destroy libunwind's step tells nothing, but after a signal frame, and then it also
 * takes those for kept that the row does not mention, which we do not. The caller's rsp is the CFA to it, also where
 * the row says otherwise (longjmp's last instructions).
 */
static uint32_t compared_registers(const struct compiled_rule *compiled)
{
    const struct location *locations = compiled->general.registers;
    uint32_t compared = KEPT;
    for (unsigned reg = 0; reg < REGISTER_PC && compiled->rule.signal; reg++) {
        if (locations[reg].kind != LOCATION_UNDEFINED)
            compared |= 1U << reg;
    }
    bool is_sp_the_cfa = locations[REGISTER_RSP].kind == LOCATION_IS_CFA && locations[REGISTER_RSP].off == 0;
    return is_sp_the_cfa ? compared : compared & ~(1U << REGISTER_RSP);
}

/* A register whose place cannot be told is not known to us; libunwind gives up the frame (realigned ones, where rbp is
 * not known). */
static bool all_places_known(const struct compiled_rule *compiled, const struct registers *registers)
{
    uint32_t needed = 0;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        const struct location *location = &compiled->general.registers[reg];
        if (location->kind == LOCATION_AT_REGISTER || location->kind == LOCATION_IN_REGISTER)
            needed |= 1U << location->reg;
        /* An expression can need any, and memory too. */
        if (location->kind == LOCATION_AT || location->kind == LOCATION_IS)
            return false;
    }
    return (needed & ~registers->known) == 0;
}

const char *rulepair_compare(struct rulepair *pair, const struct cfitable *table, const struct cfi_function *function,
                             uint64_t svma, const struct compiled_rule *compiled, const struct registers *registers)
{
    struct view our_view = {.map = &pair->map, .snapshot = &pair->snapshot};
    struct view their_view = our_view;
    struct registers ours = *registers;
    struct registers theirs = *registers;
    uint64_t lookup_avma = registers->value[REGISTER_PC];
    enum rule_answer our_answer = apply(&our_view, compiled, lookup_avma, &ours);
    enum rule_answer their_answer =
        foreign_apply(pair->foreign, table, function, svma, &their_view, &theirs, lookup_avma);
    const struct location *sp = &compiled->general.registers[REGISTER_RSP];
    bool sp_is_in_register = compiled->rule.kind == RULE_GENERAL && sp->kind == LOCATION_IN_REGISTER;
    if (sp_is_in_register && !registers_known(registers, sp->reg))
        return our_answer == RULE_STEPPED ? "that there is a stack pointer" : NULL;
    if (our_answer == RULE_STEPPED && their_answer != RULE_STEPPED && compiled->rule.kind == RULE_GENERAL &&
        !all_places_known(compiled, registers))
        return NULL;
    if (our_answer != their_answer)
        return "the answer";
    if (our_answer == RULE_NEEDS_MEMORY && our_view.cut != their_view.cut)
        return "what memory is missing";
    if (our_answer != RULE_STEPPED)
        return NULL;
    uint32_t both = compared_registers(compiled);
    if ((ours.known & both) != (theirs.known & both))
        return "which registers are known";
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++) {
        if (registers_known(&ours, reg) && (both >> reg & 1U) && ours.value[reg] != theirs.value[reg])
            return "a register's value";
    }
    return NULL;
}
