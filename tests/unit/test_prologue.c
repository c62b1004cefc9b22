/*
 * How deep the stack is: in functions of a few instructions, and at the calls of all functions of libraries that have
 * no frame pointers, where unwind information tells the truth.
 */
#include "cmocka_all.h"

#include "self_target.h"
#include "unwind/cfi.h"
#include "unwind/cfitable.h"
#include "unwind/instruction_x86_64.h"
#include "unwind/prologue.h"

#include <stdlib.h>
#include <string.h>

#define CODE(...) {__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

enum { CODE_MAX = 64, NOT_KNOWN = 0, FRAME = 16 };

#define PUSH_RBP      0x55
#define MOV_RSP_RBP   0x48, 0x89, 0xe5
#define PUSH_RBX      0x53
#define POP_RBX       0x5b
#define POP_RBP       0x5d
#define SUB(n)        0x48, 0x83, 0xec, (n)
#define ADD(n)        0x48, 0x83, 0xc4, (n)
#define CALL          0xe8, 0, 0, 0, 0
#define CALL_REGISTER 0xff, 0xd0
#define NOP           0x90
#define RET           0xc3
#define LEAVE         0xc9
#define JMP(n)        0xeb, (uint8_t)(n)
#define JNE(n)        0x75, (uint8_t)(n)
#define JMP_RAX       0xff, 0xe0
#define START         PUSH_RBP, MOV_RSP_RBP

struct example {
    const char *text;
    uint8_t code[CODE_MAX];
    size_t size;
    uint32_t off; /* behind a call, or exact */
    bool exact;
    int32_t depth;
};

