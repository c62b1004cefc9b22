/*
 * What one row of unwind information says, reduced to what a walk needs: how to come from a frame to its caller.
 *
 * Nearly all rows are *plain*: the CFA is a register plus a number, the return address and the registers that a call
 * preserves lie at fixed distances from it. They fit 16 bytes and are applied without a loop over columns. Rows with
 * expressions, or with other registers (signal trampolines, PLT entries, realigned frames, some assembly), are
 * *general*; the parts stand in tables of the cache that owns the rule (rulecache.h).
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
    RULE_FOREIGN  /* what we do not do: for libunwind */
};

/* Where the return address is, in a plain rule. */
enum rule_return { RETURN_AT_CFA, RETURN_IN_REGISTER, RETURN_UNDEFINED /* no caller */ };

/* System V ABI AMD64, section 3.2.1: the registers that a called function preserves, but for rsp. */
enum {
    RULE_SAVED = 6,
    RULE_PRESERVED = 1U << REGISTER_RBX | 1U << REGISTER_RBP | 1U << REGISTER_R12 | 1U << REGISTER_R13 |
                     1U << REGISTER_R14 | 1U << REGISTER_R15
};
extern const uint8_t rule_saved_registers[RULE_SAVED];

enum { SAVED_NOWHERE = 0 /* it still has the caller's value */, SAVED_UNKNOWN = INT8_MIN };

struct rule {
    uint8_t kind;
    bool signal; /* the caller was interrupted: its frame is exact */
    uint8_t cfa_register;
    uint8_t return_in; /* enum rule_return */
    union {
        int32_t cfa_off;  /* CFA = cfa_register + cfa_off */
        uint32_t general; /* RULE_GENERAL: which one */
    };
    int8_t return_at;         /* words from the CFA, or the register */
    int8_t saved[RULE_SAVED]; /* words from the CFA where the caller's value lies, or SAVED_ */
    uint8_t changed;          /* bit n: saved[n] is not SAVED_NOWHERE */
};
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

enum rule_answer rule_apply_general(const struct general_rule *general, bool signal, const struct expression_op *ops,
                                    struct view *view, struct registers *registers, uint64_t lookup_avma);

#endif
