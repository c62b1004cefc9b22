#include "helper/walk.h"

#include "unwind/patterns.h"

enum { WORD_BYTES = 8, RECORD_BYTES = 16 };

/* ---- memory ---- */

static bool load(struct walk *walk, uint64_t avma, uint64_t *ret_value)
{
    if (walk->way == SAFELOAD_INSTRUCTION)
        return safe_load(SAFELOAD_INSTRUCTION, avma, ret_value);
    uint64_t off = avma - walk->window_avma;
    if (walk->window_size < WORD_BYTES || off > walk->window_size - WORD_BYTES) {
        /* What is saved lies between the stack pointer and the return address: all of it is wanted, and what is above.
         */
        uint64_t sp = walk->registers.value[REGISTER_RSP];
        bool is_near = avma >= sp && avma - sp <= sizeof(walk->window) / 2;
        walk->window_avma = is_near ? sp : avma;
        walk->window_size = safe_copy(SAFELOAD_CALL, walk->window, walk->window_avma, sizeof(walk->window));
        off = avma - walk->window_avma;
        if (walk->window_size < WORD_BYTES || off > walk->window_size - WORD_BYTES)
            return false;
    }
    __builtin_memcpy(ret_value, walk->window + off, WORD_BYTES);
    return true;
}

static bool is_in_stack(const struct walk *walk, uint64_t avma, uint64_t size)
{
    return avma >= walk->stack_start_avma && avma < walk->stack_end_avma && size <= walk->stack_end_avma - avma;
}

/* ---- what the sampler says of code ---- */

/* A rule and where it ends, as it was at one moment. */
static bool find_rule(const struct helper_shared *shared, uint64_t lookup_avma, struct rule *ret_rule,
                      uint64_t *ret_end_avma)
{
    const struct helper_rule *set = shared->rules[helper_rule_set(lookup_avma)];
    for (unsigned way = 0; way < HELPER_RULE_WAYS; way++) {
        const struct helper_rule *entry = &set[way];
        uint32_t version = atomic_load_explicit(&entry->version, memory_order_acquire);
        uint64_t start = __atomic_load_n(&entry->start_avma, __ATOMIC_RELAXED);
        uint32_t length = __atomic_load_n(&entry->length, __ATOMIC_RELAXED);
        if (version % 2 || lookup_avma - start >= length)
            continue;
        struct rule rule = *(const volatile struct rule *)&entry->rule;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&entry->version, memory_order_relaxed) != version)
            continue;
        *ret_rule = rule;
        *ret_end_avma = start + length;
        return true;
    }
    return false;
}

/* The region of an address. false: there is none, or the table is being written. */
static bool find_region(const struct helper_shared *shared, uint64_t avma, struct helper_region *ret_region)
{
    const struct helper_regions *regions = &shared->regions;
    uint32_t version = atomic_load_explicit(&regions->version, memory_order_acquire);
    uint32_t low = 0;
    uint32_t high = __atomic_load_n(&regions->count, __ATOMIC_RELAXED);
    if (version % 2 || high > HELPER_REGIONS)
        return false;
    while (low < high) { /* the first that ends above */
        uint32_t middle = low + (high - low) / 2;
        if (__atomic_load_n(&regions->all[middle].end_avma, __ATOMIC_RELAXED) > avma)
            high = middle;
        else
            low = middle + 1;
    }
    if (low >= HELPER_REGIONS)
        return false;
    struct helper_region region = *(const volatile struct helper_region *)&regions->all[low];
    uint32_t count = __atomic_load_n(&regions->count, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&regions->version, memory_order_relaxed) != version || low >= count ||
        avma < region.start_avma || avma >= region.end_avma)
        return false;
    *ret_region = region;
    return true;
}

static bool is_lasting(const struct helper_shared *shared, uint64_t avma)
{
    const struct helper_report *report = &shared->report;
    for (uint32_t i = 0; i < report->lasting_count && i < HELPER_LASTING; i++)
        if (avma >= report->lasting[i].start_avma && avma < report->lasting[i].end_avma)
            return true;
    return false;
}

/* Is it in executable memory, behind a call? What else a return address may be the sampler finds out. */
static bool is_behind_call(const struct walk *walk, uint64_t avma)
{
    uint8_t bytes[PATTERNS_CALL_BYTES];
    struct helper_region region;
    if (avma == 0 || !find_region(walk->shared, avma - 1, &region))
        return false;
    uint64_t room = avma - region.start_avma;
    size_t size = room < sizeof(bytes) ? (size_t)room : sizeof(bytes);
    return safe_copy(walk->way, bytes, avma - size, size) == size && patterns_end_with_call(bytes, size);
}

/* ---- steps ---- */

static void enter_caller(struct walk *walk, uint64_t sp, uint64_t pc, uint32_t known)
{
    walk->registers.value[REGISTER_RSP] = sp;
    walk->registers.value[REGISTER_PC] = pc;
    walk->registers.known &= known;
    walk->registers.known |= 1U << REGISTER_RSP | 1U << REGISTER_PC;
    walk->exact = false;
}

static bool restore_saved(struct walk *walk, const struct rule *rule, uint64_t cfa)
{
    for (unsigned changed = rule->changed & RULE_CHANGED; changed; changed &= changed - 1) {
        unsigned i = (unsigned)__builtin_ctz(changed);
        unsigned reg = rule_saved_registers[i];
        if (rule->saved[i] == SAVED_UNKNOWN) {
            walk->registers.known &= ~(1U << reg);
            continue;
        }
        if (!load(walk, cfa + (uint64_t)((int64_t)rule->saved[i] * WORD_BYTES), &walk->registers.value[reg]))
            return false;
        walk->registers.known |= 1U << reg;
    }
    return true;
}

