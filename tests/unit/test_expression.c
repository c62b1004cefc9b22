/* Each operation of DWARF expressions: by its definition (DWARF 5, section 2.5), and where there is nothing to work on.
 */
#include "cmocka_all.h"

#include "unwind/expression.h"

#include <dwarf.h>

static const uint64_t STACK = UINT64_C(0x7ffc00001000);
static const uint64_t WORDS[] = {UINT64_C(0x1122334455667788), UINT64_C(0x7ffc00001018), 0,
                                 UINT64_C(0xfedcba9876543210)};
static const uint64_t PC = 0x401234;
enum { STEPS_MAX = 4096, STACK_MAX = 64 };

static const struct codemap NO_CODE = {.generation = 1};
static struct snapshot snapshot;

/* Copied are the words; 0x100 bytes of stack above them are not. rbx and r12 are known. */
static struct view make_view(void)
{
    snapshot = (struct snapshot){
        .registers = {.known = 1U << REGISTER_RBX | 1U << REGISTER_R12,
                      .value = {[REGISTER_RBX] = 0x1000, [REGISTER_R12] = STACK, [REGISTER_RAX] = 7}},
        .stack_start_avma = STACK - 0x1000,
        .stack_end_avma = STACK + sizeof(WORDS) + 0x100,
        .ranges = {{.avma = STACK, .bytes = (const uint8_t *)WORDS, .size = sizeof(WORDS)}},
        .range_count = 1,
    };
    return (struct view){.map = &NO_CODE, .snapshot = &snapshot};
}

static enum expression_answer evaluate(const struct expression_op *ops, size_t count, struct view *view, uint64_t *ret)
{
    *view = make_view();
    return expression_evaluate(ops, count, NULL, view, &snapshot.registers, PC, ret);
}

/* The macros' arguments are initialisers. */
#define OP(name)                                                                                                       \
    {                                                                                                                  \
        .atom = DW_OP_##name                                                                                           \
    }
#define NUMBER(value)                                                                                                  \
    {                                                                                                                  \
        .atom = DW_OP_constu, .operand = (uint64_t)(value)                                                             \
    }
#define OPERAND(name, value)                                                                                           \
    {                                                                                                                  \
        .atom = DW_OP_##name, .operand = (uint64_t)(value)                                                             \
    }
#define SIZE(name, bytes)                                                                                              \
    {                                                                                                                  \
        .atom = DW_OP_##name, .size = (bytes)                                                                          \
    }
#define BREG(number, value)                                                                                            \
    {                                                                                                                  \
        .atom = DW_OP_breg0, .reg = (number), .operand = (uint64_t)(value)                                             \
    }
#define JUMP(name, index)                                                                                              \
    {                                                                                                                  \
        .atom = DW_OP_##name, .target = (index)                                                                        \
    }

enum { OPS_MAX = 8 };

struct example {
    struct expression_op ops[OPS_MAX];
    size_t count;
    uint64_t expected;
};

#define MIN INT64_MIN

