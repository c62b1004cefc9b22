/* Any bytes as code: lengths of instructions stay within it, and an answer of how deep the stack is comes in bounded
 * time. */
#include "fuzz.h"
#include "unwind/instruction_x86_64.h"
#include "unwind/prologue.h"

/* Input: flags (1), the place (2), marks (1: how many), marks (2 bytes of offset to the one before, 1 of depth), code.
 */
enum { MARKS_MAX = 255, WORD = 8 };

static struct prologue *prologue;

static void decode_all(const uint8_t *code, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        struct instruction instruction;
        if (instruction_decode(code + at, size - at, &instruction))
            FUZZ_CHECK(instruction.bytes > 0 && instruction.bytes <= size - at &&
                       instruction.bytes <= INSTRUCTION_BYTES_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.data = data, .size = size};
    struct prologue_mark marks[MARKS_MAX + 1] = {{0, WORD}};
    uint8_t flags = (uint8_t)fuzz_take_number(&input, 1);
    uint32_t off = (uint32_t)fuzz_take_number(&input, 2);
    size_t count = 1 + (size_t)fuzz_take_number(&input, 1);
    if (!prologue)
        prologue = prologue_new();
    FUZZ_CHECK(prologue);
    for (size_t i = 1; i < count; i++) {
        marks[i].off = marks[i - 1].off + 1 + (uint32_t)fuzz_take_number(&input, 2);
        marks[i].depth = ((int8_t)fuzz_take_number(&input, 1)) * WORD;
    }
    /* A copy, so that a sanitizer sees what is read behind it. */
    uint8_t *code_bytes = malloc(input.size + 1);
    FUZZ_CHECK(code_bytes);
    if (input.size > 0)
        memcpy(code_bytes + 1, input.data, input.size);
    struct prologue_code code = {.bytes = code_bytes + 1,
                                 .size = input.size,
                                 .marks = marks,
                                 .mark_count = count,
                                 .frame_off = flags & 2 ? 2 * WORD : 0};
    decode_all(code.bytes, code.size);
    int32_t first = prologue_depth(prologue, &code, off, flags & 1);
    FUZZ_CHECK(first >= 0 && first % WORD == 0);
    FUZZ_CHECK(first == 0 || off <= code.size);
    FUZZ_CHECK(prologue_depth(prologue, &code, off, flags & 1) == first);
    free(code_bytes);
    return 0;
}
