/*
 * What a fuzz target is: one function over bytes, as libFuzzer calls it. Linked with libFuzzer (preset "fuzz"), or with
 * driver.c, which runs seeds and changes of them for a bounded time.
 *
 * An input may be anything. The function returns 0; what is wrong aborts.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike assert it is there in every build. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Takes parts off the front of an input; where it ends, zeros. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};

static inline void fuzz_take(struct fuzz_input *input, void *buffer, size_t size)
{
    size_t taken = size < input->size ? size : input->size;
    memset(buffer, 0, size);
    if (taken > 0)
        memcpy(buffer, input->data, taken);
    input->data += taken;
    input->size -= taken;
}

static inline uint64_t fuzz_take_number(struct fuzz_input *input, size_t size)
{
    uint64_t value = 0;
    fuzz_take(input, &value, size);
    return value;
}

/* A part with its length, of 16 bits, in front. Borrowed from the input. */
static inline struct fuzz_input fuzz_take_part(struct fuzz_input *input)
{
    size_t size = (size_t)fuzz_take_number(input, 2);
    struct fuzz_input part = {.data = input->data, .size = size < input->size ? size : input->size};
    input->data += part.size;
    input->size -= part.size;
    return part;
}

#endif
