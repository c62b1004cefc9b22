/*
 * jitframes framed|frameless [SECONDS]: main;outer;run_jit;<jit code>;c_callback;leaf_spin: code in anonymous memory,
 * without names or unwind information, between C functions, which have frame pointers (jitframes_fp) or have not.
 */
#include "testprog.h"

#include <string.h>
#include <sys/mman.h>

static const unsigned char framed[] = {
    0x55,             /* push %rbp */
    0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
    0xff, 0xd7,       /* call *%rdi */
    0x5d,             /* pop %rbp */
    0xc3,             /* ret */
};
static const unsigned char frameless[] = {
    0x48, 0x83, 0xec, 0x18, /* sub $24, %rsp */
    0xff, 0xd7,             /* call *%rdi */
    0x48, 0x83, 0xc4, 0x18, /* add $24, %rsp */
    0xc3,                   /* ret */
};

typedef void jit_function(void (*callback)(void));

static volatile int zero;
static jit_function *code;

EXACT void leaf_spin(void)
{
    SPIN();
}

EXACT void c_callback(void)
{
    leaf_spin();
    zero = 0;
}

EXACT void run_jit(void)
{
    code(c_callback);
    zero = 0;
}

EXACT void outer(void)
{
    run_jit();
    zero = 0;
}

int main(int argc, char **argv)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    if (argc > 1 && strcmp(argv[1], "frameless") == 0)
        memcpy(memory, frameless, sizeof frameless);
    else
        memcpy(memory, framed, sizeof framed);
    if (mprotect(memory, 4096, PROT_READ | PROT_EXEC) != 0)
        fail("mprotect");
    code = (jit_function *)(uintptr_t)memory;
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    outer();
    return 0;
}
