#include "sampler/stackcounts.h"

#include "common/array.h"
#include "common/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void stackcounts_deinit(struct stackcounts *counts)
{
    free(counts->items);
    *counts = (struct stackcounts){0};
}

int stackcounts_add(struct stackcounts *counts, struct strings *stacks, const char *stack, uint64_t count)
{
    uint32_t number;
    if (stacks->count >= STACKS_MAX || counts->count >= STACKS_MAX || count > UINT64_MAX / 2 - counts->total) {
        counts->left_out++;
        return 0;
    }
    if (strings_add(stacks, stack, &number) || array_room(&counts->items, &counts->capacity, counts->count + 1))
        return -ENOMEM;
    counts->items[counts->count++] = (struct stackcount){.stack = number, .count = count};
    counts->total += count;
    return 0;
}

/* "stack COUNT": where the stack ends; false when the line is something else. */
static bool split_line(const char *line, const char *end, size_t *ret_size, uint64_t *ret_count)
{
    const char *blank = memrchr(line, ' ', (size_t)(end - line));
    if (!blank || blank == line || memchr(line, '\0', (size_t)(end - line)))
        return false;
    const char *cursor = blank + 1;
    if (!parse_u64(&cursor, end, ret_count) || cursor != end)
        return false;
    *ret_size = (size_t)(blank - line);
    return true;
}

int stackcounts_read(struct stackcounts *counts, struct strings *stacks, const char *text, size_t size)
{
    const char *end = text + size;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        size_t stack_size;
        uint64_t count;
        if (split_line(text, line_end, &stack_size, &count)) {
            char *stack = strndup(text, stack_size);
            int error = stack ? stackcounts_add(counts, stacks, stack, count) : -ENOMEM;
            free(stack);
            if (error)
                return error;
        } else {
            counts->left_out++;
        }
        text = newline ? newline + 1 : end;
    }
    return 0;
}

size_t stackcounts_depth(const char *stack)
{
    static const char mark[] = ";[truncated]";
    const char *frames = strchr(stack, ';');
    if (!frames || strcmp(frames, ";[failed]") == 0 || strcmp(frames, ";[not sampled]") == 0)
        return 0;
    size_t size = sizeof(mark) - 1;
    if (strncmp(frames, mark, size) == 0 && (frames[size] == ';' || !frames[size]))
        frames += size;
    size_t depth = 0;
    for (; *frames && depth < STACK_DEPTH_MAX; frames++)
        depth += *frames == ';';
    return depth;
}
