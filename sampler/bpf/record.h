/* What the BPF program tells of a thread. Both sides include this, so it includes nothing that needs a C library. */
#ifndef SAMPLER_BPF_RECORD_H
#define SAMPLER_BPF_RECORD_H

/* struct pt_regs of x86-64 (arch/x86/include/uapi/asm/ptrace.h), which is also how struct user_regs_struct begins. */
enum { BPF_REGISTERS_WORDS = 21, BPF_REGISTERS_CALL = 15, BPF_REGISTERS_SP = 19 };

struct bpf_registers_record {
    unsigned long long tid;
    unsigned long long words[BPF_REGISTERS_WORDS];
};

#endif
