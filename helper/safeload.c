#include "helper/safeload.h"

#include "helper/disposition.h"
#include "helper/rawcall.h"

#include <stdatomic.h>
#include <sys/uio.h>

enum { PAGE_BYTES = 4096, PAGES_AT_ONCE = 16 };

/* safeload_x86_64.S */
bool safeload_load(uint64_t avma, uint64_t *ret_value);
size_t safeload_copy(void *buffer, uint64_t avma, size_t size);
extern const char safeload_load_at[] __attribute__((visibility("hidden")));
extern const char safeload_load_failed[] __attribute__((visibility("hidden")));
extern const char safeload_copy_at[] __attribute__((visibility("hidden")));
extern const char safeload_copy_failed[] __attribute__((visibility("hidden")));

static atomic_uint_least64_t faults;

/* Somebody's kill(2) may come at any instruction, and so may news of broken memory that nobody has touched: neither
 * says anything about ours. */
static bool is_fault(int signal, const siginfo_t *info)
{
    return info->si_code > 0 && !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

static bool take_fault(int signal, siginfo_t *info, ucontext_t *context)
{
    uint64_t pc_avma = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    uint64_t next_avma;
    if (pc_avma == (uint64_t)safeload_load_at)
        next_avma = (uint64_t)safeload_load_failed;
    else if (pc_avma == (uint64_t)safeload_copy_at)
        next_avma = (uint64_t)safeload_copy_failed;
    else
        return false;
    if (!is_fault(signal, info))
        return false;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)next_avma;
    atomic_fetch_add_explicit(&faults, 1, memory_order_relaxed);
    return true;
}

int safeload_own(void)
{
    int error = disposition_own(SIGSEGV, take_fault, 0);
    if (error)
        return error;
    error = disposition_own(SIGBUS, take_fault, 0);
    if (error)
        disposition_disown(SIGSEGV);
    return error;
}

void safeload_disown(void)
{
    disposition_disown(SIGSEGV);
    disposition_disown(SIGBUS);
}

bool safeload_may_use_instruction(const ucontext_t *context, bool may_call)
{
    const uint64_t both = kernel_mask_of(SIGSEGV) | kernel_mask_of(SIGBUS);
    uint64_t blocked;
    __builtin_memcpy(&blocked, &context->uc_sigmask, sizeof blocked);
    if (blocked & both)
        return false;
    if (!may_call)
        return disposition_seems_ours(SIGSEGV) && disposition_seems_ours(SIGBUS) && !disposition_may_block(SIGSEGV) &&
               !disposition_may_block(SIGBUS);
    /* What is blocked now: the handler that asks has a mask of its own. */
    if (rawcall4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&blocked, sizeof blocked) != 0 || blocked & both)
        return false;
    return disposition_is_ours(SIGSEGV) && disposition_is_ours(SIGBUS);
}

/* Some pages by one call, each a part of its own, since the kernel promises to stop at the border of a part. */
static size_t copy_pages(long pid, void *buffer, uint64_t avma, size_t size)
{
    struct iovec parts[PAGES_AT_ONCE];
    unsigned long count = 0;
    size_t asked = 0;
    while (asked < size && count < PAGES_AT_ONCE) {
        size_t bytes = PAGE_BYTES - (avma + asked) % PAGE_BYTES;
        if (bytes > size - asked)
            bytes = size - asked;
        parts[count++] = (struct iovec){(void *)(uintptr_t)(avma + asked), bytes};
        asked += bytes;
    }
    struct iovec whole = {buffer, asked};
    long got = rawcall6(SYS_process_vm_readv, pid, (long)&whole, 1, (long)parts, (long)count, 0);
    return got < 0 ? 0 : (size_t)got;
}

static size_t copy_by_call(void *buffer, uint64_t avma, size_t size)
{
    /* Asked each time: a child that was forked has another. */
    long pid = rawcall3(SYS_getpid, 0, 0, 0);
    size_t done = 0;
    while (done < size) {
        size_t most = PAGES_AT_ONCE * PAGE_BYTES - (avma + done) % PAGE_BYTES;
        size_t wanted = size - done < most ? size - done : most;
        size_t got = copy_pages(pid, (char *)buffer + done, avma + done, wanted);
        done += got;
        if (got < wanted)
            break;
    }
    return done;
}

size_t safe_copy(enum safeload_way way, void *buffer, uint64_t avma, size_t size)
{
    if (size > UINT64_MAX - avma)
        size = UINT64_MAX - avma;
    if (way == SAFELOAD_INSTRUCTION)
        return size - safeload_copy(buffer, avma, size);
    return copy_by_call(buffer, avma, size);
}

bool safe_load(enum safeload_way way, uint64_t avma, uint64_t *ret_value)
{
    if (way == SAFELOAD_INSTRUCTION)
        return safeload_load(avma, ret_value);
    uint64_t value;
    if (safe_copy(SAFELOAD_CALL, &value, avma, sizeof value) != sizeof value)
        return false;
    *ret_value = value;
    return true;
}

uint64_t safeload_faults(void)
{
    return atomic_load_explicit(&faults, memory_order_relaxed);
}
