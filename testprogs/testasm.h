/*
 * For the assembly of test programs. FUNCTION and END frame a function; CFI(…) is a .cfi_ directive, or nothing when
 * the program is built without unwind information (-DNO_CFI).
 */
#ifndef TESTASM_H
#define TESTASM_H

/* clang-format off */
#ifdef NO_CFI
#define CFI(...)
#else
#define CFI(...) .cfi_##__VA_ARGS__;
#endif

#define FUNCTION(name) .globl name; .type name, @function; name: CFI(startproc)
#define END(name)      CFI(endproc) .size name, . - name

/* The usual beginning and end of a function with a frame pointer. */
#define ENTER push %rbp; CFI(def_cfa_offset 16) CFI(offset rbp, -16) mov %rsp, %rbp; CFI(def_cfa_register rbp)
#define LEAVE pop %rbp; CFI(def_cfa rsp, 8)
/* clang-format on */

#endif
