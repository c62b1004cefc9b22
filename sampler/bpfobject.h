/* Loading a BPF program that was built into this one. Where it fails, nothing is said: there is another way. */
#ifndef SAMPLER_BPFOBJECT_H
#define SAMPLER_BPFOBJECT_H

#include <stddef.h>

struct bpf_object;

/* The bytes of the file `path` of the build tree, from `name` to `name`_end; at file scope. */
#define BPFOBJECT_INCLUDE(name, path)                                                                                  \
    __asm__(".section .rodata\n"                                                                                       \
            ".balign 8\n" #name ":\n"                                                                                  \
            ".incbin \"" path "\"\n" #name "_end:\n"                                                                   \
            ".previous\n");                                                                                            \
    extern const unsigned char name[];                                                                                 \
    extern const unsigned char name##_end[]

/*
 * Loads these of the object's programs, the others not. Returns the object, for bpf_object__close, and the programs'
 * descriptors, which are the object's; NULL when this kernel does not take one or does not let us. Some 20 ms.
 */
struct bpf_object *bpfobject_load(const void *bytes, size_t size, const char *const *programs, size_t count,
                                  int *ret_program_fds);

#endif
