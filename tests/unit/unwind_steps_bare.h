/*
 * Functions with frame pointers and without unwind information, for stepping through: bare_outer calls bare_middle,
 * which calls small functions in assembly, a library function that is bound at this call, and vfork.
 */
#ifndef TESTS_UNIT_UNWIND_STEPS_BARE_H
#define TESTS_UNIT_UNWIND_STEPS_BARE_H

#include <stdint.h>

void bare_outer(const char *text);

/* The two functions' limits, as linkers name those of sections. */
extern const char __start_bare_outer_code[], __stop_bare_outer_code[], __start_bare_middle_code[],
    __stop_bare_middle_code[];

/*
 * The small functions. From bare_open_start on their caller cannot be told for certain: after the frame pointer is
 * popped for a jump to another function, and in a function without a frame.
 */
extern const char bare_edges_start[], bare_open_start[], bare_edges_end[];

/* The function here that holds the address, for messages. */
const char *bare_name(uint64_t avma);

#endif
