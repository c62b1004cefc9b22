#include "sampler/stackcopy.h"

#include "common/clock.h"
#include "sampler/capture_arch.h"

#include <sys/uio.h>
#include <unistd.h>

/* A walk may look a little further than it had to before. */
enum { TOP_SLACK_BYTES = 1 << 10 };

/* A piece takes 10 to 50 us: so long may a copy go on behind its time. */
enum { PAGE_BYTES = 4096, PIECE_BYTES = 128 << 10 };

/* Above that, process_vm_readv is faster: it need not copy twice. */
enum { SMALL_BYTES = 32 << 10 };

static uint64_t read_vm(pid_t pid, uint64_t start, uint64_t end, uint8_t *buffer)
{
    struct iovec local = {.iov_base = buffer, .iov_len = end - start};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)start, .iov_len = end - start};
    ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Reads [start, end) as far as it is there: what lies behind a hole is not the stack. */
static size_t read_memory(struct stackcopy *copy, uint64_t start, uint64_t end, uint8_t *buffer)
{
    if (!copy->has_end || copy->mem_fd < 0 || end - start > SMALL_BYTES || end == start || start > INT64_MAX)
        return read_vm(copy->tid, start, end, buffer);
    ssize_t got = pread(copy->mem_fd, buffer, end - start, (off_t)start);
    copy->has_memory |= got > 0;
    copy->memory_gone |= got == 0; /* where nothing is mapped it is EIO */
    return got > 0 ? (size_t)got : 0;
}

/* Reads on, to `end` or until it is time. */
static size_t read_pieces(struct stackcopy *copy, uint64_t start, uint64_t end, uint8_t *buffer)
{
    size_t got = 0;
    for (;;) {
        uint64_t piece = end - start - got < PIECE_BYTES ? end - start - got : PIECE_BYTES;
        size_t more = read_memory(copy, start + got, start + got + piece, buffer + got);
        got += more;
        if (more < piece || got == end - start)
            return got;
        if (clock_now_ns() >= copy->until_ns) {
            copy->is_cut = true;
            return got;
        }
    }
}

uint64_t stackcopy_end(uint64_t sp, uint64_t top_avma, uint64_t end_avma)
{
    return sp < top_avma && top_avma < end_avma && end_avma - top_avma > TOP_SLACK_BYTES ? top_avma + TOP_SLACK_BYTES
                                                                                         : end_avma;
}

size_t stackcopy_read(struct stackcopy *copy, uint64_t sp, uint64_t limit_avma, uint8_t *buffer, size_t size,
                      uint64_t *ret_start)
{
    copy->has_end = limit_avma != 0;
    copy->is_cut = false;
    copy->has_memory = false;
    copy->memory_gone = false;
    uint64_t start = sp - capture_arch.red_zone_bytes;
    if (sp < capture_arch.red_zone_bytes)
        start = sp;
    uint64_t end = start + size;
    if (end < start)
        end = UINT64_MAX;
    if (limit_avma && end > limit_avma)
        end = limit_avma;
    size_t got = read_pieces(copy, start, end, buffer);
    if (got == 0 && start / PAGE_BYTES != sp / PAGE_BYTES) {
        start = sp;
        got = read_pieces(copy, start, end, buffer);
    }
    while (got < end - start && !copy->is_cut) {
        uint64_t at = start + got;
        uint64_t page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        size_t more = read_memory(copy, at, page_end < end ? page_end : end, buffer + got);
        if (more == 0)
            break;
        got += more;
    }
    *ret_start = start;
    return got;
}
