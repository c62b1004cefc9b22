/* Rules from hand-written unwind information, one kind of instruction after the other; each also against libunwind. */
#include "cmocka_all.h"

#include "frameimage.h"
#include "rulepair.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t START = FRAMEIMAGE_TEXT;
enum { FUNCTION_BYTES = 0x100, PROGRAM_BYTES_MAX = 2048 };

/* Instructions, as bytes. */
#define ADVANCE(units)      0x40 | (units)
#define OFFSET(reg, factor) 0x80 | (reg), (factor)
#define RESTORE(reg)        0xc0 | (reg)
#define OFFSET_EXTENDED     0x05
#define UNDEFINED           0x07
#define SAME_VALUE          0x08
#define IN_REGISTER         0x09
#define REMEMBER            0x0a
#define RESTORE_STATE       0x0b
#define DEF_CFA             0x0c
#define DEF_CFA_REGISTER    0x0d
#define DEF_CFA_OFFSET      0x0e
#define DEF_CFA_EXPRESSION  0x0f
#define EXPRESSION          0x10
#define OFFSET_EXTENDED_SF  0x11
#define DEF_CFA_SF          0x12
#define DEF_CFA_OFFSET_SF   0x13
#define VAL_OFFSET          0x14
#define VAL_EXPRESSION      0x16
#define GNU_ARGS_SIZE       0x2e
#define GNU_NEGATIVE_OFFSET 0x2f
#define PROGRAM(...)        (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

enum { RAX = 0, RDX = 1, RBX = 3, RSI = 4, RBP = 6, RSP = 7, R10 = 10, R12 = 12, R13 = 13, R15 = 15, RA = 16 };

/* One function under test. */
struct fixture {
    struct image *image;
    struct cfitable *table;
    struct cfi_function function;
    struct rulecompiler *compiler;
    struct rulepair pair;
    struct compiled_rule row; /* what was compiled last */
};

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    fixture.compiler = rulecompiler_new();
    return fixture.compiler ? rulepair_init(&fixture.pair) : -1;
}

static void close_function(void)
{
    cfitable_free(fixture.table);
    image_free(fixture.image);
    fixture.table = NULL;
    fixture.image = NULL;
}

static int tear_down(void **state)
{
    (void)state;
    close_function();
    rulecompiler_free(fixture.compiler);
    rulepair_deinit(&fixture.pair);
    return 0;
}

/* Opens a function with this FDE. Returns what cfitable_find says of it. */
static int open_custom(struct frameprogram function, const uint8_t *program, size_t program_bytes)
{
    static uint8_t frames[PROGRAM_BYTES_MAX + 128];
    close_function();
    function.start_svma = START;
    function.bytes = function.bytes ? function.bytes : FUNCTION_BYTES;
    function.program = program;
    function.program_bytes = program_bytes;
    struct frameimage parts = {.frames = frames,
                               .frame_bytes = frameprogram_write(&function, frames, sizeof(frames), 0)};
    assert_true(parts.frame_bytes > 0);
    fixture.image = frameimage_open(&parts);
    assert_non_null(fixture.image);
    assert_int_equal(cfitable_new(fixture.image, &fixture.table), 0);
    return cfitable_find(fixture.table, START, &fixture.function);
}

static void open_function(const uint8_t *program, size_t program_bytes)
{
    assert_int_equal(open_custom((struct frameprogram){.code_align = 1, .data_align = -8}, program, program_bytes), 0);
}

/* Compiles the row that holds START + off, and compares it with libunwind if it is one of ours. */
static const struct compiled_rule *compile_at(uint64_t off)
{
    struct compiled_rule *row = &fixture.row;
    memset(row, 0xa5, sizeof(*row));
    assert_int_equal(rulecompiler_run(fixture.compiler, fixture.table, &fixture.function, START + off, row), 0);
    assert_true(row->start_svma <= START + off && START + off < row->end_svma);
    for (unsigned turn = 0; turn < 20 && row->rule.kind != RULE_FOREIGN; turn++) {
        struct registers registers = rulepair_registers(&fixture.pair, START + off);
        const char *difference =
            rulepair_compare(&fixture.pair, fixture.table, &fixture.function, START + off, row, &registers);
        if (difference)
            fail_msg("at +0x%llx: %s differs from libunwind", (unsigned long long)off, difference);
    }
    return row;
}

