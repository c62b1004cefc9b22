/* Any operations, decoded or not by anybody, on a snapshot: every evaluation ends, and reads nothing but the snapshot.
 */
#include "fuzz.h"
#include "unwind/expression.h"

/* Input: registers that are known (4 bytes), flags (1), number of operations (1), operations of 14 bytes, stack. */
enum { OPS_MAX = 255, STACK_BYTES_MAX = 4096 };

static const uint64_t STACK = 0x700000;

static void take_op(struct fuzz_input *input, struct expression_op *ret)
{
    ret->atom = (uint8_t)fuzz_take_number(input, 1);
    ret->reg = (uint8_t)fuzz_take_number(input, 1);
    ret->target = (uint16_t)fuzz_take_number(input, 2);
    ret->size = (uint32_t)fuzz_take_number(input, 2);
    ret->operand = fuzz_take_number(input, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.data = data, .size = size};
    uint32_t known = (uint32_t)fuzz_take_number(&input, 4);
    uint8_t flags = (uint8_t)fuzz_take_number(&input, 1);
    struct expression_op ops[OPS_MAX];
    size_t count = (size_t)fuzz_take_number(&input, 1);
    for (size_t i = 0; i < count; i++)
        take_op(&input, &ops[i]);

    size_t stack_bytes = input.size < STACK_BYTES_MAX ? input.size : STACK_BYTES_MAX;
    struct snapshot snapshot = {.registers.known = known & ((1U << REGISTER_COUNT) - 1),
                                .stack_start_avma = flags & 1 ? STACK - 0x100 : 0,
                                .stack_end_avma = flags & 1 ? STACK + stack_bytes + 0x100 : 0,
                                .ranges = {{.avma = STACK, .bytes = input.data, .size = stack_bytes}},
                                .range_count = 1};
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        snapshot.registers.value[reg] = STACK + reg * 8;
    struct codemap map = {.generation = 1};
    struct view view = {.map = &map, .snapshot = &snapshot};
    uint64_t first = STACK + 64, value = 0;
    enum expression_answer answer =
        expression_evaluate(ops, count, flags & 2 ? &first : NULL, &view, &snapshot.registers, STACK + 3, &value);
    FUZZ_CHECK(answer == EXPRESSION_VALUE || value == 0);
    FUZZ_CHECK((answer == EXPRESSION_NEEDS_MEMORY) == view.failed);
    FUZZ_CHECK(view.top_avma <= STACK + stack_bytes + 0x100);
    return 0;
}
