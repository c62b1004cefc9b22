#include "sampler/capture_arch.h"

#include <elf.h>
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

static int read_registers(pid_t tid, struct registers *ret)
{
    struct user_regs_struct regs;
    struct iovec buffer = {.iov_base = &regs, .iov_len = sizeof(regs)};
    if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &buffer) < 0)
        return -errno;
    /* A thread in 32-bit code has 17 registers of 4 bytes. */
    if (buffer.iov_len != sizeof(regs))
        return -ENOEXEC;
    *ret = (struct registers){
        .value =
            {
                [REGISTER_RAX] = regs.rax,
                [REGISTER_RDX] = regs.rdx,
                [REGISTER_RCX] = regs.rcx,
                [REGISTER_RBX] = regs.rbx,
                [REGISTER_RSI] = regs.rsi,
                [REGISTER_RDI] = regs.rdi,
                [REGISTER_RBP] = regs.rbp,
                [REGISTER_RSP] = regs.rsp,
                [REGISTER_R8] = regs.r8,
                [REGISTER_R9] = regs.r9,
                [REGISTER_R10] = regs.r10,
                [REGISTER_R11] = regs.r11,
                [REGISTER_R12] = regs.r12,
                [REGISTER_R13] = regs.r13,
                [REGISTER_R14] = regs.r14,
                [REGISTER_R15] = regs.r15,
                [REGISTER_PC] = regs.rip,
            },
        .known = (1U << REGISTER_COUNT) - 1,
    };
    return 0;
}

/* System V ABI, AMD64 supplement, 3.2.2: 128 bytes below the stack pointer belong to the function. */
const struct capture_arch capture_arch = {.read_registers = read_registers, .red_zone_bytes = 128};
