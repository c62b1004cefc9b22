/*
 * One step by unwind information (CFI): the table of an image (cfitable.h), compiled row by row as they are needed
 * (rulecompiler.h), kept (rulecache.h) and applied (rule.h, foreign.h). A rule does not depend on where the image is
 * mapped: all address spaces share them, and no change of mappings makes them wrong.
 *
 * Belongs to one thread.
 */
#ifndef UNWIND_CFI_H
#define UNWIND_CFI_H

#include "unwind/codemap.h"
#include "unwind/rulecache.h"

struct cfi_counters {
    uint64_t hits;      /* rules found by address */
    uint64_t row_hits;  /* another address in a known row */
    uint64_t compiled;  /* rules made: first seen, or forgotten since */
    uint64_t uncovered; /* of these: nothing covers the address */
    uint64_t bad;       /* damaged */
    uint64_t foreign;   /* left to libunwind */
    uint64_t flushes;   /* times that all was forgotten, since a table was full */
    uint64_t rows;      /* now there */
    uint64_t bytes;     /* that these take */
};

struct cfi;

struct cfi *cfi_new(void); /* NULL: no memory */
void cfi_free(struct cfi *cfi);

/*
 * The rule for the instruction at `lookup_avma` (frame_lookup_avma), which lies in `region`; valid until the next
 * cfi_find. NULL: no memory. The kind says whether it can be applied.
 */
const struct rule *cfi_find(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma);

/* Applies any rule but RULE_NONE and RULE_BAD, found for this region and address; as rule_apply_plain. */
enum rule_answer cfi_apply(struct cfi *cfi, const struct rule *rule, const struct code_region *region,
                           uint64_t lookup_avma, struct view *view, struct registers *registers);

/* The function whose entry covers `lookup_avma`, half-open. false: there is none, or it is damaged; or no memory. */
bool cfi_find_function(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma,
                       uint64_t *ret_start_avma, uint64_t *ret_end_avma);

/* Where cfi_find looks first. */
struct rulecache *cfi_cache(struct cfi *cfi);

struct cfi_counters cfi_counters(const struct cfi *cfi);

#endif
