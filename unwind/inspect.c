#include "unwind/inspect.h"

#include <string.h>

static bool read_window(const struct view *view, const struct code_region *region, uint64_t pc_avma, uint8_t *window)
{
    uint64_t before = pc_avma - region->start_avma;
    uint64_t behind = region->end_avma - pc_avma;
    size_t low = before < PATTERNS_BEFORE ? (size_t)before : PATTERNS_BEFORE;
    size_t high = behind < PATTERNS_BEHIND ? (size_t)behind : PATTERNS_BEHIND;
    /* A segment ends where it ends, its mapping at a page. */
    for (; high > 0; high--) {
        memset(window, PATTERNS_NOTHING, PATTERNS_WINDOW);
        if (view_read_code(view, region, pc_avma - low, window + PATTERNS_BEFORE - low, low + high))
            return true;
    }
    return false;
}

bool inspect_find(const struct view *view, const struct code_region *region, uint64_t pc_avma, struct inspection *ret)
{
    uint8_t window[PATTERNS_WINDOW];
    return read_window(view, region, pc_avma, window) && patterns_find_return(window, ret);
}

bool inspect_is_sigreturn(const struct view *view, const struct code_region *region, uint64_t pc_avma)
{
    uint8_t window[PATTERNS_WINDOW];
    return read_window(view, region, pc_avma, window) && patterns_are_sigreturn(window);
}

static bool starts_with(const uint8_t *bytes, const void *pattern, size_t size)
{
    return memcmp(bytes, pattern, size) == 0;
}

bool inspect_is_thread_end(const struct view *view, const struct code_region *region, uint64_t return_avma)
{
    /* mov $60,%al; syscall, and mov $60,%eax; syscall */
    static const uint8_t narrow[] = {0xb0, 0x3c, 0x0f, 0x05};
    static const uint8_t wide[] = {0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05};
    enum { NOP = 0x90, INT3 = 0xcc, CALL = 0xe8, CALL_BYTES = 5, LOOK_BYTES = PATTERNS_BEHIND - sizeof(wide) };
    uint8_t window[PATTERNS_WINDOW];
    if (!read_window(view, region, return_avma, window))
        return false;
    const uint8_t *pc = window + PATTERNS_BEFORE;
    if (pc[-2] == INT3 && pc[-1] == NOP && pc[0] == CALL && pc[CALL_BYTES] == NOP)
        return true;
    for (size_t i = 0; i <= LOOK_BYTES; i++) {
        if (starts_with(pc + i, narrow, sizeof(narrow)) || starts_with(pc + i, wide, sizeof(wide)))
            return true;
    }
    return false;
}