static void assert_row(uint64_t off, uint64_t start, uint64_t end)
{
    compile_at(off);
    assert_int_equal(fixture.row.start_svma, START + start);
    assert_int_equal(fixture.row.end_svma, START + end);
}

static void assert_plain(uint64_t off, unsigned cfa_register, int32_t cfa_off)
{
    const struct rule *rule = &compile_at(off)->rule;
    assert_int_equal(rule->kind, RULE_PLAIN);
    assert_false(rule->signal);
    assert_int_equal(rule->cfa_register, cfa_register);
    assert_int_equal(rule->cfa_off, cfa_off);
}

/* The place of a register in the plain rule that was compiled last. */
static int saved_words(unsigned reg)
{
    for (unsigned i = 0; i < RULE_SAVED; i++) {
        if (rule_saved_registers[i] == reg)
            return fixture.row.rule.saved[i];
    }
    fail_msg("register %u is not preserved", reg);
    return 0;
}

static const struct location *location_of(unsigned reg)
{
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    return &fixture.row.general.registers[reg];
}

/* Applies the row that was compiled last. */
static enum rule_answer apply(uint64_t off, struct registers *registers)
{
    return rulepair_apply(&fixture.pair, &fixture.row, START + off, registers);
}

/* ---- plain rules ---- */

static void a_frame_of_a_compiler(void **state)
{
    (void)state;
    /* push %rbp; mov %rsp,%rbp; push %rbx ... leave; ret */
    open_function(PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 16, OFFSET(RBP, 2), ADVANCE(3), DEF_CFA_REGISTER, RBP, ADVANCE(1),
                          OFFSET(RBX, 3), 0x02, 0x90, DEF_CFA, RSP, 8, RESTORE(RBP), RESTORE(RBX)));
    assert_plain(0, RSP, 8);
    assert_int_equal(fixture.row.rule.return_in, RETURN_AT_CFA);
    assert_int_equal(fixture.row.rule.return_at, -1);
    assert_int_equal(saved_words(RBP), SAVED_NOWHERE);
    assert_row(0, 0, 1);
    assert_plain(1, RSP, 16);
    assert_int_equal(saved_words(RBP), -2);
    assert_plain(4, RBP, 16);
    assert_row(4, 4, 5);
    assert_plain(5, RBP, 16);
    assert_int_equal(saved_words(RBX), -3);
    assert_int_equal(saved_words(R12), SAVED_NOWHERE);
    assert_row(0x50, 5, 0x95);
    assert_plain(0x95, RSP, 8);
    assert_int_equal(saved_words(RBX), SAVED_NOWHERE);
    assert_int_equal(saved_words(RBP), SAVED_NOWHERE);
    assert_row(0xff, 0x95, 0x100);
}

/* Behind DW_CFA_restore_state libdw would say that the row starts where the remembered one did. */
static void remembered_states_have_rows_of_their_own(void **state)
{
    (void)state;
    open_function(PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 16, OFFSET(RBX, 2), ADVANCE(0x10), REMEMBER, DEF_CFA_OFFSET, 8,
                          RESTORE(RBX), ADVANCE(2), RESTORE_STATE, ADVANCE(0x20), REMEMBER, DEF_CFA_OFFSET, 32,
                          REMEMBER, ADVANCE(4), DEF_CFA_OFFSET, 40, ADVANCE(4), RESTORE_STATE, ADVANCE(4),
                          RESTORE_STATE));
    static const struct {
        uint64_t start, end;
        int32_t cfa_off;
        int rbx;
    } rows[] = {
        {0, 1, 8, SAVED_NOWHERE}, {1, 0x11, 16, -2},    {0x11, 0x13, 8, SAVED_NOWHERE}, {0x13, 0x33, 16, -2},
        {0x33, 0x37, 32, -2},     {0x37, 0x3b, 40, -2}, {0x3b, 0x3f, 32, -2},           {0x3f, 0x100, 16, -2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint64_t off = rows[i].start; off < rows[i].end; off++) {
            assert_row(off, rows[i].start, rows[i].end);
            assert_plain(off, RSP, rows[i].cfa_off);
            assert_int_equal(saved_words(RBX), rows[i].rbx);
        }
    }
}

