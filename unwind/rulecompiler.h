/*
 * One row of unwind information to a rule, through libdw.
 *
 * libdw gets no file: only the normalised entry of one function (cfitable.h), as the .eh_frame of an ELF image in
 * memory. So it can neither map a file that may shrink nor load one that is large, and it meets no length, encoding or
 * offset that was not written by us; what it allocates is freed with the function.
 *
 * Belongs to one thread.
 */
#ifndef UNWIND_RULECOMPILER_H
#define UNWIND_RULECOMPILER_H

#include "unwind/cfitable.h"
#include "unwind/rule.h"

enum { COMPILED_OPS_MAX = 1024 };

struct compiled_rule {
    uint64_t start_svma; /* where the row holds, half-open */
    uint64_t end_svma;
    struct rule rule;            /* `general` is not set */
    struct general_rule general; /* for RULE_GENERAL; its operations are in `ops` */
    struct expression_op ops[COMPILED_OPS_MAX];
    size_t op_count;
};

struct rulecompiler;

struct rulecompiler *rulecompiler_new(void); /* NULL: no memory */
void rulecompiler_free(struct rulecompiler *compiler);

/*
 * The row for `svma`, which lies in `function` of `table`. Returns 0 or -ENOMEM. The rule's kind is RULE_PLAIN,
 * RULE_GENERAL, or RULE_FOREIGN when libdw or this file do not do what the entry asks for.
 */
int rulecompiler_run(struct rulecompiler *compiler, const struct cfitable *table, const struct cfi_function *function,
                     uint64_t svma, struct compiled_rule *ret_rule);

#endif
