#include "unwind/stack.h"

#include "common/array.h"

#include <assert.h>
#include <stdlib.h>

const char *stack_end_name(enum stack_end end)
{
    static const char *const names[STACK_END_COUNT] = {
        [STACK_COMPLETE] = "complete",           [STACK_CUT_COPY] = "copy",         [STACK_CUT_MEMORY] = "memory",
        [STACK_CUT_NO_RULE] = "no_rule",         [STACK_CUT_BAD_RULE] = "bad_rule", [STACK_CUT_BAD_PC] = "bad_pc",
        [STACK_CUT_NO_PROGRESS] = "no_progress", [STACK_CUT_DEPTH] = "depth",
    };
    assert((unsigned)end < STACK_END_COUNT);
    return names[end];
}

void stack_deinit(struct stack *stack)
{
    if (!stack)
        return;
    free(stack->frames);
    *stack = (struct stack){0};
}

void stack_clear(struct stack *stack)
{
    stack->count = 0;
    stack->end = STACK_COMPLETE;
    stack->top_avma = 0;
    stack->interrupted_sp_at_avma = 0;
    stack->other_bytes = 0;
    stack->inferred = 0;
}

int stack_grow(struct stack *stack)
{
    return array_room(&stack->frames, &stack->capacity, stack->count + 1);
}