/* vfork of glibc keeps its return address in rdi; here in r10. */
static void a_return_address_in_a_register(void **state)
{
    (void)state;
    open_function(PROGRAM(DEF_CFA_OFFSET, 0, IN_REGISTER, RA, R10));
    assert_plain(5, RSP, 0);
    assert_int_equal(fixture.row.rule.return_in, RETURN_IN_REGISTER);
    assert_int_equal(fixture.row.rule.return_at, R10);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_int_equal(apply(5, &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RA], before.value[R10]);
    assert_int_equal(registers.value[RSP], before.value[RSP]);
    registers = before;
    registers.known &= ~(1U << R10);
    assert_int_equal(apply(5, &registers), RULE_UNUSABLE);
}

static void no_caller(void **state)
{
    (void)state;
    open_function(PROGRAM(UNDEFINED, RA));
    assert_plain(5, RSP, 8);
    assert_int_equal(fixture.row.rule.return_in, RETURN_UNDEFINED);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    assert_int_equal(apply(5, &registers), RULE_OUTERMOST);
}

static void a_preserved_register_that_is_not(void **state)
{
    (void)state;
    open_function(PROGRAM(UNDEFINED, RBX, ADVANCE(4), SAME_VALUE, RBX));
    assert_plain(0, RSP, 8);
    assert_int_equal(saved_words(RBX), SAVED_UNKNOWN);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_false(registers_known(&registers, RBX));
    assert_true(registers_known(&registers, R12));
    assert_plain(4, RSP, 8);
    assert_int_equal(saved_words(RBX), SAVED_NOWHERE);
}

/* As functions that throw have it. No caller's row speaks of what a call destroys. */
static void registers_of_eh_return(void **state)
{
    (void)state;
    open_function(
        PROGRAM(DEF_CFA_OFFSET, 80, OFFSET(RAX, 9), OFFSET(RDX, 8), OFFSET(RBX, 7), ADVANCE(4), OFFSET(RSI, 6)));
    assert_plain(0, RSP, 80);
    assert_int_equal(saved_words(RBX), -7);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_false(registers_known(&registers, RAX));
    assert_true(registers_known(&registers, RBX));
    assert_int_equal(compile_at(4)->rule.kind, RULE_GENERAL);
}

/* Large frames are plain as long as the numbers fit. */
static void numbers_at_the_edge_of_a_plain_rule(void **state)
{
    (void)state;
    /* CFA = rsp + INT32_MAX; rbx at -127 words, r12 at +127 */
    open_function(PROGRAM(DEF_CFA_OFFSET, 0xff, 0xff, 0xff, 0xff, 0x07, OFFSET(RBX, 0x7f), OFFSET_EXTENDED_SF, R12,
                          0x81, 0x7f, ADVANCE(1), DEF_CFA_OFFSET, 0x80, 0x80, 0x80, 0x80, 0x08, ADVANCE(1),
                          DEF_CFA_OFFSET, 8, OFFSET(RBX, 0x80), 0x01, ADVANCE(1), OFFSET(RBX, 1), OFFSET_EXTENDED_SF,
                          R12, 0x80, 0x7f));
    assert_plain(0, RSP, INT32_MAX);
    assert_int_equal(saved_words(RBX), -127);
    assert_int_equal(saved_words(R12), 127);
    /* CFA = rsp + 2^31 */
    compile_at(1);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    assert_int_equal(fixture.row.general.cfa.off, INT64_C(1) << 31);
    /* rbx at -128 words, which stands for "not known" in plain rules */
    compile_at(2);
    assert_int_equal(location_of(RBX)->off, -128 * 8);
    compile_at(3);
    assert_int_equal(location_of(R12)->off, 128 * 8);
}