static const struct example examples[] = {
    {"at the entry", CODE(START, RET), 0, true, 8},
    {"behind the push", CODE(START, RET), 1, true, 16},
    {"a call", CODE(START, CALL, POP_RBP, RET), 9, false, 16},
    {"saved registers and room", CODE(START, PUSH_RBX, 0x41, 0x54, SUB(0x20), CALL, LEAVE, RET), 16, false,
     16 + 16 + 32},
    {"room of four bytes", CODE(START, 0x48, 0x81, 0xec, 0, 1, 0, 0, CALL, LEAVE, RET), 16, false, 16 + 256},
    {"a call through a register", CODE(START, SUB(16), CALL_REGISTER, LEAVE, RET), 10, false, 32},
    {"a call through memory", CODE(START, SUB(16), 0xff, 0x15, 0, 0, 0, 0, LEAVE, RET), 14, false, 32},
    {"the end of a function", CODE(START, SUB(16), CALL), 13, false, 32},
    {"arguments on the stack", CODE(START, 0x6a, 1, 0xff, 0x30, CALL, ADD(16), CALL, LEAVE, RET), 13, false, 32},
    {"and behind them", CODE(START, 0x6a, 1, 0xff, 0x30, CALL, ADD(16), CALL, LEAVE, RET), 22, false, 16},
    {"lea as sub", CODE(START, 0x48, 0x8d, 0x64, 0x24, 0xe0, CALL, LEAVE, RET), 14, false, 48},
    {"behind an early return", CODE(START, SUB(16), JNE(2), LEAVE, RET, CALL, LEAVE, RET), 17, false, 32},
    {"an early return with pops", CODE(START, PUSH_RBX, SUB(8), JNE(7), ADD(8), POP_RBX, POP_RBP, RET, CALL, RET), 23,
     false, 32},
    {"lea from the frame pointer",
     CODE(START, PUSH_RBX, SUB(8), JNE(7), 0x48, 0x8d, 0x65, 0xf8, POP_RBX, POP_RBP, RET, CALL, RET), 23, false, 32},
    {"at the pop behind it", CODE(START, PUSH_RBX, SUB(8), 0x48, 0x8d, 0x65, 0xf8, POP_RBX, POP_RBP, RET), 13, true,
     24},
    {"a tail call, and on behind it", CODE(START, SUB(16), JNE(6), LEAVE, 0xe9, 0, 1, 0, 0, CALL, LEAVE, RET), 21,
     false, 32},
    {"a loop that is entered in the middle", CODE(START, SUB(16), JMP(5), CALL, JNE(-7), LEAVE, RET), 15, false, 32},
    {"a way back", CODE(START, JMP(8), SUB(16), CALL_REGISTER, LEAVE, RET, JMP(-10)), 12, false, 32},
    {"no way there but a jump table's", CODE(START, SUB(16), JMP_RAX, CALL, LEAVE, RET), 15, false, 32},
    {"the second behind a jump table", CODE(START, SUB(16), JMP_RAX, CALL, LEAVE, RET, CALL, LEAVE, RET), 22, false,
     32},
    {"a jump table with arguments pushed counts more", CODE(START, JNE(2), JNE(0), 0x6a, 1, JMP_RAX, CALL, RET), 17,
     false, 24},
    {"a landing pad", CODE(START, SUB(16), JNE(0), LEAVE, RET, CALL, LEAVE, RET), 17, false, 32},
    {"a landing pad, and jumps that differ", CODE(START, JNE(4), SUB(16), JNE(0), LEAVE, RET, CALL), 19, false,
     NOT_KNOWN},
    {"pages touched one by one",
     CODE(START, 0x4c, 0x8d, 0x9c, 0x24, 0, 0xd0, 0xff, 0xff,         /* lea -0x3000(%rsp),%r11 */
          0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0x83, 0x0c, 0x24, 0, /* sub $0x1000,%rsp; orq $0,(%rsp) */
          0x4c, 0x39, 0xdc, 0x75, 0xef, SUB(32), CALL, LEAVE, RET),   /* cmp %r11,%rsp; jne */
     38, false, 16 + 0x3000 + 32},
    {"enter", CODE(0xc8, 16, 0, 0, CALL), 9, false, NOT_KNOWN},
    {"a realigned stack", CODE(START, 0x48, 0x83, 0xe4, 0xe0, CALL, LEAVE, RET), 13, false, NOT_KNOWN},
    {"but for the end", CODE(START, 0x48, 0x83, 0xe4, 0xe0, CALL, LEAVE, RET), 14, true, 8},
    {"alloca", CODE(START, 0x48, 0x29, 0xc4, CALL, LEAVE, RET), 12, false, NOT_KNOWN},
    {"before alloca", CODE(START, CALL, 0x48, 0x29, 0xc4, CALL, LEAVE, RET), 9, false, 16},
    {"alloca in a branch", CODE(START, JNE(3), 0x48, 0x29, 0xc4, CALL, LEAVE, RET), 14, false, NOT_KNOWN},
    {"the stack changed", CODE(START, 0x48, 0x89, 0xc4, CALL, RET), 12, false, NOT_KNOWN},
    {"the stack read", CODE(START, 0x48, 0x8b, 0x20, CALL, RET), 12, false, NOT_KNOWN},
    {"the stack exchanged", CODE(START, 0x48, 0x87, 0xe0, CALL, RET), 12, false, NOT_KNOWN},
    {"pop into rsp", CODE(START, 0x5c, CALL, RET), 10, false, NOT_KNOWN},
    {"a push of two bytes", CODE(START, 0x66, 0x50, CALL, RET), 11, false, NOT_KNOWN},
    {"compared only", CODE(START, 0x48, 0x39, 0xc4, 0x48, 0x85, 0xe4, CALL, RET), 15, false, 16},
    {"copied only", CODE(START, 0x48, 0x89, 0xe0, 0x48, 0x8b, 0xc4, CALL, RET), 15, false, 16},
    {"more popped than pushed", CODE(START, ADD(32), CALL, RET), 13, false, NOT_KNOWN},
    {"two ways, two depths", CODE(START, JNE(1), PUSH_RBX, CALL, LEAVE, RET), 12, false, NOT_KNOWN},
    {"no call ends there", CODE(START, NOP, NOP, NOP, RET), 6, false, NOT_KNOWN},
    {"in the middle of one", CODE(START, SUB(16), CALL, RET), 6, true, NOT_KNOWN},
    {"behind what is no code", CODE(START, 0x06, CALL, RET), 10, false, NOT_KNOWN},
    {"nothing", CODE(START), 5, true, NOT_KNOWN},
    {"behind all", CODE(START), 5, false, NOT_KNOWN},
};

