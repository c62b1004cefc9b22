/*
 * What bytes of code say by themselves, wherever they come from: an image, a copy, or the memory around us (the helper
 * in a target asks, too). Encodings: Intel SDM volume 2. Pure; any thread, also in a signal handler.
 *
 * Is there a call right before an address: E8 rel32, FF /2 with any ModRM, SIB and displacement. Prefixes stand before
 * the opcode, so they do not matter when reading backwards. 9A is not valid in 64-bit mode, FF /3 (far) is used by
 * nobody.
 *
 * Where is the return address, at the instruction that is about to run:
 *   entry         [endbr64] push %rbp           return address at the stack pointer
 *   behind push   mov %rsp,%rbp                 one word above it; rbp is the caller's
 *   before ret    pop %rbp; ret                 one word above it, the caller's rbp at the stack pointer
 *   at ret        ret                           at the stack pointer
 *   HotSpot       mov %eax,-n(%rsp); push %rbp  entry of a compiled method, which touches the stack first
 *                 cmp n(%r15),%rsp; ja; ret     its end, where it asks whether to stop; also behind pop %rbp, and at ja
 *   PLT           jmp *slot(%rip)               at the stack pointer; also a tail call through a pointer
 *                 push $index; jmp PLT0         at the stack pointer; one word above it
 *                 PLT0: push; jmp *slot(%rip)   one and two words above it
 *
 */
#ifndef UNWIND_PATTERNS_H
#define UNWIND_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest encoding of a call without prefixes. */
enum { PATTERNS_CALL_BYTES = 7 };

/* True when the bytes end with a call; `bytes` may be fewer than PATTERNS_CALL_BYTES. Data can look like a call by
 * chance.
 */
bool patterns_end_with_call(const uint8_t *bytes, size_t size);

/* Bytes before and behind the pc that are looked at; for what is not there, PATTERNS_NOTHING, which is no instruction
 * in 64-bit mode. */
enum {
    PATTERNS_BEFORE = 8,
    PATTERNS_BEHIND = 16,
    PATTERNS_WINDOW = PATTERNS_BEFORE + PATTERNS_BEHIND,
    PATTERNS_NOTHING = 0x06
};

struct inspection {
    unsigned return_words; /* the return address lies so many words above the stack pointer */
    bool rbp_at_sp;        /* the caller's rbp is the word at the stack pointer; else it is in rbp */
};

/* `window` has the bytes around the pc of code that is being executed. false: an instruction that says nothing. */
bool patterns_find_return(const uint8_t window[PATTERNS_WINDOW], struct inspection *ret);

/* The two ways to write the code that a signal handler returns to. */
bool patterns_are_sigreturn(const uint8_t window[PATTERNS_WINDOW]);

#endif
