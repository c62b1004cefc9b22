/*
 * What one row of unwind information says, reduced to what a walk needs: how to come from a frame to its caller.
 *
 * Nearly all rows are *plain*: the CFA is a register plus a number, the return address and the registers that a call
 * preserves lie at fixed distances from it. They fit 16 bytes and are applied without a loop over columns. (What throws
 * also saves rax and rdx, for the landing pad; to a caller they are unknown, and are left out.) Rows with expressions,
 * or with other registers (signal trampolines, PLT entries, realigned frames, some assembly), are *general*; the parts
 * stand in tables of the cache that owns the rule (rulecache.h).
 *
 * A rule speaks of registers and distances only, so it is true wherever the image is mapped.
 */
#ifndef UNWIND_RULE_H
#define UNWIND_RULE_H

#include "unwind/expression.h"
#include "unwind/snapshot.h"

enum rule_kind {
    RULE_NONE,    /* no unwind information covers the address */
    RULE_BAD,     /* there is some, but damaged */
    RULE_PLAIN,   /* as below */
    RULE_GENERAL, /* `general` is an index into the owner's general rules */
    RULE_FOREIGN, /* what we do not do: for libunwind */
    RULE_KIND_MASK = 15
};

/* Where the return address is, in a plain rule. */
enum rule_return { RETURN_AT_CFA, RETURN_IN_REGISTER, RETURN_UNDEFINED /* no caller */ };

/* System V ABI AMD64, section 3.2.1: the registers that a called function preserves, but for rsp. */
enum {
    RULE_SAVED = 6,
    RULE_PRESERVED = 1U << REGISTER_RBX | 1U << REGISTER_RBP | 1U << REGISTER_R12 | 1U << REGISTER_R13 |
                     1U << REGISTER_R14 | 1U << REGISTER_R15
};
static const uint8_t rule_saved_registers[RULE_SAVED] = {REGISTER_RBX, REGISTER_RBP, REGISTER_R12,
                                                         REGISTER_R13, REGISTER_R14, REGISTER_R15};

enum { SAVED_NOWHERE = 0 /* it still has the caller's value */, SAVED_UNKNOWN = INT8_MIN };

struct rule {
    uint8_t kind : 4;
    uint8_t return_in : 4; /* enum rule_return */
    bool signal;           /* the caller was interrupted: its frame is exact */
    uint8_t cfa_register;
    uint8_t depth; /* of a plain rule: words below the CFA down to the lowest that it needs */
    union {
        int32_t cfa_off;  /* CFA = cfa_register + cfa_off */
        uint32_t general; /* RULE_GENERAL: which one */
    };
    int8_t return_at;         /* words from the CFA, or the register */
    int8_t saved[RULE_SAVED]; /* words from the CFA where the caller's value lies, or SAVED_ */
    uint8_t changed;          /* bit n: saved[n] is not SAVED_NOWHERE; and RULE_UPWARD */
};
/* Something of it lies at the CFA or above. Of other rules all lies below, as calls and pushes make it. */
enum { RULE_CHANGED = (1 << RULE_SAVED) - 1, RULE_UPWARD = 1 << RULE_SAVED };

_Static_assert(sizeof(struct rule) == 16, "rules are small");

enum location_kind {
    LOCATION_SAME,
    LOCATION_UNDEFINED,
    LOCATION_AT_CFA,      /* in memory at CFA + off */
    LOCATION_IS_CFA,      /* the value is CFA + off */
    LOCATION_IN_REGISTER, /* in `reg` */
    LOCATION_AT_REGISTER, /* in memory at `reg` + off */
    LOCATION_AT,          /* in memory at what the expression gives, which starts with the CFA */
    LOCATION_IS           /* what the expression gives, which starts with the CFA */
};

struct location {
    uint8_t kind; /* enum location_kind */
    uint8_t reg;
    uint16_t op_count;
    uint32_t first_op; /* index into the owner's operations */
    int64_t off;
};

struct general_rule {
    struct location cfa;                       /* IN_REGISTER with off, AT_REGISTER, or IS (starting with nothing) */
    struct location registers[REGISTER_COUNT]; /* the return address is column REGISTER_PC */
};

enum rule_answer {
    RULE_STEPPED,
    RULE_OUTERMOST,    /* the return address is undefined */
    RULE_NEEDS_MEMORY, /* view->failed and view->cut say which */
    RULE_UNUSABLE      /* needs a register that is not known, or cannot be evaluated */
};

/*
 * Applies a plain or general rule. `registers` are the frame's, with rsp and pc known, and become the caller's on
 * RULE_STEPPED: rsp is the CFA, and known are those that a call preserves and that can be had, by a general rule also
 * others that it says the place of; after a signal frame all. A saved register whose memory is not at hand is not
 * known, which is no failure. On any other answer they are undefined.
 */
enum rule_answer rule_apply_plain(const struct rule *rule, struct view *view, struct registers *registers);
/* The CFA of a plain rule whose return address is next to it. false: another rule, or its register is not known. */
bool rule_find_cfa(const struct rule *rule, const struct registers *registers, uint64_t *ret_cfa);

/* The copied bytes at the CFA, if whatever a plain rule can reach from there is copied, too; else NULL. */
static inline const uint8_t *rule_find_copied(const struct rule *rule, const struct memory_range *stack, uint64_t cfa)
{
    enum { REACH_BYTES = 128 * sizeof(uint64_t) };
    uint64_t off = cfa - stack->avma;
    size_t above = rule->changed & RULE_UPWARD ? REACH_BYTES : 0;
    bool is_copied =
        cfa >= stack->avma && off >= rule->depth * sizeof(uint64_t) && off <= stack->size && above <= stack->size - off;
    return is_copied ? stack->bytes + off : NULL;
}

/* The registers that the rule restores, then. */
static inline void rule_restore_copied(const struct rule *rule, const uint8_t *at_cfa, struct registers *registers)
{
    for (unsigned changed = rule->changed & RULE_CHANGED; changed; changed &= changed - 1) {
        unsigned i = (unsigned)__builtin_ctz(changed);
        unsigned reg = rule_saved_registers[i];
        if (rule->saved[i] == SAVED_UNKNOWN) {
            registers->known &= ~(1U << reg);
            continue;
        }
        memcpy(&registers->value[reg], at_cfa + rule->saved[i] * (int)sizeof(uint64_t), sizeof(uint64_t));
        registers->known |= 1U << reg;
    }
}

enum rule_answer rule_apply_general(const struct general_rule *general, bool signal, const struct expression_op *ops,
                                    struct view *view, struct registers *registers, uint64_t lookup_avma);

#endif