static struct prologue *prologue;

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *example = &examples[i];
        const struct prologue_mark marks[] = {{0, 8}, {1, 16}, {4, 0}};
        struct prologue_code code = {
            .bytes = example->code, .size = example->size, .marks = marks, .mark_count = 3, .frame_off = FRAME};
        const struct prologue_mark silent[] = {{0, 8}, {1, -1}};
        if (example->code[0] != PUSH_RBP) {
            code.marks = silent;
            code.mark_count = 2;
        }
        for (int again = 0; again < 2; again++) {
            int32_t depth = prologue_depth(prologue, &code, example->off, example->exact);
            if (depth != example->depth)
                fail_msg("%s: %d", example->text, depth);
        }
    }
}

/* What unwind information tells counts, wherever the ways lead: shrink-wrapped code, and behind calls without return.
 */
static void test_marks(void **state)
{
    (void)state;
    const uint8_t bytes[] = {CALL, START, SUB(16), CALL, LEAVE, RET, START, CALL};
    const struct prologue_mark marks[] = {{0, 8}, {6, 16}, {9, 0}, {19, 8}, {21, 16}, {24, 0}};
    struct prologue_code code = {
        .bytes = bytes, .size = sizeof(bytes), .marks = marks, .mark_count = 6, .frame_off = 16};
    assert_int_equal(prologue_depth(prologue, &code, 5, false), 8);
    assert_int_equal(prologue_depth(prologue, &code, 18, false), 32);
    assert_int_equal(prologue_depth(prologue, &code, 29, false), 16);
    /* Counted in a way that is not followed, up to the frame pointer. */
    const struct prologue_mark other[] = {{0, 8}, {6, -1}, {9, 0}};
    code.marks = other;
    code.mark_count = 3;
    assert_int_equal(prologue_depth(prologue, &code, 18, false), 32);
    code.mark_count = 0;
    assert_int_equal(prologue_depth(prologue, &code, 18, false), NOT_KNOWN);
}

/* A function of returns only, and one of jumps to everywhere: work grows with the size only. */
static void test_much_work(void **state)
{
    (void)state;
    enum { LONG = 2 * PROLOGUE_CODE_MAX };
    uint8_t *bytes = malloc(LONG);
    const struct prologue_mark marks[] = {{0, 8}, {1, 0}};
    struct prologue_code code = {.bytes = bytes, .size = LONG, .marks = marks, .mark_count = 2, .frame_off = FRAME};
    assert_non_null(bytes);
    memset(bytes, RET, LONG);
    memcpy(bytes, (const uint8_t[]){NOP, JNE(0)}, 3);
    assert_int_equal(prologue_depth(prologue, &code, PROLOGUE_CODE_MAX - 1, true), 8);
    assert_int_equal(prologue_depth(prologue, &code, PROLOGUE_CODE_MAX, true), NOT_KNOWN);
    assert_int_equal(prologue_depth(prologue, &code, PROLOGUE_CODE_MAX + 7, true), NOT_KNOWN);
    for (size_t i = 0; i < LONG; i++)
        bytes[i] = i % 2 ? (uint8_t)(i * 7) : 0x75;
    prologue_depth(prologue, &code, PROLOGUE_CODE_MAX - 1, true);
    memset(bytes, 0x53, LONG);
    assert_int_equal(prologue_depth(prologue, &code, 1000, true), 8 + 8 * 1000);
    free(bytes);
}

