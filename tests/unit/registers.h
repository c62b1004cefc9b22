/* All registers before and after something that must not change them (registers_x86_64.S). */
#ifndef TESTS_UNIT_REGISTERS_H
#define TESTS_UNIT_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

struct registers {
    _Alignas(16) uint8_t fx[512]; /* as fxsave has it */
    uint64_t general[12];
};

/* Of what each call keeps, and all vectors. */
void registers_around_call(bool (*call)(uint64_t avma, uint64_t *ret_value), uint64_t avma, struct registers *before,
                           struct registers *after);

/* Around a signal that the thread sends to itself. */
void registers_around_signal(int pid, int tid, int signal, struct registers *before, struct registers *after);

#endif