static enum walk_step step_by_rule(struct walk *walk, const struct rule *rule)
{
    if (rule->return_in == RETURN_UNDEFINED)
        return WALK_OUTERMOST;
    if (rule->signal || rule->cfa_register > REGISTER_R15 || !registers_known(&walk->registers, rule->cfa_register))
        return WALK_UNKNOWN;
    uint64_t cfa = walk->registers.value[rule->cfa_register] + (uint64_t)(int64_t)rule->cfa_off;
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    uint64_t return_avma;
    if (cfa <= sp || cfa > walk->stack_end_avma)
        return WALK_UNKNOWN;
    if (rule->return_in == RETURN_IN_REGISTER) {
        if (rule->return_at < 0 || !registers_known(&walk->registers, (unsigned)rule->return_at))
            return WALK_UNKNOWN;
        return_avma = walk->registers.value[rule->return_at];
    } else if (!load(walk, cfa + (uint64_t)((int64_t)rule->return_at * WORD_BYTES), &return_avma)) {
        return WALK_UNKNOWN;
    }
    if (!restore_saved(walk, rule, cfa))
        return WALK_UNKNOWN;
    enter_caller(walk, cfa, return_avma, RULE_PRESERVED);
    walk->by_frame_pointer = false;
    return WALK_CALLER;
}

static enum walk_step step_by_frame_pointer(struct walk *walk)
{
    uint64_t rbp = walk->registers.value[REGISTER_RBP];
    uint64_t record[2];
    if (!registers_known(&walk->registers, REGISTER_RBP) || rbp % WORD_BYTES != 0 ||
        rbp < walk->registers.value[REGISTER_RSP] || !is_in_stack(walk, rbp, RECORD_BYTES) ||
        !load(walk, rbp, &record[0]) || !load(walk, rbp + WORD_BYTES, &record[1]))
        return WALK_UNKNOWN;
    if (record[0] == 0 && record[1] == 0)
        return walk->by_frame_pointer ? WALK_OUTERMOST : WALK_UNKNOWN;
    if (!is_behind_call(walk, record[1]))
        return WALK_UNKNOWN;
    walk->registers.value[REGISTER_RBP] = record[0];
    enter_caller(walk, rbp + RECORD_BYTES, record[1], 1U << REGISTER_RBP);
    walk->by_frame_pointer = true;
    return WALK_CALLER;
}

static enum walk_step step_by_inspection(struct walk *walk, const struct inspection *inspection)
{
    uint64_t sp = walk->registers.value[REGISTER_RSP];
    uint64_t place = sp + inspection->return_words * WORD_BYTES;
    uint64_t return_avma;
    if (!is_in_stack(walk, place, WORD_BYTES) || !load(walk, place, &return_avma) ||
        !is_behind_call(walk, return_avma) ||
        (inspection->rbp_at_sp && !load(walk, sp, &walk->registers.value[REGISTER_RBP])))
        return WALK_UNKNOWN;
    enter_caller(walk, place + WORD_BYTES, return_avma, RULE_PRESERVED);
    walk->by_frame_pointer = false;
    return WALK_CALLER;
}

/* The bytes around the pc, as far as they are of its region. */
static bool read_window(struct walk *walk, uint64_t pc, uint8_t window[PATTERNS_WINDOW])
{
    struct helper_region region;
    if (!find_region(walk->shared, pc, &region))
        return false;
    uint64_t before = pc - region.start_avma;
    uint64_t behind = region.end_avma - pc;
    size_t low = before < PATTERNS_BEFORE ? (size_t)before : PATTERNS_BEFORE;
    size_t high = behind < PATTERNS_BEHIND ? (size_t)behind : PATTERNS_BEHIND;
    __builtin_memset(window, PATTERNS_NOTHING, PATTERNS_WINDOW);
    return safe_copy(walk->way, window + PATTERNS_BEFORE - low, pc - low, low + high) == low + high;
}

/* Code without unwind information. */
static enum walk_step step_bare(struct walk *walk)
{
    uint8_t window[PATTERNS_WINDOW];
    struct inspection inspection;
    uint64_t pc = walk->registers.value[REGISTER_PC];
    if (!walk->shared->settings.follows_frame_pointers)
        return WALK_UNKNOWN;
    if (!walk->exact && !walk->by_frame_pointer && !is_behind_call(walk, pc))
        return WALK_UNKNOWN;
    if (!walk->exact)
        return step_by_frame_pointer(walk);
    if (!read_window(walk, pc, window) || patterns_are_sigreturn(window))
        return WALK_UNKNOWN;
    return patterns_find_return(window, &inspection) ? step_by_inspection(walk, &inspection)
                                                     : step_by_frame_pointer(walk);
}

enum walk_step walk_step(struct walk *walk)
{
    uint64_t pc = walk->registers.value[REGISTER_PC];
    uint64_t lookup_avma = walk->exact ? pc : pc - 1;
    uint64_t end_avma;
    struct rule rule;
    struct helper_region region;
    if (walk->is_outdated && !is_lasting(walk->shared, lookup_avma))
        return WALK_UNKNOWN;
    if (find_rule(walk->shared, lookup_avma, &rule, &end_avma)) {
        /* Behind a call that does not return the next function begins: was it called at all? */
        if (rule.kind == RULE_PLAIN)
            return !walk->exact && end_avma == pc ? WALK_UNKNOWN : step_by_rule(walk, &rule);
        return rule.kind == RULE_NONE ? step_bare(walk) : WALK_UNKNOWN;
    }
    if (!find_region(walk->shared, lookup_avma, &region) || region.code != HELPER_CODE_BARE)
        return WALK_UNKNOWN;
    return step_bare(walk);
}
