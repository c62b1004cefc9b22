/*
 * Our own evaluation of unwind information beside libunwind's, on the same made-up registers and memory: they have to
 * agree.
 */
#ifndef TESTS_UNIT_RULEPAIR_H
#define TESTS_UNIT_RULEPAIR_H

#include "common/rng.h"
#include "unwind/foreign.h"
#include "unwind/rulecompiler.h"
#include "unwind/view.h"

/* Memory is one range of words that all point into it again, so that expressions can follow them. */
enum { RULEPAIR_WORDS = 1 << 14 };

struct rulepair {
    struct foreign *foreign;
    struct rng rng;
    uint64_t *words;
    struct codemap map;
    struct snapshot snapshot;
};

int rulepair_init(struct rulepair *pair); /* 0 or -ENOMEM */
void rulepair_deinit(struct rulepair *pair);

/* Registers that point into the memory, with the pc at `pc_avma`. */
struct registers rulepair_registers(struct rulepair *pair, uint64_t pc_avma);

/* The same so near to the memory's beginning and end that some of what rules ask for is outside. */
struct registers rulepair_edge_registers(struct rulepair *pair, uint64_t pc_avma);

/*
 * Applies the compiled rule of the row that holds `svma`, and what libunwind makes of it, to `registers`. NULL: both
 * give the same; else what differs.
 */
const char *rulepair_compare(struct rulepair *pair, const struct cfitable *table, const struct cfi_function *function,
                             uint64_t svma, const struct compiled_rule *compiled, const struct registers *registers);

/* Applies a plain or general rule to `registers`, on the pair's memory. */
enum rule_answer rulepair_apply(struct rulepair *pair, const struct compiled_rule *compiled, uint64_t lookup_avma,
                                struct registers *registers);

#endif
