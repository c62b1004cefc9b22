/* What depends on the processor in taking a snapshot: a table, one per architecture, chosen when the program is built.
 */
#ifndef SAMPLER_CAPTURE_ARCH_H
#define SAMPLER_CAPTURE_ARCH_H

#include "unwind/snapshot.h"

#include <stdbool.h>
#include <sys/types.h>

/* The result of a system call that the kernel goes on with by restart_syscall(2) (its include/linux/errno.h). */
enum { ERESTART_RESTARTBLOCK = 516 };

struct capture_arch {
    /*
     * Registers of a thread in ptrace-stop of the calling thread. Returns 0, -ESRCH (it was killed), or -ENOEXEC when
     * it runs code of another word size (the kernel then returns a smaller register set). Two system calls at most, no
     * allocation. *ret_in_wait: the stop has interrupted a system call, as it does those that wait for something.
     */
    int (*read_registers)(pid_t tid, struct registers *ret, bool *ret_in_wait);

    /*
     * Those with which a thread entered the kernel, as the kernel itself keeps them (struct pt_regs); rax is not known.
     * false: it runs code of another word size.
     */
    bool (*registers_at_entry)(const unsigned long long *words, struct registers *ret);
    /*
     * Looks through a stack's copy for the frame that the kernel makes for a signal handler on a stack of its own, and
     * says where in it the interrupted code's stack pointer is, which leads to another stack, and where the handler's
     * stack ends. true: found. Signals inside the handler of another are passed over. Looks at the lowest 64 KB; some
     * microseconds.
     */
    bool (*find_interrupted)(const uint8_t *bytes, size_t size, uint64_t avma, uint64_t *ret_sp_at_avma,
                             uint64_t *ret_stack_end_avma);
    /*
     * For a thread in ptrace-stop in which no signal is delivered: if its system call is one that the kernel ends with
     * EINTR because of that stop, though no handler runs (signal(7), "Interruption of system calls ... by stop
     * signals", and the calls that depend on a socket's or object's own timeout), makes the kernel start it again. If
     * a handler runs after all, the call returns EINTR as it should. A finite timeout starts over; *ret_is_endless: it
     * surely has none; *ret_may_lose_timeout: as below.
     * So too if the kernel would have the thread make restart_syscall(2), for the rest of its timeout, and the thread
     * has a seccomp filter: that one may forbid the call, and kill for it. true: done. Three system calls at most, and
     * three more in that case.
     */
    bool (*restart_call)(pid_t tid, bool *ret_is_endless, bool *ret_may_lose_timeout);
    /*
     * May a system call of this number, woken because its time is over, answer a signal that comes before it returns
     * with EINTR? Then a stop at that moment has it start over, with its whole timeout.
     */
    bool (*may_lose_timeout)(int64_t call);
    /* How far below the stack pointer a function may keep data (the red zone). */
    uint64_t red_zone_bytes;
};

extern const struct capture_arch capture_arch;

#endif