static void places_that_are_no_whole_words_are_general(void **state)
{
    (void)state;
    struct frameprogram function = {.code_align = 1, .data_align = -4};
    /* 4 bytes below, then at the CFA itself, which stands for "not saved" in plain rules. */
    assert_int_equal(
        open_custom(function, PROGRAM(OFFSET(RBX, 5), ADVANCE(1), OFFSET(RBX, 0), ADVANCE(1), OFFSET(RBX, 6))), 0);
    compile_at(0);
    assert_int_equal(location_of(RBX)->off, -20);
    compile_at(1);
    assert_int_equal(location_of(RBX)->kind, LOCATION_AT_CFA);
    assert_int_equal(location_of(RBX)->off, 0);
    assert_plain(2, RSP, 8);
    assert_int_equal(saved_words(RBX), -3);
}

static void signed_forms_of_instructions(void **state)
{
    (void)state;
    open_function(PROGRAM(DEF_CFA_SF, RBP, 0x7e /* -2 */, OFFSET_EXTENDED_SF, RBX, 0x03, ADVANCE(1), DEF_CFA_OFFSET_SF,
                          0x7d, OFFSET_EXTENDED, R12, 4, GNU_ARGS_SIZE, 0x20));
    assert_plain(0, RBP, 16);
    assert_int_equal(saved_words(RBX), -3);
    assert_plain(1, RBP, 24);
    assert_int_equal(saved_words(R12), -4);
}

static void advances_count_in_units_of_code(void **state)
{
    (void)state;
    struct frameprogram function = {.code_align = 4, .data_align = -8};
    assert_int_equal(open_custom(function, PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 16, 0x02, 3, DEF_CFA_OFFSET, 24, 0x03, 2,
                                                   0, DEF_CFA_OFFSET, 32, 0x04, 1, 0, 0, 0, DEF_CFA_OFFSET, 40)),
                     0);
    static const uint64_t starts[] = {0, 4, 16, 24, 28, FUNCTION_BYTES};
    for (size_t i = 0; i + 1 < sizeof(starts) / sizeof(starts[0]); i++) {
        for (uint64_t off = starts[i]; off < starts[i + 1]; off++) {
            assert_row(off, starts[i], starts[i + 1]);
            assert_plain(off, RSP, 8 + 8 * (int32_t)i);
        }
    }
}

/* An advance by nothing ends no row, one beyond the function ends the last row there. */
static void rows_end_with_the_function(void **state)
{
    (void)state;
    open_function(PROGRAM(ADVANCE(0), DEF_CFA_OFFSET, 16, ADVANCE(8), DEF_CFA_OFFSET, 24, ADVANCE(0), DEF_CFA_OFFSET,
                          32, 0x03, 0xff, 0xff, DEF_CFA_OFFSET, 40));
    assert_row(0, 0, 8);
    assert_plain(7, RSP, 16);
    assert_row(8, 8, FUNCTION_BYTES);
    assert_plain(0xff, RSP, 32);
}

/* ---- general rules ---- */

/* rsp + 8 + ((rip & 15) >= 11) * 8, as linkers write it. */
static void a_procedure_linkage_table(void **state)
{
    (void)state;
    open_function(PROGRAM(DEF_CFA_OFFSET, 16, ADVANCE(6), DEF_CFA_OFFSET, 24, ADVANCE(10), DEF_CFA_EXPRESSION, 11,
                          DW_OP_breg0 + RSP, 8, DW_OP_breg0 + RA, 0, DW_OP_lit15, DW_OP_and, DW_OP_lit11, DW_OP_ge,
                          DW_OP_lit3, DW_OP_shl, DW_OP_plus));
    assert_plain(0, RSP, 16);
    assert_plain(6, RSP, 24);
    assert_row(0x10, 0x10, 0x100);
    for (uint64_t off = 0x10; off < 0x30; off++) {
        compile_at(off);
        assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
        assert_int_equal(fixture.row.general.cfa.kind, LOCATION_IS);
        struct registers registers = rulepair_registers(&fixture.pair, START + off);
        uint64_t sp = registers.value[RSP];
        assert_int_equal(apply(off, &registers), RULE_STEPPED);
        assert_int_equal(registers.value[RSP], sp + (off % 16 >= 11 ? 16 : 8));
    }
}

