#include "sampler/stackcopy.h"

#include "common/clock.h"
#include "sampler/capture_arch.h"

#include <sys/uio.h>

/* A piece takes 10 to 50 us: so long may a copy go on behind its time. */
enum { PAGE_BYTES = 4096, PIECE_BYTES = 128 << 10 };

/* Reads [start, end) as far as it is there: what lies behind a hole is not the stack. */
static size_t read_memory(pid_t pid, uint64_t start, uint64_t end, uint8_t *buffer)
{
    struct iovec local = {.iov_base = buffer, .iov_len = end - start};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)start, .iov_len = end - start};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Reads on, to `end` or until it is time. */
static size_t read_pieces(pid_t tid, uint64_t start, uint64_t end, uint64_t until_ns, uint8_t *buffer, bool *ret_cut)
{
    size_t got = 0;
    for (;;) {
        uint64_t piece = end - start - got < PIECE_BYTES ? end - start - got : PIECE_BYTES;
        size_t more = read_memory(tid, start + got, start + got + piece, buffer + got);
        got += more;
        if (more < piece || got == end - start)
            return got;
        if (clock_now_ns() >= until_ns) {
            *ret_cut = true;
            return got;
        }
    }
}

size_t stackcopy_read_until(pid_t tid, uint64_t sp, uint64_t limit_avma, uint64_t until_ns, uint8_t *buffer,
                            size_t size, uint64_t *ret_start, bool *ret_cut)
{
    bool is_cut = false;
    uint64_t start = sp - capture_arch.red_zone_bytes;
    if (sp < capture_arch.red_zone_bytes)
        start = sp;
    uint64_t end = start + size;
    if (end < start)
        end = UINT64_MAX;
    if (limit_avma && end > limit_avma)
        end = limit_avma;
    size_t got = read_pieces(tid, start, end, until_ns, buffer, &is_cut);
    if (got == 0 && start / PAGE_BYTES != sp / PAGE_BYTES) {
        start = sp;
        got = read_pieces(tid, start, end, until_ns, buffer, &is_cut);
    }
    while (got < end - start && !is_cut) {
        uint64_t at = start + got;
        uint64_t page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        size_t more = read_memory(tid, at, page_end < end ? page_end : end, buffer + got);
        if (more == 0)
            break;
        got += more;
    }
    *ret_start = start;
    *ret_cut = is_cut;
    return got;
}

size_t stackcopy_read(pid_t tid, uint64_t sp, uint64_t limit_avma, uint8_t *buffer, size_t size, uint64_t *ret_start)
{
    bool is_cut;
    return stackcopy_read_until(tid, sp, limit_avma, UINT64_MAX, buffer, size, ret_start, &is_cut);
}
