/*
 * Runs in the kernel, when asked. One program looks at threads by their numbers, all of a batch at once; of those that
 * are on no CPU it also tells the registers with which they entered the kernel, and copies the stack. The other one
 * does that on a CPU, in an interrupt, for the thread which that has interrupted.
 *
 * The structures are the kernel's; only the members that are used stand here, and where they lie is looked up in its
 * own type information (BTF) when the program is loaded.
 */
#include "look.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

enum { PAGE_BYTES = 4096, TASK_RUNNING = 0 };

#define KERNEL_STRUCT __attribute__((preserve_access_index))

struct sched_info {
    unsigned long pcount;
    unsigned long long run_delay;
} KERNEL_STRUCT;

struct sched_entity {
    __u64 sum_exec_runtime;
} KERNEL_STRUCT;

struct mm_struct {
    unsigned long start_code, end_code, start_stack;
} KERNEL_STRUCT;

struct signal_struct {
    int nr_threads;
} KERNEL_STRUCT;

struct thread_info {
    __u32 cpu;
} KERNEL_STRUCT;

struct task_struct {
    struct thread_info thread_info;
    int pid;
    unsigned int __state;
    unsigned int flags;
    int on_cpu;
    struct sched_entity se;
    struct sched_info sched_info;
    struct mm_struct *mm;
    struct signal_struct *signal;
    int exit_state;
    __u64 start_boottime;
    char comm[BPF_LOOK_COMM_BYTES];
} KERNEL_STRUCT;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, BPF_LOOK_SLOTS);
    __type(key, __u32);
    __type(value, struct bpf_look);
} looks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, BPF_LOOK_SLOTS);
    __type(key, __u32);
    __type(value, struct bpf_look_stack);
} stacks SEC(".maps");

/* The second knows numbers of the first pid namespace only (Linux 6.2; the first one: 6.14). */
extern struct task_struct *bpf_task_from_vpid(int vpid) __ksym __weak;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym;

static __always_inline int is_as_before(const struct bpf_look *look, const struct task_struct *task)
{
    /* A turn on a CPU is counted before it begins. */
    return !task->on_cpu && task->sched_info.pcount == look->slices && task->se.sum_exec_runtime == look->run_ns;
}

/* Of the task; 0: of the one that this CPU runs, only what is in memory, since an interrupt cannot wait for more. */
static __always_inline long copy_user(void *to, __u64 size, __u64 from, struct task_struct *task)
{
    return task ? bpf_copy_from_user_task(to, size, (const void *)from, task, 0)
                : bpf_probe_read_user(to, size, (const void *)from);
}

/* What there is from `start` on, page by page: where the stack ends is not known. */
static __always_inline void copy_pages(struct bpf_look *look, struct bpf_look_stack *stack, struct task_struct *task,
                                       __u64 start)
{
    __u64 first = PAGE_BYTES - start % PAGE_BYTES;
    if (copy_user(stack->bytes, first, start, task) < 0)
        return;
    __u64 copied = first;
    for (int i = 0; i < BPF_LOOK_STACK_BYTES / PAGE_BYTES; i++) {
        if (copied > BPF_LOOK_STACK_BYTES - PAGE_BYTES || copied >= look->stack_bytes)
            break;
        if (copy_user(stack->bytes + copied, PAGE_BYTES, start + copied, task) < 0)
            break;
        copied += PAGE_BYTES;
    }
    look->copied_avma = start;
    look->copied_bytes = copied;
}

static __always_inline void copy_stack(__u32 index, struct bpf_look *look, struct task_struct *task)
{
    struct bpf_look_stack *stack = bpf_map_lookup_elem(&stacks, &index);
    __u64 sp = look->words[BPF_REGISTERS_SP];
    __u64 end = look->stack_end_avma;
    if (!stack || (sp <= look->handler_avma && look->handler_avma - sp < BPF_LOOK_HANDLER_BYTES))
        return;
    if (sp < look->stack_start_avma || sp >= end) {
        copy_pages(look, stack, task, sp > look->red_zone_bytes ? sp - look->red_zone_bytes : sp);
        return;
    }
    if (sp < look->stack_top_avma && look->stack_limit_avma < end)
        end = look->stack_limit_avma;
    __u64 start =
        sp - look->stack_start_avma > look->red_zone_bytes ? sp - look->red_zone_bytes : look->stack_start_avma;
    __u64 size = end - start;
    if (size > look->stack_bytes)
        size = look->stack_bytes;
    if (size > sizeof(stack->bytes) || size == 0)
        return;
    if (copy_user(stack->bytes, size, start, task) < 0)
        return;
    look->copied_avma = start;
    look->copied_bytes = size;
}