static const struct example values[] = {
    {{NUMBER(7)}, 1, 7},
    {{NUMBER(-1)}, 1, UINT64_MAX},
    {{NUMBER(1), NUMBER(2)}, 2, 2}, /* the top counts */
    /* registers */
    {{BREG(REGISTER_RBX, 8)}, 1, 0x1008},
    {{BREG(REGISTER_RBX, -8)}, 1, 0xff8},
    {{BREG(REGISTER_PC, 1)}, 1, 0x401235},
    /* order on the stack */
    {{NUMBER(1), NUMBER(5), OP(dup), OP(plus)}, 4, 10},
    {{NUMBER(1), NUMBER(5), OP(drop)}, 3, 1},
    {{NUMBER(1), NUMBER(5), OP(over)}, 3, 1},
    {{NUMBER(3), NUMBER(5), NUMBER(6), SIZE(pick, 2)}, 4, 3},
    {{NUMBER(3), NUMBER(5), NUMBER(6), SIZE(pick, 0)}, 4, 6},
    {{NUMBER(3), NUMBER(5), OP(swap)}, 3, 3},
    {{NUMBER(3), NUMBER(5), OP(swap), OP(minus)}, 4, 2},
    /* rot: 1 2 3 becomes 3 1 2 */
    {{NUMBER(1), NUMBER(2), NUMBER(3), OP(rot)}, 4, 2},
    {{NUMBER(1), NUMBER(2), NUMBER(3), OP(rot), OP(drop)}, 5, 1},
    {{NUMBER(1), NUMBER(2), NUMBER(3), OP(rot), OP(drop), OP(drop)}, 6, 3},
    {{NUMBER(9), OP(nop)}, 2, 9},
    /* one operand */
    {{NUMBER(5), OP(neg)}, 2, (uint64_t)-5},
    {{NUMBER(MIN), OP(neg)}, 2, (uint64_t)MIN},
    {{NUMBER(5), OP(not )}, 2, ~UINT64_C(5)},
    {{NUMBER(-5), OP(abs)}, 2, 5},
    {{NUMBER(5), OP(abs)}, 2, 5},
    {{NUMBER(MIN), OP(abs)}, 2, (uint64_t)MIN},
    {{NUMBER(5), OPERAND(plus_uconst, 3)}, 2, 8},
    {{NUMBER(5), OPERAND(plus_uconst, -6)}, 2, UINT64_MAX},
    /* two */
    {{NUMBER(12), NUMBER(10), OP(and)}, 3, 8},
    {{NUMBER(12), NUMBER(10), OP(or)}, 3, 14},
    {{NUMBER(12), NUMBER(10), OP(xor)}, 3, 6},
    {{NUMBER(12), NUMBER(10), OP(plus)}, 3, 22},
    {{NUMBER(-1), NUMBER(2), OP(plus)}, 3, 1},
    {{NUMBER(12), NUMBER(10), OP(minus)}, 3, 2},
    {{NUMBER(10), NUMBER(12), OP(minus)}, 3, (uint64_t)-2},
    {{NUMBER(-3), NUMBER(5), OP(mul)}, 3, (uint64_t)-15},
    {{NUMBER(UINT64_C(1) << 63), NUMBER(2), OP(mul)}, 3, 0},
    /* div is signed and rounds to zero, mod is not signed */
    {{NUMBER(-7), NUMBER(2), OP(div)}, 3, (uint64_t)-3},
    {{NUMBER(7), NUMBER(-2), OP(div)}, 3, (uint64_t)-3},
    {{NUMBER(-7), NUMBER(-1), OP(div)}, 3, 7},
    {{NUMBER(MIN), NUMBER(-1), OP(div)}, 3, (uint64_t)MIN},
    {{NUMBER(7), NUMBER(4), OP(mod)}, 3, 3},
    {{NUMBER(-1), NUMBER(10), OP(mod)}, 3, UINT64_MAX % 10},
    {{NUMBER(MIN), NUMBER(-1), OP(mod)}, 3, (uint64_t)MIN},
    /* shifts, also by more than there are bits */
    {{NUMBER(1), NUMBER(63), OP(shl)}, 3, UINT64_C(1) << 63},
    {{NUMBER(1), NUMBER(64), OP(shl)}, 3, 0},
    {{NUMBER(1), NUMBER(-1), OP(shl)}, 3, 0},
    {{NUMBER(-1), NUMBER(63), OP(shr)}, 3, 1},
    {{NUMBER(-1), NUMBER(64), OP(shr)}, 3, 0},
    {{NUMBER(-1), NUMBER(-1), OP(shr)}, 3, 0},
    {{NUMBER(-256), NUMBER(4), OP(shra)}, 3, (uint64_t)-16},
    {{NUMBER(MIN), NUMBER(63), OP(shra)}, 3, UINT64_MAX},
    {{NUMBER(MIN), NUMBER(64), OP(shra)}, 3, UINT64_MAX},
    {{NUMBER(INT64_MAX), NUMBER(-1), OP(shra)}, 3, 0},
    /* comparisons are signed */
    {{NUMBER(5), NUMBER(5), OP(eq)}, 3, 1},
    {{NUMBER(5), NUMBER(6), OP(eq)}, 3, 0},
    {{NUMBER(5), NUMBER(5), OP(ne)}, 3, 0},
    {{NUMBER(5), NUMBER(6), OP(ne)}, 3, 1},
    {{NUMBER(-1), NUMBER(1), OP(lt)}, 3, 1},
    {{NUMBER(1), NUMBER(1), OP(lt)}, 3, 0},
    {{NUMBER(-1), NUMBER(1), OP(le)}, 3, 1},
    {{NUMBER(1), NUMBER(1), OP(le)}, 3, 1},
    {{NUMBER(2), NUMBER(1), OP(le)}, 3, 0},
    {{NUMBER(-1), NUMBER(1), OP(gt)}, 3, 0},
    {{NUMBER(2), NUMBER(1), OP(gt)}, 3, 1},
    {{NUMBER(-1), NUMBER(1), OP(ge)}, 3, 0},
    {{NUMBER(1), NUMBER(1), OP(ge)}, 3, 1},
    {{NUMBER(MIN), NUMBER(INT64_MAX), OP(ge)}, 3, 0},
    /* memory */
    {{BREG(REGISTER_R12, 0), OP(deref)}, 2, UINT64_C(0x1122334455667788)},
    {{BREG(REGISTER_R12, 8), OP(deref), OP(deref)}, 3, UINT64_C(0xfedcba9876543210)},
    {{BREG(REGISTER_R12, 3), OP(deref)}, 2, UINT64_C(0x0010181122334455)},
    {{BREG(REGISTER_R12, 0), SIZE(deref_size, 1)}, 2, 0x88},
    {{BREG(REGISTER_R12, 0), SIZE(deref_size, 2)}, 2, 0x7788},
    {{BREG(REGISTER_R12, 0), SIZE(deref_size, 3)}, 2, 0x667788},
    {{BREG(REGISTER_R12, 0), SIZE(deref_size, 4)}, 2, 0x55667788}, /* no sign */
    {{BREG(REGISTER_R12, 0), SIZE(deref_size, 8)}, 2, UINT64_C(0x1122334455667788)},
    {{BREG(REGISTER_R12, 31), SIZE(deref_size, 1)}, 2, 0xfe},
    /* jumps: forward over a bad operation, to the end, backward with an end */
    {{NUMBER(4), JUMP(skip, 3), OP(drop), NUMBER(6)}, 4, 6},
    {{NUMBER(4), JUMP(skip, 4), OP(drop), OP(drop)}, 4, 4},
    {{NUMBER(4), JUMP(skip, 999), OP(drop), OP(drop)}, 4, 4},
    {{NUMBER(4), NUMBER(1), JUMP(bra, 5), OP(drop), OP(drop)}, 5, 4},
    {{NUMBER(4), NUMBER(0), JUMP(bra, 5), OP(neg)}, 4, (uint64_t)-4},
    {{NUMBER(4), NUMBER(-1), OP(plus), OP(dup), JUMP(bra, 1), OP(not )}, 6, UINT64_MAX},
};

