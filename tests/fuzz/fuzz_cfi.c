/* Hostile unwind information, compiled row by row, and applied to a snapshot by us and by libunwind. */
#include "frameimage.h"
#include "fuzz.h"
#include "unwind/foreign.h"
#include "unwind/rulecompiler.h"

/* Input: .eh_frame (a part), known registers (4 bytes), registers (16 x 2 bytes, from the stack on), the stack. */
enum { FUNCTIONS_MAX = 16, ROWS_MAX = 16 };

static const uint64_t STACK = 0x700000;
static const uint64_t BIAS = 0x500000;

struct run {
    struct cfitable *table;
    struct rulecompiler *compiler;
    struct foreign *foreign;
    struct codemap map;
    struct snapshot snapshot;
};

/* Whatever comes out is consistent. */
static void check_applied(const struct view *view, enum rule_answer answer, const struct registers *registers)
{
    FUZZ_CHECK(answer != RULE_NEEDS_MEMORY || view->failed);
    FUZZ_CHECK(answer != RULE_STEPPED ||
               (registers_known(registers, REGISTER_RSP) && registers_known(registers, REGISTER_PC) &&
                registers->known >> REGISTER_COUNT == 0));
    const struct snapshot *snapshot = view->snapshot;
    FUZZ_CHECK(view->top_avma == 0 ||
               (view->top_avma > snapshot->stack_start_avma && view->top_avma <= snapshot->stack_end_avma));
}

static void apply(struct run *run, const struct cfi_function *function, uint64_t svma,
                  const struct compiled_rule *compiled)
{
    struct view view = {.map = &run->map, .snapshot = &run->snapshot};
    struct registers registers = run->snapshot.registers;
    registers.value[REGISTER_PC] = svma + BIAS;
    struct registers theirs = registers;
    enum rule_answer answer = RULE_OUTERMOST;
    if (compiled->rule.kind == RULE_PLAIN)
        answer = rule_apply_plain(&compiled->rule, &view, &registers);
    else if (compiled->rule.kind == RULE_GENERAL)
        answer = rule_apply_general(&compiled->general, compiled->rule.signal, compiled->ops, &view, &registers,
                                    svma + BIAS);
    check_applied(&view, answer, &registers);
    /* In earnest it gets only what we cannot do, but it has to bear everything. */
    struct view their_view = {.map = &run->map, .snapshot = &run->snapshot};
    enum rule_answer their_answer =
        foreign_apply(run->foreign, run->table, function, svma, &their_view, &theirs, svma + BIAS);
    check_applied(&their_view, their_answer, &theirs);
    if (compiled->rule.kind == RULE_PLAIN && answer == RULE_STEPPED && their_answer == RULE_STEPPED)
        FUZZ_CHECK(registers.value[REGISTER_RSP] == theirs.value[REGISTER_RSP] &&
                   registers.value[REGISTER_PC] == theirs.value[REGISTER_PC]);
}

static void check_compiled(const struct cfi_function *function, uint64_t svma, const struct compiled_rule *compiled)
{
    FUZZ_CHECK(function->start_svma <= compiled->start_svma && compiled->start_svma <= svma &&
               svma < compiled->end_svma && compiled->end_svma <= function->end_svma);
    FUZZ_CHECK(compiled->rule.kind == RULE_PLAIN || compiled->rule.kind == RULE_GENERAL ||
               compiled->rule.kind == RULE_FOREIGN);
    FUZZ_CHECK(compiled->op_count <= COMPILED_OPS_MAX);
    if (compiled->rule.kind != RULE_GENERAL)
        return;
    const struct location *cfa = &compiled->general.cfa;
    FUZZ_CHECK(cfa->kind != LOCATION_IS || cfa->first_op + cfa->op_count <= compiled->op_count);
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++) {
        const struct location *location = &compiled->general.registers[reg];
        bool has_ops = location->kind == LOCATION_AT || location->kind == LOCATION_IS;
        FUZZ_CHECK(!has_ops || location->first_op + location->op_count <= compiled->op_count);
        FUZZ_CHECK(location->reg < REGISTER_COUNT);
    }
}

/* The row's last address has its rule, too. */
static void check_row_end(struct run *run, const struct cfi_function *function, const struct compiled_rule *first)
{
    static struct compiled_rule last;
    FUZZ_CHECK(rulecompiler_run(run->compiler, run->table, function, first->end_svma - 1, &last) == 0);
    FUZZ_CHECK(last.start_svma == first->start_svma && last.end_svma == first->end_svma);
    FUZZ_CHECK(last.rule.kind == first->rule.kind && last.op_count == first->op_count);
    if (first->rule.kind == RULE_PLAIN)
        FUZZ_CHECK(last.rule.cfa_register == first->rule.cfa_register && last.rule.cfa_off == first->rule.cfa_off &&
                   last.rule.return_in == first->rule.return_in && last.rule.return_at == first->rule.return_at &&
                   memcmp(last.rule.saved, first->rule.saved, sizeof(last.rule.saved)) == 0);
}

static void run_function(struct run *run, uint64_t function_svma)
{
    static struct compiled_rule compiled;
    struct cfi_function function;
    if (cfitable_find(run->table, function_svma, &function) < 0)
        return;
    uint64_t svma = function_svma;
    for (unsigned rows = 0; rows < ROWS_MAX && svma < function.end_svma; rows++) {
        FUZZ_CHECK(rulecompiler_run(run->compiler, run->table, &function, svma, &compiled) == 0);
        check_compiled(&function, svma, &compiled);
        check_row_end(run, &function, &compiled);
        apply(run, &function, svma, &compiled);
        svma = compiled.end_svma;
    }
}

static void run_image(struct run *run, const struct image *image)
{
    FUZZ_CHECK(cfitable_new(image, &run->table) == 0);
    run->compiler = rulecompiler_new();
    run->foreign = foreign_new();
    FUZZ_CHECK(run->compiler && run->foreign);
    size_t count = cfitable_count(run->table);
    for (size_t i = 0; i < count && i < FUNCTIONS_MAX; i++)
        run_function(run, cfitable_start(run->table, i));
    foreign_free(run->foreign);
    rulecompiler_free(run->compiler);
    cfitable_free(run->table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.data = data, .size = size};
    struct fuzz_input frames = fuzz_take_part(&input);
    struct frameimage parts = {.frames = frames.data, .frame_bytes = frames.size};
    struct run run = {.map = {.generation = 1}};
    uint32_t known = (uint32_t)fuzz_take_number(&input, 4);
    run.snapshot.registers.known = (known | 1U << REGISTER_PC | 1U << REGISTER_RSP) & ((1U << REGISTER_COUNT) - 1);
    for (unsigned reg = 0; reg < REGISTER_PC; reg++)
        run.snapshot.registers.value[reg] = STACK + fuzz_take_number(&input, 2);
    run.snapshot.stack_start_avma = STACK - 0x1000;
    run.snapshot.stack_end_avma = STACK + input.size + 0x1000;
    run.snapshot.ranges[0] = (struct memory_range){.avma = STACK, .bytes = input.data, .size = input.size};
    run.snapshot.range_count = 1;
    struct image *image = frameimage_open(&parts);
    FUZZ_CHECK(image);
    run_image(&run, image);
    image_free(image);
    return 0;
}
