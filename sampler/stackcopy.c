#include "sampler/stackcopy.h"

#include "sampler/capture_arch.h"

#include <sys/uio.h>

enum { PAGE_BYTES = 4096 };

/* Reads [start, end) as far as it is there: what lies behind a hole is not the stack. */
static size_t read_memory(pid_t pid, uint64_t start, uint64_t end, uint8_t *buffer)
{
    struct iovec local = {.iov_base = buffer, .iov_len = end - start};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)start, .iov_len = end - start};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

size_t stackcopy_read(pid_t tid, uint64_t sp, uint64_t limit_avma, uint8_t *buffer, size_t size, uint64_t *ret_start)
{
    uint64_t start = sp - capture_arch.red_zone_bytes;
    if (sp < capture_arch.red_zone_bytes)
        start = sp;
    uint64_t end = start + size;
    if (end < start)
        end = UINT64_MAX;
    if (limit_avma && end > limit_avma)
        end = limit_avma;
    size_t got = read_memory(tid, start, end, buffer);
    if (got == 0 && start / PAGE_BYTES != sp / PAGE_BYTES) {
        start = sp;
        got = read_memory(tid, start, end, buffer);
    }
    while (got < end - start) {
        uint64_t at = start + got;
        uint64_t page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        size_t more = read_memory(tid, at, page_end < end ? page_end : end, buffer + got);
        if (more == 0)
            break;
        got += more;
    }
    *ret_start = start;
    return got;
}