static void operations_do_what_they_are_defined_to(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct view view;
        uint64_t value = 0;
        enum expression_answer answer = evaluate(values[i].ops, values[i].count, &view, &value);
        if (answer != EXPRESSION_VALUE || value != values[i].expected)
            fail_msg("example %zu: answer %d, value 0x%llx", i, answer, (unsigned long long)value);
        assert_false(view.failed);
        for (size_t n = 0; n < values[i].count; n++)
            assert_true(expression_knows(values[i].ops[n].atom));
    }
}

/* A jump to the first operation. */
static void goes_back_to_the_start(void **state)
{
    (void)state;
    static const struct expression_op ops[] = {OPERAND(plus_uconst, 1), OP(dup), NUMBER(10), OP(lt), JUMP(bra, 0)};
    struct view view = make_view();
    uint64_t first = 3, value = 0;
    assert_int_equal(expression_evaluate(ops, 5, &first, &view, &snapshot.registers, PC, &value), EXPRESSION_VALUE);
    assert_int_equal(value, 10);
}

static const struct example unusable[] = {
    {{{0}}, 0, 0}, /* no value */
    {{NUMBER(1), OP(drop)}, 2, 0},
    {{OP(drop)}, 1, 0},
    {{OP(dup)}, 1, 0},
    {{NUMBER(1), OP(over)}, 2, 0},
    {{NUMBER(1), SIZE(pick, 1)}, 2, 0},
    {{NUMBER(1), SIZE(pick, UINT32_MAX)}, 2, 0},
    {{NUMBER(1), OP(swap)}, 2, 0},
    {{NUMBER(1), NUMBER(2), OP(rot)}, 3, 0},
    {{OP(neg)}, 1, 0},
    {{OPERAND(plus_uconst, 1)}, 1, 0},
    {{NUMBER(1), OP(plus)}, 2, 0},
    {{NUMBER(1), OP(shl)}, 2, 0},
    {{OP(deref)}, 1, 0},
    {{SIZE(deref_size, 4)}, 1, 0},
    {{JUMP(bra, 1)}, 1, 0},
    {{NUMBER(1), NUMBER(0), OP(div)}, 3, 0},
    {{NUMBER(1), NUMBER(0), OP(mod)}, 3, 0},
    {{BREG(REGISTER_RAX, 0)}, 1, 0},   /* not known */
    {{BREG(REGISTER_COUNT, 0)}, 1, 0}, /* not one of ours */
    {{BREG(255, 0)}, 1, 0},
    {{NUMBER(1), SIZE(deref_size, 9)}, 2, 0},
    {{NUMBER(1), OP(xderef)}, 2, 0}, /* not of unwind information */
    {{NUMBER(1), OP(call_frame_cfa)}, 2, 0},
    {{NUMBER(1), OP(stack_value)}, 2, 0},
    {{NUMBER(1), {.atom = 0}}, 2, 0},
    {{NUMBER(1), {.atom = 0xff}}, 2, 0},
    /* endless */
    {{JUMP(skip, 0)}, 1, 0},
    {{NUMBER(1), JUMP(skip, 1)}, 2, 0},
    {{NUMBER(1), OP(dup), JUMP(bra, 1)}, 3, 0},
    /* overflow */
    {{NUMBER(1), JUMP(skip, 0)}, 2, 0},
};

