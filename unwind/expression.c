#include "unwind/expression.h"

#include <dwarf.h>

enum {
    STACK_MAX = 64,
    /* Real ones have up to a dozen; a hostile one may loop. */
    STEPS_MAX = 4096
};

struct machine {
    uint64_t stack[STACK_MAX];
    unsigned depth;
    bool bad;
};

static void push(struct machine *machine, uint64_t value)
{
    if (machine->depth == STACK_MAX)
        machine->bad = true;
    else
        machine->stack[machine->depth++] = value;
}

static uint64_t pop(struct machine *machine)
{
    if (machine->depth == 0) {
        machine->bad = true;
        return 0;
    }
    return machine->stack[--machine->depth];
}

/* The value `position` places below the top. */
static uint64_t peek(struct machine *machine, uint64_t position)
{
    if (position >= machine->depth) {
        machine->bad = true;
        return 0;
    }
    return machine->stack[machine->depth - 1 - position];
}

static void rotate(struct machine *machine, unsigned count)
{
    if (machine->depth < count) {
        machine->bad = true;
        return;
    }
    uint64_t *top = &machine->stack[machine->depth - 1];
    uint64_t first = *top;
    for (unsigned i = 0; i + 1 < count; i++)
        top[-(int)i] = top[-(int)i - 1];
    top[1 - (int)count] = first;
}

static uint64_t divide(struct machine *machine, uint64_t left, uint64_t right)
{
    if (right == 0) {
        machine->bad = true;
        return 0;
    }
    /* INT64_MIN / -1 does not fit; it wraps like the other operations. */
    return right == UINT64_MAX ? -left : (uint64_t)((int64_t)left / (int64_t)right);
}

static uint64_t modulo(struct machine *machine, uint64_t left, uint64_t right)
{
    if (right == 0) {
        machine->bad = true;
        return 0;
    }
    return left % right;
}

static uint64_t shift_arithmetic(uint64_t value, uint64_t count)
{
    return (uint64_t)((int64_t)value >> (count < 63 ? count : 63));
}

/* Operations on the two topmost values; false: none of them. */
static bool binary(struct machine *machine, uint8_t atom)
{
    uint64_t right = peek(machine, 0);
    uint64_t left = peek(machine, 1);
    uint64_t value;
    switch (atom) {
    case DW_OP_and:
        value = left & right;
        break;
    case DW_OP_or:
        value = left | right;
        break;
    case DW_OP_xor:
        value = left ^ right;
        break;
    case DW_OP_plus:
        value = left + right;
        break;
    case DW_OP_minus:
        value = left - right;
        break;
    case DW_OP_mul:
        value = left * right;
        break;
    case DW_OP_div:
        value = divide(machine, left, right);
        break;
    case DW_OP_mod:
        value = modulo(machine, left, right);
        break;
    case DW_OP_shl:
        value = right < 64 ? left << right : 0;
        break;
    case DW_OP_shr:
        value = right < 64 ? left >> right : 0;
        break;
    case DW_OP_shra:
        value = shift_arithmetic(left, right);
        break;
    case DW_OP_eq:
        value = left == right;
        break;
    case DW_OP_ne:
        value = left != right;
        break;
    case DW_OP_lt:
        value = (int64_t)left < (int64_t)right;
        break;
    case DW_OP_le:
        value = (int64_t)left <= (int64_t)right;
        break;
    case DW_OP_gt:
        value = (int64_t)left > (int64_t)right;
        break;
    case DW_OP_ge:
        value = (int64_t)left >= (int64_t)right;
        break;
    default:
        return false;
    }
    pop(machine);
    pop(machine);
    push(machine, value);
    return true;
}

static bool unary(struct machine *machine, const struct expression_op *op)
{
    uint64_t value = peek(machine, 0);
    switch (op->atom) {
    case DW_OP_plus_uconst:
        value += op->operand;
        break;
    case DW_OP_neg:
        value = -value;
        break;
    case DW_OP_not:
        value = ~value;
        break;
    case DW_OP_abs:
        value = (int64_t)value < 0 ? -value : value;
        break;
    default:
        return false;
    }
    pop(machine);
    push(machine, value);
    return true;
}