static __always_inline void tell_registers(__u32 index, struct bpf_look *look, struct task_struct *task)
{
    const void *regs = (const void *)bpf_task_pt_regs(task);
    if (!regs || bpf_probe_read_kernel(look->words, sizeof(look->words), regs) < 0 || !is_as_before(look, task))
        return;
    copy_stack(index, look, task);
    look->has_registers = is_as_before(look, task);
}

static __always_inline void tell(struct bpf_look *look, struct task_struct *task)
{
    look->slices = task->sched_info.pcount;
    look->run_ns = task->se.sum_exec_runtime;
    look->wait_ns = task->sched_info.run_delay;
    look->is_on_cpu = task->on_cpu != 0;
    look->state = task->__state;
    look->exit_state = task->exit_state;
    look->flags = task->flags;
    look->processor = task->thread_info.cpu;
    look->first_tid = (unsigned int)task->pid;
    look->began_ns = task->start_boottime;
    struct signal_struct *process = task->signal;
    look->threads = process ? (unsigned int)process->nr_threads : 0;
    struct mm_struct *mm = task->mm;
    look->code_start_avma = mm ? mm->start_code : 0;
    look->code_end_avma = mm ? mm->end_code : 0;
    look->first_stack_avma = mm ? mm->start_stack : 0;
    look->is_there = bpf_probe_read_kernel(look->comm, sizeof(look->comm), task->comm) == 0;
}

static __always_inline int wants_registers(const struct bpf_look *look, unsigned int wants)
{
    switch (wants) {
    case BPF_LOOK_REGISTERS:
        return 1;
    case BPF_LOOK_REGISTERS_IF_MOVED:
        return look->run_ns != look->known_run_ns || look->slices != look->known_slices;
    case BPF_LOOK_REGISTERS_IF_RUNNABLE:
        return look->state == TASK_RUNNING;
    default:
        return 0;
    }
}

static __always_inline void look_at(__u32 index, struct bpf_look *look, unsigned int wants, struct task_struct *task)
{
    tell(look, task);
    if (!look->is_on_cpu && task->mm && wants_registers(look, wants))
        tell_registers(index, look, task);
}

static __always_inline struct bpf_look *begin(__u32 index, unsigned int *ret_wants)
{
    struct bpf_look *look = bpf_map_lookup_elem(&looks, &index);
    if (!look || look->wants == BPF_LOOK_NOTHING)
        return 0;
    *ret_wants = look->wants;
    look->wants = BPF_LOOK_NOTHING;
    look->is_there = 0;
    look->has_registers = 0;
    look->copied_bytes = 0;
    return look;
}

static long look_in_namespace(__u32 index, void *context)
{
    unsigned int wants = 0;
    struct bpf_look *look = begin(index, &wants);
    struct task_struct *task = look ? bpf_task_from_vpid((int)look->tid) : 0;
    if (!task)
        return 0;
    look_at(index, look, wants, task);
    bpf_task_release(task);
    return 0;
}

static long look_in_first_namespace(__u32 index, void *context)
{
    unsigned int wants = 0;
    struct bpf_look *look = begin(index, &wants);
    struct task_struct *task = look ? bpf_task_from_pid((int)look->tid) : 0;
    if (!task)
        return 0;
    look_at(index, look, wants, task);
    bpf_task_release(task);
    return 0;
}

SEC("syscall")
int look_by_vpid(struct bpf_look_request *request)
{
    bpf_loop(request->count, look_in_namespace, 0, 0);
    return 0;
}

SEC("syscall")
int look_by_pid(struct bpf_look_request *request)
{
    bpf_loop(request->count, look_in_first_namespace, 0, 0);
    return 0;
}

/* Not a tracepoint: the kind of program that may be run on a CPU of one's choice. */
SEC("raw_tp")
int read_running(struct bpf_raw_tracepoint_args *arguments)
{
    __u32 slot = (__u32)arguments->args[0];
    unsigned int wants = 0;
    struct bpf_look *look = begin(slot, &wants);
    if (!look)
        return 0;
    look->began_reading_ns = bpf_ktime_get_ns();
    struct task_struct *task = bpf_get_current_task_btf();
    const void *regs = (const void *)bpf_task_pt_regs(task);
    if ((unsigned int)task->pid != look->tid || !task->mm || !regs)
        return 0;
    tell(look, task);
    if (bpf_probe_read_kernel(look->words, sizeof(look->words), regs) < 0)
        return 0;
    copy_stack(slot, look, (struct task_struct *)0);
    look->has_registers = 1;
    look->ended_reading_ns = bpf_ktime_get_ns();
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