static void what_cannot_be_evaluated_gives_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++) {
        struct view view;
        uint64_t value = 4711;
        enum expression_answer answer = evaluate(unusable[i].ops, unusable[i].count, &view, &value);
        if (answer != EXPRESSION_UNUSABLE || value != 4711)
            fail_msg("example %zu: answer %d, value 0x%llx", i, answer, (unsigned long long)value);
    }
}

static void the_stack_has_its_limit(void **state)
{
    (void)state;
    struct expression_op ops[STACK_MAX + 1];
    for (size_t i = 0; i <= STACK_MAX; i++)
        ops[i] = (struct expression_op)NUMBER(i);
    struct view view;
    uint64_t value = 0;
    assert_int_equal(evaluate(ops, STACK_MAX, &view, &value), EXPRESSION_VALUE);
    assert_int_equal(value, STACK_MAX - 1);
    assert_int_equal(evaluate(ops, STACK_MAX + 1, &view, &value), EXPRESSION_UNUSABLE);
    /* What is given at the start has its place, too. */
    view = make_view();
    assert_int_equal(expression_evaluate(ops, STACK_MAX, &value, &view, &snapshot.registers, PC, &value),
                     EXPRESSION_UNUSABLE);
}

static void a_long_expression_is_evaluated_up_to_the_limit(void **state)
{
    (void)state;
    static struct expression_op ops[STEPS_MAX + 1];
    for (size_t i = 0; i <= STEPS_MAX; i++)
        ops[i] = (struct expression_op)OPERAND(plus_uconst, 1);
    struct view view = make_view();
    uint64_t first = 0, value = 0;
    assert_int_equal(expression_evaluate(ops, STEPS_MAX, &first, &view, &snapshot.registers, PC, &value),
                     EXPRESSION_VALUE);
    assert_int_equal(value, STEPS_MAX);
    assert_int_equal(expression_evaluate(ops, STEPS_MAX + 1, &first, &view, &snapshot.registers, PC, &value),
                     EXPRESSION_UNUSABLE);
}