/* Order on the stack; false: none of them. */
static bool arrange(struct machine *machine, const struct expression_op *op)
{
    switch (op->atom) {
    case DW_OP_dup:
        push(machine, peek(machine, 0));
        break;
    case DW_OP_drop:
        pop(machine);
        break;
    case DW_OP_over:
        push(machine, peek(machine, 1));
        break;
    case DW_OP_pick:
        push(machine, peek(machine, op->size));
        break;
    case DW_OP_swap:
        rotate(machine, 2);
        break;
    case DW_OP_rot:
        rotate(machine, 3);
        break;
    case DW_OP_nop:
        break;
    default:
        return false;
    }
    return true;
}

static bool load(struct machine *machine, const struct expression_op *op, struct view *view)
{
    uint64_t value = 0;
    size_t size = op->atom == DW_OP_deref ? sizeof(value) : op->size;
    uint64_t avma = pop(machine);
    if (size > sizeof(value))
        machine->bad = true;
    if (machine->bad || !view_read(view, avma, &value, size)) /* little endian */
        return false;
    push(machine, value);
    return true;
}

static void push_register(struct machine *machine, const struct expression_op *op, const struct registers *registers,
                          uint64_t pc)
{
    if (op->reg == REGISTER_PC)
        push(machine, pc + op->operand);
    else if (op->reg < REGISTER_PC && registers_known(registers, op->reg))
        push(machine, registers->value[op->reg] + op->operand);
    else
        machine->bad = true;
}

enum expression_answer expression_evaluate(const struct expression_op *ops, size_t count, const uint64_t *first,
                                           struct view *view, const struct registers *registers, uint64_t pc,
                                           uint64_t *ret_value)
{
    struct machine machine;
    machine.depth = 0;
    machine.bad = false;
    if (first)
        push(&machine, *first);
    size_t steps = 0;
    for (size_t i = 0; i < count && !machine.bad; i++) {
        const struct expression_op *op = &ops[i];
        if (++steps > STEPS_MAX || ++view->work > VIEW_WORK_MAX)
            return EXPRESSION_UNUSABLE;
        switch (op->atom) {
        case DW_OP_constu:
            push(&machine, op->operand);
            break;
        case DW_OP_breg0:
            push_register(&machine, op, registers, pc);
            break;
        case DW_OP_deref:
        case DW_OP_deref_size:
            if (!load(&machine, op, view))
                return machine.bad ? EXPRESSION_UNUSABLE : EXPRESSION_NEEDS_MEMORY;
            break;
        case DW_OP_bra:
            if (pop(&machine) == 0)
                break;
            i = (size_t)op->target - 1; /* of target 0 the loop's increment makes 0 again */
            break;
        case DW_OP_skip:
            i = (size_t)op->target - 1;
            break;
        default:
            if (!arrange(&machine, op) && !unary(&machine, op) && !binary(&machine, op->atom))
                return EXPRESSION_UNUSABLE;
            break;
        }
    }
    if (machine.bad || machine.depth == 0)
        return EXPRESSION_UNUSABLE;
    *ret_value = machine.stack[machine.depth - 1];
    return EXPRESSION_VALUE;
}

bool expression_knows(uint8_t atom)
{
    switch (atom) {
    case DW_OP_constu:
    case DW_OP_breg0:
    case DW_OP_deref:
    case DW_OP_deref_size:
    case DW_OP_bra:
    case DW_OP_skip:
        return true;
    default:
        break;
    }
    struct machine machine = {.depth = 4, .stack = {1, 1, 1, 1}};
    struct expression_op op = {.atom = atom};
    return arrange(&machine, &op) || unary(&machine, &op) || binary(&machine, atom);
}
