/*
 * Runs in the kernel: for each thread that the iterator is asked for, the registers with which it entered the kernel,
 * as struct bpf_registers_record (sampler/bpf/record.h). Which threads is the iterator's parameter.
 *
 * The structures are the kernel's; only the members that are used stand here, and where they lie is looked up in its
 * own type information (BTF) when the program is loaded.
 */
#include "record.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define KERNEL_STRUCT __attribute__((preserve_access_index))

struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
} KERNEL_STRUCT;

struct task_struct {
    int pid;
} KERNEL_STRUCT;

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
} KERNEL_STRUCT;

SEC("iter/task")
int tell_registers(struct bpf_iter__task *context)
{
    struct task_struct *task = context->task;
    struct bpf_registers_record record = {};
    if (!task)
        return 0; /* the end */
    const void *regs = (const void *)bpf_task_pt_regs(task);
    if (!regs || bpf_probe_read_kernel(record.words, sizeof(record.words), regs) < 0)
        return 0;
    record.tid = task->pid;
    bpf_seq_write(context->meta->seq, &record, sizeof(record));
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