/* Realigned frames: CFA = [rbp - 16]; the caller's rbp by an expression, too. */
static void a_cfa_in_memory(void **state)
{
    (void)state;
    open_function(PROGRAM(DEF_CFA_EXPRESSION, 3, DW_OP_breg0 + RBP, 0x70, DW_OP_deref, EXPRESSION, RBP, 2,
                          DW_OP_breg0 + RBP, 0, EXPRESSION, R12, 2, DW_OP_breg0 + RBP, 0x68));
    compile_at(4);
    assert_int_equal(location_of(RBP)->kind, LOCATION_AT_REGISTER);
    assert_int_equal(location_of(R12)->off, -24);
    assert_int_equal(fixture.row.general.cfa.kind, LOCATION_AT_REGISTER);
    assert_int_equal(fixture.row.general.cfa.off, -16);
    assert_int_equal(fixture.row.op_count, 0);
    /* A CFA that lies elsewhere is a walk's end, not a guess. */
    struct registers registers = rulepair_registers(&fixture.pair, START);
    registers.value[RBP] = 0x1000;
    assert_int_equal(apply(4, &registers), RULE_NEEDS_MEMORY);
    registers = rulepair_registers(&fixture.pair, START);
    registers.known &= ~(1U << RBP);
    assert_int_equal(apply(4, &registers), RULE_UNUSABLE);
}

static void expressions_start_with_the_cfa(void **state)
{
    (void)state;
    open_function(PROGRAM(VAL_EXPRESSION, RBX, 2, DW_OP_lit8, DW_OP_minus, EXPRESSION, R12, 2, DW_OP_lit24, DW_OP_minus,
                          VAL_EXPRESSION, R13, 2, DW_OP_breg0 + RSI, 5, EXPRESSION, R15, 3, DW_OP_plus_uconst, 8,
                          DW_OP_deref));
    compile_at(0);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    uint64_t cfa = before.value[RSP] + 8;
    assert_int_equal(registers.value[RBX], cfa - 8);
    assert_int_equal(registers.value[R13], before.value[RSI] + 5);
    uint64_t word;
    assert_true(snapshot_read(&fixture.pair.snapshot, cfa - 24, &word, sizeof(word)));
    assert_int_equal(registers.value[R12], word);
    assert_true(registers_known(&registers, R15));
}

/* In a frame that has called it is the address that rules are looked up with. */
static void the_pc_as_a_register(void **state)
{
    (void)state;
    open_function(PROGRAM(DEF_CFA, RA, 8, IN_REGISTER, RBX, RA, ADVANCE(8), DEF_CFA, RSP, 8, IN_REGISTER, RA, RA));
    compile_at(0);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    struct registers registers = rulepair_registers(&fixture.pair, fixture.pair.words[0] + 1);
    assert_int_equal(rulepair_apply(&fixture.pair, &fixture.row, fixture.pair.words[0], &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RSP], fixture.pair.words[0] + 8);
    assert_int_equal(registers.value[RBX], fixture.pair.words[0]);
    compile_at(8);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
}

/* Any other register as the place of a preserved one, and a preserved one as the place of another. */
static void registers_in_registers(void **state)
{
    (void)state;
    open_function(PROGRAM(IN_REGISTER, RBX, RDX, IN_REGISTER, RSP, R12));
    compile_at(0);
    assert_int_equal(location_of(RBX)->kind, LOCATION_IN_REGISTER);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RBX], before.value[RDX]);
    assert_int_equal(registers.value[RSP], before.value[R12]);
    assert_int_equal(registers.value[R12], before.value[R12]);
}

