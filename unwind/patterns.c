#include "unwind/patterns.h"

#include <string.h>

/* Length of the FF /2 that starts with these ModRM and SIB bytes. */
static size_t indirect_call_bytes(uint8_t modrm, uint8_t sib)
{
    unsigned mod = modrm >> 6;
    unsigned rm = modrm & 7U;
    if (mod == 3)
        return 2;
    bool has_sib = rm == 4;
    size_t displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    /* mod 0: rm 5 is rip-relative, a SIB with base 5 has no base; both with 32 bits of displacement. */
    if (mod == 0 && (rm == 5 || (has_sib && (sib & 7U) == 5)))
        displacement = 4;
    return 2 + (size_t)has_sib + displacement;
}

bool patterns_end_with_call(const uint8_t *bytes, size_t size)
{
    if (size >= 5 && bytes[size - 5] == 0xe8)
        return true;
    size_t longest = size < PATTERNS_CALL_BYTES ? size : PATTERNS_CALL_BYTES;
    for (size_t length = 2; length <= longest; length++) {
        const uint8_t *call = bytes + size - length;
        if (call[0] != 0xff || (call[1] >> 3 & 7) != 2)
            continue;
        uint8_t sib = length > 2 ? call[2] : 0;
        if (indirect_call_bytes(call[1], sib) == length)
            return true;
    }
    return false;
}

static bool starts_with(const uint8_t *bytes, const void *pattern, size_t size)
{
    return memcmp(bytes, pattern, size) == 0;
}

enum { PUSH_RBP = 0x55, POP_RBP = 0x5d, RET = 0xc3, RET_N = 0xc2, PUSH_IMM32 = 0x68, JMP_REL32 = 0xe9 };
static const uint8_t ENDBR64[] = {0xf3, 0x0f, 0x1e, 0xfa};
static const uint8_t MOV_RSP_RBP[] = {0x48, 0x89, 0xe5};
static const uint8_t MOV_RSP_RBP_OTHER[] = {0x48, 0x8b, 0xec};
static const uint8_t JMP_SLOT[] = {0xff, 0x25};
static const uint8_t PUSH_SLOT[] = {0xff, 0x35};

static bool is_ret(const uint8_t *pc)
{
    return pc[0] == RET || pc[0] == RET_N || (pc[0] == 0xf3 && pc[1] == RET);
}

/* mov %eax,-n(%rsp), before the frame is made. */
static bool is_stack_bang(const uint8_t *pc)
{
    static const uint8_t mov[] = {0x89, 0x84, 0x24};
    enum { MOV_BYTES = 7 };
    return starts_with(pc, mov, sizeof(mov)) && pc[MOV_BYTES] == PUSH_RBP;
}

/* ja; ret, with or without the cmp n(%r15),%rsp before it. */
static bool is_poll_and_ret(const uint8_t *pc)
{
    static const uint8_t cmp[] = {0x49, 0x3b, 0xa7};
    static const uint8_t ja[] = {0x0f, 0x87};
    enum { CMP_BYTES = 7, JA_BYTES = 6 };
    if (starts_with(pc, cmp, sizeof(cmp)))
        pc += CMP_BYTES;
    return starts_with(pc, ja, sizeof(ja)) && pc[JA_BYTES] == RET;
}

/* jmp *slot(%rip), with or without the prefix that stands for BND or NOTRACK. */
static bool is_jmp_slot(const uint8_t *pc)
{
    return starts_with(pc, JMP_SLOT, sizeof(JMP_SLOT)) ||
           (pc[0] == 0xf2 && starts_with(pc + 1, JMP_SLOT, sizeof(JMP_SLOT)));
}

/* The entries of a procedure linkage table, as ld writes them without unwind information of their own (lld, and -z
 * nodlopen variants). */
static bool find_plt(const uint8_t *pc, struct inspection *ret)
{
    enum { PUSH_BYTES = 6, PUSH_IMM32_BYTES = 5 };
    if (starts_with(pc, PUSH_SLOT, sizeof(PUSH_SLOT)) && is_jmp_slot(pc + PUSH_BYTES))
        *ret = (struct inspection){.return_words = 1}; /* PLT0: the index was pushed */
    else if (is_jmp_slot(pc) && starts_with(pc - PUSH_BYTES, PUSH_SLOT, sizeof(PUSH_SLOT)))
        *ret = (struct inspection){.return_words = 2}; /* and the link map */
    else if (is_jmp_slot(pc) || (starts_with(pc, ENDBR64, sizeof(ENDBR64)) && is_jmp_slot(pc + sizeof(ENDBR64))))
        *ret = (struct inspection){.return_words = 0};
    else if (pc[0] == PUSH_IMM32 && pc[PUSH_IMM32_BYTES] == JMP_REL32)
        *ret = (struct inspection){.return_words = 0};
    else if (pc[0] == JMP_REL32 && pc[-PUSH_IMM32_BYTES] == PUSH_IMM32)
        *ret = (struct inspection){.return_words = 1};
    else
        return false;
    return true;
}

bool patterns_find_return(const uint8_t window[PATTERNS_WINDOW], struct inspection *ret)
{
    const uint8_t *pc = window + PATTERNS_BEFORE;
    bool is_entry =
        pc[0] == PUSH_RBP || is_stack_bang(pc) || (starts_with(pc, ENDBR64, sizeof(ENDBR64)) && pc[4] == PUSH_RBP);
    bool is_pushed = pc[-1] == PUSH_RBP && (starts_with(pc, MOV_RSP_RBP, sizeof(MOV_RSP_RBP)) ||
                                            starts_with(pc, MOV_RSP_RBP_OTHER, sizeof(MOV_RSP_RBP_OTHER)));
    if (is_ret(pc) || is_poll_and_ret(pc) || is_entry)
        *ret = (struct inspection){.return_words = 0};
    else if (is_pushed)
        *ret = (struct inspection){.return_words = 1};
    else if (pc[0] == POP_RBP && (is_ret(pc + 1) || is_poll_and_ret(pc + 1)))
        *ret = (struct inspection){.return_words = 1, .rbp_at_sp = true};
    else
        return find_plt(pc, ret);
    return true;
}

bool patterns_are_sigreturn(const uint8_t window[PATTERNS_WINDOW])
{
    /* mov $15,%rax; syscall, and mov $15,%eax; syscall */
    static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
    static const uint8_t narrow[] = {0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
    enum { SYSCALL_BYTES = 2 };
    const uint8_t *pc = window + PATTERNS_BEFORE;
    const uint8_t *end = pc + SYSCALL_BYTES; /* when the pc is at the system call */
    return starts_with(pc, wide, sizeof(wide)) || starts_with(pc, narrow, sizeof(narrow)) ||
           starts_with(end - sizeof(wide), wide, sizeof(wide)) ||
           starts_with(end - sizeof(narrow), narrow, sizeof(narrow));
}
