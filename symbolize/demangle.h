/*
 * C++ (Itanium ABI) and Rust (legacy and v0) names as a reader wants them: no parameter list, no return type, no Rust
 * hash. D names as the library gives them. Others (Swift) stay. Through libiberty. Time and size are bounded: names
 * beyond 8 KiB, and hostile names ("bombs" that expand without end, or beyond 64 KiB) stay as they are.
 *
 *   _ZN2ns5ClassIiE6methodEv              ns::Class<int>::method
 *   _ZN5crate6module3hot17h<hash>E        crate::module::hot
 *   _Z4spinv.part.0                       spin [clone .part.0]
 *   _Z4spinv.cold, spin.cold.1            spin
 *   _Z4spinv@@LIB_1.0, spin@@LIB_1.0      spin
 */
#ifndef SYMBOLIZE_DEMANGLE_H
#define SYMBOLIZE_DEMANGLE_H

/*
 * The readable name, owned by the caller (free), or NULL when `mangled` is readable as it is, beyond the limits, or no
 * memory is left. A symbol version ("@VERSION") is dropped from any name, and ".cold": what a compiler has put aside is
 * part of the function still.
 */
char *demangle_name(const char *mangled);

#endif