/* Loops of a hostile program, for each register of each frame: all of a walk together have a limit, too. */
static void a_walk_has_its_limit(void **state)
{
    (void)state;
    static const struct expression_op endless[] = {OP(nop), JUMP(skip, 0)};
    static const struct expression_op ordinary[] = {BREG(REGISTER_R12, 0)};
    struct view view = make_view();
    uint64_t value = 0;
    for (unsigned done = 0; done < VIEW_WORK_MAX; done += STEPS_MAX) {
        assert_int_equal(expression_evaluate(ordinary, 1, NULL, &view, &snapshot.registers, PC, &value),
                         EXPRESSION_VALUE);
        assert_int_equal(expression_evaluate(endless, 2, NULL, &view, &snapshot.registers, PC, &value),
                         EXPRESSION_UNUSABLE);
        const struct view before = make_view();
        view_restore(&view, &before); /* as for a register that can be done without */
    }
    assert_int_equal(expression_evaluate(ordinary, 1, NULL, &view, &snapshot.registers, PC, &value),
                     EXPRESSION_UNUSABLE);
    view = make_view(); /* the next walk */
    assert_int_equal(expression_evaluate(ordinary, 1, NULL, &view, &snapshot.registers, PC, &value), EXPRESSION_VALUE);
}

static void the_value_at_the_start_is_on_the_stack(void **state)
{
    (void)state;
    static const struct expression_op ops[] = {OPERAND(plus_uconst, 16), OP(deref)};
    struct view view = make_view();
    uint64_t first = STACK - 16, value = 0;
    assert_int_equal(expression_evaluate(NULL, 0, &first, &view, &snapshot.registers, PC, &value), EXPRESSION_VALUE);
    assert_int_equal(value, first);
    assert_int_equal(expression_evaluate(ops, 2, &first, &view, &snapshot.registers, PC, &value), EXPRESSION_VALUE);
    assert_int_equal(value, WORDS[0]);
    assert_int_equal(view.top_avma, STACK + 8);
}

static void assert_misses(uint64_t avma, uint8_t size, bool cut)
{
    const struct expression_op ops[] = {NUMBER(avma), SIZE(deref_size, size)};
    struct view view;
    uint64_t value = 4711;
    assert_int_equal(evaluate(ops, 2, &view, &value), EXPRESSION_NEEDS_MEMORY);
    assert_int_equal(value, 4711);
    assert_true(view.failed);
    assert_int_equal(view.cut, cut);
    assert_int_equal(view.top_avma, cut ? avma + size : 0);
}

/* A copy that is too short is told apart from memory that nobody has. */
static void missing_memory_is_told(void **state)
{
    (void)state;
    assert_misses(STACK + sizeof(WORDS), 1, true);
    assert_misses(STACK + sizeof(WORDS) - 4, 8, true);
    assert_misses(STACK + sizeof(WORDS) + 0x100 - 8, 8, true);
    assert_misses(STACK + sizeof(WORDS) + 0x100, 1, false);
    assert_misses(STACK - 1, 1, false);
    assert_misses(0, 8, false);
    assert_misses(UINT64_MAX, 1, false);
    assert_misses(UINT64_MAX - 3, 8, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_do_what_they_are_defined_to),         cmocka_unit_test(goes_back_to_the_start),
        cmocka_unit_test(what_cannot_be_evaluated_gives_nothing),         cmocka_unit_test(the_stack_has_its_limit),
        cmocka_unit_test(a_long_expression_is_evaluated_up_to_the_limit), cmocka_unit_test(a_walk_has_its_limit),
        cmocka_unit_test(the_value_at_the_start_is_on_the_stack),         cmocka_unit_test(missing_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