/* Jumps over an operation, back, and to the end; an operand may look like an operation. */
static void jumps_of_expressions(void **state)
{
    (void)state;
    open_function(PROGRAM(
        /* CFA = rax ? rsp + 16 : rsp + 8 */
        DEF_CFA_EXPRESSION, 15, DW_OP_breg0 + RSP, 8, DW_OP_breg0 + RAX, 0, DW_OP_bra, 3, 0, DW_OP_skip, 3, 0,
        DW_OP_plus_uconst, 8, DW_OP_nop, DW_OP_nop, DW_OP_nop,
        /* counts 5 down to 0, then the CFA */
        VAL_EXPRESSION, RBX, 8, DW_OP_lit5, DW_OP_lit1, DW_OP_minus, DW_OP_dup, DW_OP_bra, 0xfa, 0xff, DW_OP_plus,
        /* to the end */
        VAL_EXPRESSION, R12, 5, DW_OP_lit7, DW_OP_skip, 1, 0, DW_OP_drop));
    compile_at(0);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RSP], before.value[RSP] + 16);
    assert_int_equal(registers.value[RBX], before.value[RSP] + 16);
    assert_int_equal(registers.value[R12], 7);
    registers = before;
    registers.value[RAX] = 0;
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RSP], before.value[RSP] + 8);
}

/* Jumps that lead nowhere are not ours to follow. */
static void jumps_astray_make_no_rule(void **state)
{
    (void)state;
    static const uint8_t distances[][2] = {
        {0xf0, 0xff}, /* before the start */
        {0xff, 0xff}, /* into its own operand */
        {0x00, 0x80}, /* far before */
        {0x60, 0x00}, /* far behind the end */
    };
    for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++) {
        open_function(PROGRAM(DEF_CFA_EXPRESSION, 7, DW_OP_breg0 + RSP, 8, DW_OP_skip, distances[i][0], distances[i][1],
                              DW_OP_nop, DW_OP_nop));
        compile_at(0);
        if (fixture.row.rule.kind != RULE_FOREIGN)
            fail_msg("distance %zu", i);
    }
}

/* Each at a place of its own above rsp, as the trampolines of C libraries have it. */
static void a_signal_frame_restores_all_registers(void **state)
{
    (void)state;
    uint8_t program[PROGRAM_BYTES_MAX];
    size_t size = 0;
    static const uint8_t cfa[] = {DEF_CFA_EXPRESSION, 4, DW_OP_breg0 + RSP, 0xa0, 0x01, DW_OP_deref};
    memcpy(program, cfa, sizeof(cfa));
    size = sizeof(cfa);
    for (uint8_t reg = 0; reg <= RA; reg++) {
        uint16_t off = (uint16_t)(reg == RSP ? 160 : 168 + reg * 8);
        const uint8_t place[] = {EXPRESSION,         reg, 3, DW_OP_breg0 + RSP, (uint8_t)(0x80 | (off & 0x7f)),
                                 (uint8_t)(off >> 7)};
        memcpy(program + size, place, sizeof(place));
        size += sizeof(place);
    }
    struct frameprogram function = {.code_align = 1, .data_align = -8, .signal = true};
    assert_int_equal(open_custom(function, program, size), 0);
    compile_at(0);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    assert_true(fixture.row.rule.signal);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    uint64_t sp = registers.value[RSP];
    assert_int_equal(apply(0, &registers), RULE_STEPPED);
    assert_int_equal(registers.known, (1U << REGISTER_COUNT) - 1);
    for (unsigned reg = 0; reg <= RA; reg++) {
        uint64_t word;
        assert_true(snapshot_read(&fixture.pair.snapshot, sp + (reg == RSP ? 160 : 168 + reg * 8), &word, 8));
        assert_int_equal(registers.value[reg], word);
    }
}

/* Also a signal frame that says little is general: every register goes on. */
static void a_plain_signal_frame_keeps_all_registers(void **state)
{
    (void)state;
    struct frameprogram function = {.code_align = 1, .data_align = -8, .signal = true};
    assert_int_equal(open_custom(function, PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 16)), 0);
    compile_at(1);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_int_equal(apply(1, &registers), RULE_STEPPED);
    assert_int_equal(registers.value[RBX], before.value[RBX]);
    assert_int_equal(registers.value[RSP], before.value[RSP] + 16);
}

/* ---- what is left to libunwind ---- */

