#include "unwind_steps_bare.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Each small function between two labels; no .cfi directives. ENTER and LEAVE as compilers have them. */
#define EDGE(name, code) "        .globl edge_" name "\n        .type edge_" name ", @function\nedge_" name ":\n" code
#define ENTER            "        push %rbp\n        mov %rsp, %rbp\n"
#define LEAVE            "        pop %rbp\n        ret\n"

/* clang-format off */
__asm__("        .text\n"
        ".globl bare_edges_start, bare_open_start, bare_edges_end\n"
        "bare_edges_start:\n"
        EDGE("plain", ENTER
            "        mov %edi, %eax\n"
            LEAVE)
        /* The other encoding of the same mov. */
        EDGE("other_mov",
            "        push %rbp\n"
            "        .byte 0x48, 0x8b, 0xec\n"
            "        mov %edi, %eax\n"
            LEAVE)
        EDGE("endbr",
            "        endbr64\n"
            ENTER
            "        mov %edi, %eax\n"
            LEAVE)
        EDGE("leave", ENTER
            "        sub $32, %rsp\n"
            "        mov %edi, -8(%rbp)\n"
            "        mov -8(%rbp), %eax\n"
            "        leave\n"
            "        ret\n")
        EDGE("saved", ENTER
            "        push %rbx\n"
            "        push %r12\n"
            "        mov %edi, %ebx\n"
            "        mov %ebx, %eax\n"
            "        pop %r12\n"
            "        pop %rbx\n"
            LEAVE)
        EDGE("lea", ENTER
            "        push %rbx\n"
            "        sub $40, %rsp\n"
            "        mov %edi, %eax\n"
            "        lea -8(%rbp), %rsp\n"
            "        pop %rbx\n"
            LEAVE)
        EDGE("repz", ENTER
            "        mov %edi, %eax\n"
            "        pop %rbp\n"
            "        repz ret\n")
        EDGE("ret_n", ENTER
            "        mov %edi, %eax\n"
            "        pop %rbp\n"
            "        ret $0\n")
        /* Its first return is behind a pop in the middle of the code. */
        EDGE("two_ends", ENTER
            "        test $1, %dil\n"
            "        jz 1f\n"
            "        mov %edi, %eax\n"
            LEAVE
            "1:      lea 1(%rdi), %eax\n"
            LEAVE)
        EDGE("tail", ENTER
            "        pop %rbp\n"
            "bare_open_start:\n"
            "        jmp edge_frameless\n")
        EDGE("frameless",
            "        mov %edi, %eax\n"
            "        lea 1(%rax), %eax\n"
            "        ret\n")
        "bare_edges_end:\n");
/* clang-format on */

typedef unsigned edge_function(unsigned x);
edge_function edge_plain, edge_other_mov, edge_endbr, edge_leave, edge_saved, edge_lea, edge_repz, edge_ret_n,
    edge_two_ends, edge_tail, edge_frameless;

static const struct {
    edge_function *function;
    const char *name;
} edges[] = {
    {edge_plain, "plain"}, {edge_other_mov, "other_mov"}, {edge_endbr, "endbr"},
    {edge_leave, "leave"}, {edge_saved, "saved"},         {edge_lea, "lea"},
    {edge_repz, "repz"},   {edge_ret_n, "ret_n"},         {edge_two_ends, "two_ends"},
    {edge_tail, "tail"},   {edge_frameless, "frameless"},
};

const char *bare_name(uint64_t avma)
{
    const char *name = "elsewhere";
    if (avma >= (uintptr_t)__start_bare_outer_code && avma < (uintptr_t)__stop_bare_outer_code)
        return "bare_outer";
    if (avma >= (uintptr_t)__start_bare_middle_code && avma < (uintptr_t)__stop_bare_middle_code)
        return "bare_middle";
    if (avma < (uintptr_t)bare_edges_start || avma >= (uintptr_t)bare_edges_end)
        return name;
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        if (avma >= (uintptr_t)edges[i].function)
            name = edges[i].name;
    return name;
}

/* In sections of their own, whose limits the linker tells. */
__attribute__((noinline, section("bare_middle_code"))) static void bare_middle(const char *text)
{
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        edges[i].function(1);
        edges[i].function(2);
    }
    /* Called nowhere else, so that it is bound here. */
    l64a((long)text[0]);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline, section("bare_outer_code"))) void bare_outer(const char *text)
{
    bare_middle(text);
    __asm__ volatile("" ::: "memory");
}
