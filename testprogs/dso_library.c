/* The library that dso loads. */
#include "testprog.h"

#ifdef PADDING_BYTES
extern const char padding[PADDING_BYTES];
const char padding[PADDING_BYTES] = {1};
#endif

EXACT static void library_spin(volatile sig_atomic_t *end)
{
    for (volatile unsigned long turns = 0; !*end; turns++)
        ;
}

EXACT void library_outer(volatile sig_atomic_t *end);

EXACT void library_outer(volatile sig_atomic_t *end)
{
    library_spin(end);
    *end = 1;
}