static void assert_foreign(uint64_t off, enum rule_answer expected, struct registers *registers)
{
    compile_at(off);
    assert_int_equal(fixture.row.rule.kind, RULE_FOREIGN);
    struct view view = {.map = &fixture.pair.map, .snapshot = &fixture.pair.snapshot};
    assert_int_equal(foreign_apply(fixture.pair.foreign, fixture.table, &fixture.function, START + off, &view,
                                   registers, START + off),
                     expected);
}

/* Distance in words above the CFA: the factor counts against the sign. */
static void negative_offsets(void **state)
{
    (void)state;
    open_function(PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 16, GNU_NEGATIVE_OFFSET, RBX, 3, ADVANCE(8), DEF_CFA_OFFSET, 8));
    assert_plain(4, RSP, 16);
    assert_int_equal(saved_words(RBX), 3);
    assert_row(4, 1, 9);
}

/* An expression with more operations than we keep: libunwind's, and right. */
static void what_is_not_ours_is_right_through_libunwind(void **state)
{
    (void)state;
    enum { ADDITIONS = 700, EXPRESSION_BYTES = 2 + 2 * ADDITIONS };
    static uint8_t program[5 + 4 + EXPRESSION_BYTES] = {
        ADVANCE(1), DEF_CFA_OFFSET, 16, VAL_EXPRESSION, RBX, 0x80 | (EXPRESSION_BYTES & 0x7f), EXPRESSION_BYTES >> 7,
        DW_OP_lit3, DW_OP_nop};
    size_t size = 9;
    for (size_t i = 0; i < ADDITIONS; i++) {
        program[size++] = DW_OP_lit2;
        program[size++] = DW_OP_plus;
    }
    open_function(program, size);
    assert_plain(0, RSP, 8);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    struct registers before = registers;
    assert_foreign(4, RULE_STEPPED, &registers);
    assert_int_equal(registers.value[RSP], before.value[RSP] + 16);
    assert_int_equal(registers.value[RBX], 3 + 2 * ADDITIONS);
    assert_int_equal(registers.value[R12], before.value[R12]);
    uint64_t word;
    assert_true(snapshot_read(&fixture.pair.snapshot, before.value[RSP] + 8, &word, sizeof(word)));
    assert_int_equal(registers.value[RA], word);
    /* The row is known all the same. */
    assert_int_equal(fixture.row.start_svma, START + 1);
    assert_int_equal(fixture.row.end_svma, START + FUNCTION_BYTES);
}

/*
 * Assembly of libgcrypt leaves an expression by naming a register, without an offset: libdw refuses that, others go on
 * with the last offset there was, as is meant.
 */
static void a_register_behind_an_expression(void **state)
{
    (void)state;
    open_function(PROGRAM(ADVANCE(1), DEF_CFA_OFFSET, 56, ADVANCE(1), DEF_CFA_EXPRESSION, 5, DW_OP_breg0 + RSP, 24,
                          DW_OP_deref, DW_OP_plus_uconst, 56, ADVANCE(4), DEF_CFA_REGISTER, RSP, ADVANCE(2),
                          DEF_CFA_OFFSET, 48));
    compile_at(2);
    assert_int_equal(fixture.row.rule.kind, RULE_GENERAL);
    struct registers registers = rulepair_registers(&fixture.pair, START);
    uint64_t sp = registers.value[RSP];
    assert_foreign(6, RULE_STEPPED, &registers);
    assert_int_equal(registers.value[RSP], sp + 56);
    registers = rulepair_registers(&fixture.pair, START);
    sp = registers.value[RSP];
    assert_foreign(8, RULE_STEPPED, &registers);
    assert_int_equal(registers.value[RSP], sp + 48);
}

/* Operations that unwind information has no use for. */
static void unknown_operations_make_no_rule(void **state)
{
    (void)state;
    static const uint8_t atoms[] = {DW_OP_call_frame_cfa, DW_OP_push_object_address, DW_OP_xderef,
                                    DW_OP_reg0 + RSP,     DW_OP_stack_value,         DW_OP_lo_user};
    for (size_t i = 0; i < sizeof(atoms); i++) {
        open_function(PROGRAM(DEF_CFA_EXPRESSION, 3, DW_OP_breg0 + RSP, 8, atoms[i]));
        compile_at(0);
        if (fixture.row.rule.kind != RULE_FOREIGN)
            fail_msg("operation 0x%x", atoms[i]);
    }
}

