/*
 * What function a slot of an image's global offset table leads to, as far as the files tell: by the dynamic relocation
 * of the slot. Nothing is read of the target's memory.
 *
 * Relocations and symbols are found by section headers. Symbols are compared by name alone, without their versions.
 * Format: System V ABI, chapter 5, and its AMD64 supplement.
 */
#ifndef UNWIND_GOTSLOT_H
#define UNWIND_GOTSLOT_H

#include "symbolize/image.h"

enum gotslot_answer {
    GOTSLOT_FUNCTION, /* it leads to the function */
    GOTSLOT_OTHER,    /* to another one */
    GOTSLOT_UNKNOWN   /* no relocation tells: there are no section headers, a resolver is called, … */
};

/* Does the slot at `slot_svma` of `image` lead to the start of the function at `function_svma` of `function_image`? */
enum gotslot_answer gotslot_find(const struct image *image, uint64_t slot_svma, const struct image *function_image,
                                 uint64_t function_svma);

#endif