/* ---- the census ---- */

struct census {
    struct cfi *cfi;
    const struct code_region *region;
    uint8_t code[PROLOGUE_CODE_MAX];
    size_t calls, answered, right;
};

/* How many calls of a function are asked for, and about how many functions of a library. */
enum { CALLS_A_FUNCTION = 16, FUNCTIONS_A_LIBRARY = 500 };

static void ask(struct census *census, const struct cfi_function *function, size_t size, uint32_t off)
{
    /* Nothing but the beginning is told; the rest is taken for code with a frame pointer. */
    const struct prologue_mark marks[] = {{0, 8}, {1, 0}};
    const struct prologue_code code = {.bytes = census->code, .size = size, .marks = marks, .mark_count = 2};
    const struct rule *rule =
        cfi_find(census->cfi, census->region, function->start_svma + off - 1 + census->region->bias);
    assert_non_null(rule);
    if (rule->kind != RULE_PLAIN || rule->cfa_register != REGISTER_RSP)
        return;
    int32_t truth = rule->cfa_off;
    int32_t depth = prologue_depth(prologue, &code, off, false);
    census->calls++;
    census->answered += depth > 0;
    census->right += depth == truth;
}

static void take_function(struct census *census, const struct cfi_function *function)
{
    struct instruction instruction;
    size_t size = (size_t)(function->end_svma - function->start_svma);
    size_t asked = 0;
    const struct rule *rule = cfi_find(census->cfi, census->region, function->start_svma + census->region->bias);
    assert_non_null(rule);
    if (size > sizeof(census->code) || rule->kind != RULE_PLAIN || rule->cfa_register != REGISTER_RSP ||
        rule->cfa_off != 8 || image_read_svma(census->region->image, function->start_svma, census->code, size) < 0)
        return;
    for (uint32_t off = 0; off < size && asked < CALLS_A_FUNCTION; off += instruction.bytes) {
        if (!instruction_decode(census->code + off, size - off, &instruction))
            return;
        bool is_call = instruction.map == MAP_ONE &&
                       (instruction.opcode == 0xe8 || (instruction.opcode == 0xff && instruction.reg == 2));
        if (is_call) {
            ask(census, function, size, off + instruction.bytes);
            asked++;
        }
    }
}

static struct self_target self;

static void test_census(void **state)
{
    (void)state;
    static struct census census;
    size_t libraries = 0;
    for (size_t r = 0; r < self.map.count; r++) {
        const struct code_region *region = &self.map.regions[r];
        struct cfitable *table;
        if (!region->image || !region->has_bias || !strstr(image_path(region->image), ".so"))
            continue;
        memset(&census, 0, sizeof(census));
        census.region = region;
        census.cfi = cfi_new();
        assert_non_null(census.cfi);
        assert_int_equal(cfitable_new(region->image, &table), 0);
        for (size_t n = 0; n < cfitable_count(table); n += 1 + cfitable_count(table) / FUNCTIONS_A_LIBRARY) {
            struct cfi_function function;
            if (cfitable_find(table, cfitable_start(table, n), &function) == 0)
                take_function(&census, &function);
        }
        cfitable_free(table);
        cfi_free(census.cfi);
        print_message("%s: %zu calls, %zu answered, %zu right\n", image_path(region->image), census.calls,
                      census.answered, census.right);
        if (census.calls < 500)
            continue;
        libraries++;
        assert_true(census.right >= census.calls * 93 / 100);
        assert_true(census.answered - census.right <= census.calls / 500);
    }
    assert_true(libraries > 0);
}

static int set_up(void **state)
{
    (void)state;
    prologue = prologue_new();
    return prologue ? self_target_load(&self) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    self_target_unload(&self);
    prologue_free(prologue);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_much_work),
        cmocka_unit_test(test_census),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down) ? 1 : 0;
}
