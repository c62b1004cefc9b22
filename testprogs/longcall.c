/*
 * longcall MS [SECONDS]: again and again spins for 30 ms in longcall_spin, and is for about MS ms in one system call
 * that no stop ends: it copies memory of its own that was never written. At most so long as max_ms in the ready line
 * says.
 */
#include "testprog.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* Together a little less than one call can copy. */
enum { PIECE_BYTES = 2 << 20, PIECES = 1023, SPIN_NS = 30000000 };

static char *from;
static char to[PIECE_BYTES];

EXACT void longcall_spin(void)
{
    for (uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + SPIN_NS; clock_ns(CLOCK_MONOTONIC) < end_ns;)
        ;
}

static double copy_ms(size_t pieces)
{
    static struct iovec ours[PIECES], theirs[PIECES];
    madvise(from, (size_t)PIECES * PIECE_BYTES, MADV_DONTNEED);
    for (size_t i = 0; i < pieces; i++) {
        ours[i] = (struct iovec){.iov_base = to, .iov_len = PIECE_BYTES};
        theirs[i] = (struct iovec){.iov_base = from + i * PIECE_BYTES, .iov_len = PIECE_BYTES};
    }
    uint64_t began_ns = clock_ns(CLOCK_MONOTONIC);
    if (process_vm_readv(getpid(), ours, pieces, theirs, pieces, 0) != (ssize_t)(pieces * PIECE_BYTES))
        fail("process_vm_readv");
    return (double)(clock_ns(CLOCK_MONOTONIC) - began_ns) / 1e6;
}

int main(int argc, char **argv)
{
    enum { TRIED = 16 };
    double ms = number_argument(argc, argv, 1, 500);
    stop_after(number_argument(argc, argv, 2, 60));
    from = mmap(NULL, (size_t)PIECES * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (from == MAP_FAILED || madvise(from, (size_t)PIECES * PIECE_BYTES, MADV_NOHUGEPAGE) != 0)
        fail("mmap");
    double piece_ms = copy_ms(TRIED) / TRIED;
    double pieces = ms / piece_ms < PIECES ? ms / piece_ms : PIECES;
    ready("max_ms=%.0f", piece_ms * PIECES);
    while (!stop) {
        longcall_spin();
        copy_ms(pieces > 1 ? (size_t)pieces : 1);
    }
    return 0;
}
