/* Functions that call each other, compiled once with and once without frame pointers. */
#ifndef TESTS_UNIT_UNWIND_CHAIN_H
#define TESTS_UNIT_UNWIND_CHAIN_H

typedef void chain_end(void *context);

/* `depth` calls of itself, then `end(context)`: depth + 1 frames. */
void chain_fp(unsigned depth, chain_end *end, void *context);
void chain_nofp(unsigned depth, chain_end *end, void *context);

/* The frame of variable size makes the compiler use a frame pointer for itself, re-aligned: CFA by an expression. */
void realigned_nofp(unsigned depth, chain_end *end, void *context);

#endif
