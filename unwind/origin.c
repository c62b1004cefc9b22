#include "unwind/origin.h"

#include "unwind/inspect.h"

#include <string.h>

/* The dynamic linker's start code: call _dl_start, call _dl_init, jump to the program. */
enum { ENTRY_BYTES = 96 };

/* syscall (2), test (3), jl (2), je (2), ret (1); the jumps' distances are not looked at. */
enum { AT_SYSCALL = 0, AT_TEST = 2, AT_JL = 5, AT_JE = 7, AT_RET = 9, CLONE_BYTES = 10 };

static bool is_clone_sequence(const uint8_t *code)
{
    static const uint8_t syscall_test[] = {0x0f, 0x05, 0x48, 0x85, 0xc0};
    return memcmp(code, syscall_test, sizeof(syscall_test)) == 0 && code[AT_JL] == 0x7c && code[AT_JE] == 0x74 &&
           code[AT_RET] == 0xc3;
}

/* Where in the sequence the thread is, or -1. */
static int clone_position(const struct view *view, const struct code_region *region, uint64_t avma)
{
    static const int positions[] = {AT_SYSCALL, AT_TEST, AT_JL, AT_JE, AT_RET};
    for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++) {
        uint8_t code[CLONE_BYTES];
        uint64_t start = avma - (uint64_t)positions[i];
        if (view_read_code(view, region, start, code, sizeof(code)) && is_clone_sequence(code))
            return positions[i];
    }
    return -1;
}

/* Is `svma` in the start code of its image? */
static bool is_entry_code(const struct code_region *region, uint64_t svma)
{
    uint64_t entry_svma = region->image && region->has_bias ? image_entry_svma(region->image) : 0;
    return entry_svma && svma - entry_svma < ENTRY_BYTES;
}

bool origin_is_near(struct view *view, struct callsites callsites, const struct registers *registers,
                    unsigned *ret_words)
{
    enum { NEAR_WORDS = 64 };
    if (!registers_known(registers, REGISTER_RBP) || registers->value[REGISTER_RBP] != 0)
        return false;
    for (unsigned i = 0; i < NEAR_WORDS; i++) {
        uint64_t word;
        if (!view_try_word(view, registers->value[REGISTER_RSP] + i * sizeof(word), &word))
            return false;
        const struct code_region *region = word ? codemap_find(view->map, frame_lookup_avma(word, false)) : NULL;
        if (!region || !framepointer_is_return(view, callsites, word))
            continue;
        if (!is_entry_code(region, frame_lookup_avma(word, false) - region->bias) &&
            !inspect_is_thread_end(view, region, word))
            return false;
        *ret_words = i;
        return true;
    }
    return false;
}

enum origin origin_find(const struct view *view, const struct code_region *region, const struct registers *registers,
                        uint64_t lookup_avma, bool exact, bool has_rule)
{
    uint64_t entry_svma = region->image && region->has_bias ? image_entry_svma(region->image) : 0;
    uint64_t svma = lookup_avma - region->bias;
    if (entry_svma && exact && svma == entry_svma)
        return ORIGIN_ENTRY;
    bool is_zero_rbp = registers_known(registers, REGISTER_RBP) && registers->value[REGISTER_RBP] == 0;
    if (entry_svma && !has_rule && svma - entry_svma < ENTRY_BYTES && is_zero_rbp)
        return ORIGIN_OUTERMOST;
    /* Not in JIT code, where each look is a system call and no thread ends. */
    if (!has_rule && !exact && region->image && inspect_is_thread_end(view, region, registers->value[REGISTER_PC]))
        return ORIGIN_OUTERMOST;
    if (has_rule || !exact || !region->image)
        return ORIGIN_NONE;
    int position = clone_position(view, region, lookup_avma);
    if (position < 0)
        return ORIGIN_NONE;
    /* Before the call and at the return there is only the parent; between, the child is who got 0. */
    if (position == AT_SYSCALL || position == AT_RET || !registers_known(registers, REGISTER_RAX))
        return ORIGIN_RETURN_AT_SP;
    return registers->value[REGISTER_RAX] == 0 ? ORIGIN_OUTERMOST : ORIGIN_RETURN_AT_SP;
}
