/* Whole walks on hostile unwind information, code, registers and stacks: each ends, within the limit on frames. */
#include "frameimage.h"
#include "fuzz.h"
#include "unwind/unwind.h"

/*
 * Input: .eh_frame (a part), code (a part), pc (4 bytes, from the image's beginning on), known registers (4 bytes),
 * registers (16 x 2 bytes, from the stack on), the stack. The code is in the image, and once more at JIT without one;
 * the stack is once more, and cut, at OTHER_STACK if the highest bit of the known registers says so.
 */
static const uint64_t BIAS = 0x500000;
static const uint64_t JIT = 0x600000;
static const uint64_t STACK = 0x700000;
static const uint64_t OTHER_STACK = 0x800000;

enum { DEPTH_MAX = 64, IMAGE_CODE_BYTES = 0x2000, JIT_BYTES = 0x1000 };

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    const struct fuzz_input *code = context;
    uint64_t off = avma - JIT;
    FUZZ_CHECK(avma >= BIAS && (avma < JIT || off <= JIT_BYTES));
    if (avma < JIT || off > code->size || size > code->size - off)
        return false;
    memcpy(buffer, code->data + off, size);
    return true;
}

static void check_stack(const struct stack *stack, const struct snapshot *snapshot)
{
    FUZZ_CHECK(stack->count >= 1 && stack->count <= DEPTH_MAX);
    FUZZ_CHECK((unsigned)stack->end < STACK_END_COUNT);
    FUZZ_CHECK(stack->frames[0].avma == snapshot->registers.value[REGISTER_PC] && stack->frames[0].exact);
    FUZZ_CHECK(stack->top_avma <= snapshot->stack_end_avma);
    FUZZ_CHECK(stack->inferred == 0 || stack->end == STACK_COMPLETE);
    FUZZ_CHECK(stack->other_bytes == 0 || snapshot->range_count > 1);
    uint64_t written;
    FUZZ_CHECK(stack->interrupted_sp_at_avma == 0 ||
               snapshot_read(snapshot, stack->interrupted_sp_at_avma, &written, sizeof(written)));
    for (size_t i = 1; i < stack->count; i++)
        FUZZ_CHECK(stack->frames[i].by != FRAME_INNERMOST && stack->frames[i].by < FRAME_BY_COUNT);
}

/* Making an unwinder costs more than a walk, so one serves some inputs; the images have to outlive it. */
enum { MODES = UNWIND_DWARF + 1, IMAGES_MAX = 256 };

static struct unwinder *unwinders[MODES];
static struct unwind_space *spaces[MODES];
static struct image *images[IMAGES_MAX];
static size_t image_count;
static uint64_t generation;

static void start_anew(void)
{
    for (int mode = 0; mode < MODES; mode++) {
        unwind_space_free(spaces[mode]);
        unwinder_free(unwinders[mode]);
        unwinders[mode] = unwinder_new((enum unwind_mode)mode, DEPTH_MAX);
        FUZZ_CHECK(unwinders[mode]);
        spaces[mode] = unwind_space_new(unwinders[mode]);
        FUZZ_CHECK(spaces[mode]);
    }
    for (size_t i = 0; i < image_count; i++)
        image_free(images[i]);
    image_count = 0;
}

/* Twice: what the first walk left in the caches changes nothing. */
static void walk(int mode, const struct codemap *map, const struct snapshot *snapshot,
                 const struct memory_reader *reader)
{
    struct stack first = {0}, second = {0};
    FUZZ_CHECK(unwind_walk(unwinders[mode], spaces[mode], map, snapshot, reader, &first) == 0);
    check_stack(&first, snapshot);
    FUZZ_CHECK(unwind_walk(unwinders[mode], spaces[mode], map, snapshot, reader, &second) == 0);
    FUZZ_CHECK(first.count == second.count && first.end == second.end && first.top_avma == second.top_avma);
    FUZZ_CHECK(first.inferred == second.inferred);
    for (size_t i = 0; i < first.count; i++) {
        const struct frame *a = &first.frames[i], *b = &second.frames[i];
        FUZZ_CHECK(a->avma == b->avma && a->exact == b->exact && a->by == b->by);
    }
    stack_deinit(&first);
    stack_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.data = data, .size = size};
    struct fuzz_input frames = fuzz_take_part(&input);
    struct fuzz_input code = fuzz_take_part(&input);
    struct frameimage parts = {
        .text = code.data, .text_bytes = code.size, .frames = frames.data, .frame_bytes = frames.size};
    if (!unwinders[0] || image_count == IMAGES_MAX)
        start_anew();
    struct image *image = frameimage_open(&parts);
    FUZZ_CHECK(image);
    images[image_count++] = image;
    const struct code_region regions[] = {
        {.start_avma = BIAS, .end_avma = BIAS + IMAGE_CODE_BYTES, .bias = BIAS, .image = image, .has_bias = true},
        {.start_avma = JIT, .end_avma = JIT + JIT_BYTES},
    };
    struct codemap map = {.generation = ++generation, .regions = regions, .count = 2};
    struct memory_reader reader = {.read = read_code, .context = &code};

    struct snapshot snapshot = {0};
    struct registers *registers = &snapshot.registers;
    registers->value[REGISTER_PC] = BIAS + fuzz_take_number(&input, 4);
    uint32_t known = (uint32_t)fuzz_take_number(&input, 4);
    registers->known = known | 1U << REGISTER_PC | 1U << REGISTER_RSP;
    registers->known &= (1U << REGISTER_COUNT) - 1;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++)
        registers->value[reg] = STACK + fuzz_take_number(&input, 2);
    snapshot.stack_start_avma = STACK - 0x1000;
    snapshot.stack_end_avma = STACK + input.size + 0x1000;
    snapshot.ranges[0] = (struct memory_range){.avma = STACK, .bytes = input.data, .size = input.size};
    snapshot.ranges[1] = (struct memory_range){.avma = OTHER_STACK,
                                               .bytes = input.data,
                                               .size = input.size / 2,
                                               .mapping_end_avma = OTHER_STACK + input.size + 0x1000};
    snapshot.range_count = known >> 31 ? 2 : 1;
    for (int mode = 0; mode < MODES; mode++)
        walk(mode, &map, &snapshot, &reader);
    return 0;
}
