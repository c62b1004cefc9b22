/*
 * What the stub (injectstub_x86_64.S) and who writes it into a target (injectremote.c) agree on. One region of the
 * target: the stub, which reads and executes; above it as guard the rest of that part; the stub's stack; its data.
 */
#ifndef SAMPLER_INJECTSTUB_H
#define SAMPLER_INJECTSTUB_H

#define INJECT_CODE_BYTES   0x10000
#define INJECT_STACK_BYTES  0x40000
#define INJECT_DATA_OFF     0x50000 /* also the stack's top */
#define INJECT_DATA_BYTES   0x3000
#define INJECT_REGION_BYTES 0x53000

/* Offsets in the data. */
#define INJECT_STEP           0
#define INJECT_DONE           4
#define INJECT_VALUE          8
#define INJECT_MXCSR          16
#define INJECT_DLOPEN_MODE    20
#define INJECT_ALL_SIGNALS    24
#define INJECT_ERRNO_LOCATION 32
#define INJECT_DLOPEN         40
#define INJECT_DLSYM          48
#define INJECT_DLERROR        56
#define INJECT_ARGUMENT       64
#define INJECT_FRAME          128
#define INJECT_UCONTEXT       144
#define INJECT_ERROR          4544
#define INJECT_FUNCTION       5056
#define INJECT_PATH           5312

#define INJECT_ERROR_BYTES    512
#define INJECT_FUNCTION_BYTES 256
#define INJECT_PATH_BYTES     4096

/* INJECT_STEP: how far it has come. */
#define INJECT_STEP_NONE    0
#define INJECT_STEP_DLOPEN  1
#define INJECT_STEP_DLSYM   2
#define INJECT_STEP_CALL    3
#define INJECT_STEP_SUCCESS 4

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

/* struct ucontext of the kernel (asm/ucontext.h with asm/sigcontext.h), what rt_sigreturn(2) takes all registers from.
 */
struct inject_ucontext {
    uint64_t flags;
    uint64_t link;
    uint64_t stack_avma;
    uint32_t stack_flags;
    uint32_t padding;
    uint64_t stack_bytes;
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    uint16_t cs, gs, fs, ss;
    uint64_t error, trap, oldmask, cr2;
    uint64_t fpstate_avma;
    uint64_t reserved[8];
    uint64_t mask;
};

enum { INJECT_FPSTATE_BYTES = 4096, INJECT_FRAME_HEAD_BYTES = 320 };

/* At a multiple of 64. With the stack pointer at return_avma, `ret` and the C library's rt_sigreturn behind it put a
 * thread back. */
struct inject_frame {
    uint64_t unused;
    uint64_t return_avma;
    struct inject_ucontext ucontext;
    uint8_t fpstate[INJECT_FPSTATE_BYTES];
};

struct inject_data {
    uint32_t step;
    uint32_t done; /* set as the last thing before the registers are put back */
    int64_t value;
    uint32_t mxcsr;
    uint32_t dlopen_mode;
    uint64_t all_signals;
    uint64_t errno_location_avma;
    uint64_t dlopen_avma;
    uint64_t dlsym_avma;
    uint64_t dlerror_avma; /* 0: there is none */
    uint64_t argument;
    uint8_t unused[56];
    struct inject_frame frame;
    char error[INJECT_ERROR_BYTES];
    char function[INJECT_FUNCTION_BYTES];
    char path[INJECT_PATH_BYTES];
};

_Static_assert(sizeof(struct inject_ucontext) == 304, "the kernel's");
_Static_assert(offsetof(struct inject_frame, fpstate) == INJECT_FRAME_HEAD_BYTES, "at a multiple of 64");
_Static_assert(offsetof(struct inject_data, value) == INJECT_VALUE, "");
_Static_assert(offsetof(struct inject_data, mxcsr) == INJECT_MXCSR, "");
_Static_assert(offsetof(struct inject_data, dlopen_mode) == INJECT_DLOPEN_MODE, "");
_Static_assert(offsetof(struct inject_data, all_signals) == INJECT_ALL_SIGNALS, "");
_Static_assert(offsetof(struct inject_data, errno_location_avma) == INJECT_ERRNO_LOCATION, "");
_Static_assert(offsetof(struct inject_data, dlopen_avma) == INJECT_DLOPEN, "");
_Static_assert(offsetof(struct inject_data, dlsym_avma) == INJECT_DLSYM, "");
_Static_assert(offsetof(struct inject_data, dlerror_avma) == INJECT_DLERROR, "");
_Static_assert(offsetof(struct inject_data, argument) == INJECT_ARGUMENT, "");
_Static_assert(offsetof(struct inject_data, frame) == INJECT_FRAME, "");
_Static_assert(offsetof(struct inject_data, frame.ucontext) == INJECT_UCONTEXT, "");
_Static_assert(offsetof(struct inject_data, error) == INJECT_ERROR, "");
_Static_assert(offsetof(struct inject_data, function) == INJECT_FUNCTION, "");
_Static_assert(offsetof(struct inject_data, path) == INJECT_PATH, "");
_Static_assert(sizeof(struct inject_data) <= INJECT_DATA_BYTES, "");
_Static_assert(INJECT_CODE_BYTES + INJECT_STACK_BYTES == INJECT_DATA_OFF, "");
_Static_assert(INJECT_DATA_OFF + INJECT_DATA_BYTES == INJECT_REGION_BYTES, "");

/* The stub's bytes; they run at the start of the region, wherever that is. Never executed in the sampler. */
extern const uint8_t inject_stub[];
extern const uint8_t inject_stub_end[];

#endif
#endif