/* A restore without a remember is refused by both. */
static void a_broken_program_has_no_answer(void **state)
{
    (void)state;
    open_function(PROGRAM(ADVANCE(1), RESTORE_STATE));
    struct registers registers = rulepair_registers(&fixture.pair, START);
    assert_foreign(4, RULE_UNUSABLE, &registers);
}

static void programs_that_are_not_normal_are_not_compiled(void **state)
{
    (void)state;
    struct frameprogram function = {.code_align = 1, .data_align = -8};
    assert_int_equal(
        open_custom(function, PROGRAM(DEF_CFA_EXPRESSION, 5, DW_OP_breg0 + RSP, 8, DW_OP_lit0, DW_OP_div, DW_OP_nop)),
        -EINVAL);
    assert_int_equal(open_custom(function, PROGRAM(VAL_OFFSET, RBX, 1)), -EINVAL);
    /* A number of 10 bytes, and one of more, of which evaluators read different parts. */
    uint8_t number[] = {DEF_CFA_OFFSET, 0x90, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0x00};
    assert_int_equal(open_custom(function, number, sizeof(number)), 0);
    assert_plain(0, RSP, 16);
    number[sizeof(number) - 2] = 0x80;
    assert_int_equal(open_custom(function, number, sizeof(number)), -EINVAL);
    /* States that are remembered, one in the other and one after the other. */
    enum { NESTED_MAX = 64 };
    uint8_t program[4 * NESTED_MAX];
    memset(program, REMEMBER, sizeof(program));
    assert_int_equal(open_custom(function, program, NESTED_MAX), 0);
    assert_int_equal(open_custom(function, program, NESTED_MAX + 1), -EINVAL);
    for (size_t i = 1; i < sizeof(program); i += 2)
        program[i] = RESTORE_STATE;
    assert_int_equal(open_custom(function, program, sizeof(program)), 0);
}

static void a_row_can_be_the_whole_function(void **state)
{
    (void)state;
    open_function(NULL, 0);
    assert_plain(0, RSP, 8);
    assert_row(0x80, 0, FUNCTION_BYTES);
    assert_row(0xff, 0, FUNCTION_BYTES);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(a_frame_of_a_compiler),
        WITH_PAIR(remembered_states_have_rows_of_their_own),
        WITH_PAIR(a_return_address_in_a_register),
        WITH_PAIR(no_caller),
        WITH_PAIR(a_preserved_register_that_is_not),
        WITH_PAIR(registers_of_eh_return),
        WITH_PAIR(numbers_at_the_edge_of_a_plain_rule),
        WITH_PAIR(places_that_are_no_whole_words_are_general),
        WITH_PAIR(signed_forms_of_instructions),
        WITH_PAIR(advances_count_in_units_of_code),
        WITH_PAIR(rows_end_with_the_function),
        WITH_PAIR(a_procedure_linkage_table),
        WITH_PAIR(a_cfa_in_memory),
        WITH_PAIR(expressions_start_with_the_cfa),
        WITH_PAIR(the_pc_as_a_register),
        WITH_PAIR(registers_in_registers),
        WITH_PAIR(jumps_of_expressions),
        WITH_PAIR(jumps_astray_make_no_rule),
        WITH_PAIR(a_signal_frame_restores_all_registers),
        WITH_PAIR(a_plain_signal_frame_keeps_all_registers),
        WITH_PAIR(negative_offsets),
        WITH_PAIR(what_is_not_ours_is_right_through_libunwind),
        WITH_PAIR(a_register_behind_an_expression),
        WITH_PAIR(unknown_operations_make_no_rule),
        WITH_PAIR(a_broken_program_has_no_answer),
        WITH_PAIR(programs_that_are_not_normal_are_not_compiled),
        WITH_PAIR(a_row_can_be_the_whole_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
