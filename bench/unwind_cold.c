#include "common/clock.h"
#include "symbolize/image.h"
#include "unwind_bench.h"

#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 9, PLACES = 1000 };

/* Where the library is said to be mapped. */
#define BIAS_AVMA  UINT64_C(0x7f0000000000)
#define STACK_AVMA UINT64_C(0x7ffd00001000)

struct library {
    const char *path;
    size_t functions;
    size_t stride;
    uint64_t text_svma;
};

/* Behind the push, so that a saved register and the return address are on the stack. */
static uint64_t place_svma(const struct library *library, size_t n)
{
    enum { BEHIND_PUSH = 9 };
    size_t function = n * UINT64_C(7919) % library->functions;
    return library->text_svma + function * library->stride + BEHIND_PUSH;
}

/* ---- ours ---- */

struct ours {
    struct image *image;
    struct code_region region;
    struct codemap map;
    struct unwinder *unwinder;
    struct unwind_space *space;
    struct stack stack;
};

static int ours_open(const struct library *library, struct ours *ret_ours)
{
    int fd = open(library->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct ours ours = {0};
    int error = image_open(fd, library->path, &ours.image);
    if (error)
        return error;
    struct image_section text;
    if (!image_find_section(ours.image, ".text", &text)) {
        image_free(ours.image);
        return -ENOEXEC;
    }
    ours.region = (struct code_region){.start_avma = BIAS_AVMA + text.svma,
                                       .end_avma = BIAS_AVMA + text.svma + text.bytes,
                                       .map_off = text.off,
                                       .bias = BIAS_AVMA,
                                       .image = ours.image,
                                       .has_bias = true};
    *ret_ours = ours;
    return 0;
}

/* From the first sight of its code. */
static int ours_start(struct ours *ours)
{
    ours->map = (struct codemap){.generation = 1, .regions = &ours->region, .count = 1};
    ours->unwinder = unwinder_new(UNWIND_AUTO, 64);
    ours->space = ours->unwinder ? unwind_space_new(ours->unwinder) : NULL;
    return ours->space ? 0 : -ENOMEM;
}

/* From a place in one function to its caller, which has none. */
static int ours_walk(struct ours *ours, uint64_t svma, uint64_t caller_svma)
{
    const uint64_t words[] = {1, caller_svma + BIAS_AVMA, 2, 0};
    struct snapshot snapshot = {
        .registers = {.known = 1U << REGISTER_PC | 1U << REGISTER_RSP | 1U << REGISTER_RBX},
        .stack_start_avma = STACK_AVMA,
        .stack_end_avma = STACK_AVMA + sizeof(words),
        .ranges = {{.avma = STACK_AVMA, .bytes = (const uint8_t *)words, .size = sizeof(words)}},
        .range_count = 1,
    };
    snapshot.registers.value[REGISTER_PC] = svma + BIAS_AVMA;
    snapshot.registers.value[REGISTER_RSP] = STACK_AVMA;
    int error = unwind_walk(ours->unwinder, ours->space, &ours->map, &snapshot, NULL, &ours->stack);
    if (error)
        return error;
    bool good = ours->stack.count == 2 && ours->stack.end == STACK_COMPLETE &&
                ours->stack.frames[1].avma == caller_svma + BIAS_AVMA;
    return good ? 0 : -EPROTO;
}

static void ours_close(struct ours *ours)
{
    stack_deinit(&ours->stack);
    if (ours->unwinder) {
        unwind_space_free(ours->space);
        unwinder_free(ours->unwinder);
    }
    image_free(ours->image);
}

static double us_since(uint64_t start_ns)
{
    return (double)(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / 1000.0;
}

static int time_ours(const struct library *library, size_t round, double *ret_open_us, double *ret_first_us)
{
    struct ours ours = {0};
    uint64_t start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    int error = ours_open(library, &ours);
    if (error)
        return error;
    *ret_open_us = us_since(start_ns);
    start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    error = ours_start(&ours);
    if (!error)
        error = ours_walk(&ours, place_svma(library, 17 * round + 1), place_svma(library, 17 * round + 2));
    *ret_first_us = us_since(start_ns);
    ours_close(&ours);
    return error;
}

/* ---- libdw ---- */

struct theirs {
    int fd;
    Elf *elf;
    Dwarf_CFI *cfi;
};

static int theirs_open(const struct library *library, struct theirs *ret_theirs)
{
    elf_version(EV_CURRENT);
    struct theirs theirs = {.fd = open(library->path, O_RDONLY | O_CLOEXEC)};
    if (theirs.fd < 0)
        return -errno;
    theirs.elf = elf_begin(theirs.fd, ELF_C_READ_MMAP, NULL);
    theirs.cfi = theirs.elf ? dwarf_getcfi_elf(theirs.elf) : NULL;
    if (!theirs.cfi)
        return -ENOEXEC;
    *ret_theirs = theirs;
    return 0;
}

static int theirs_find(struct theirs *theirs, uint64_t svma)
{
    Dwarf_Frame *frame;
    if (dwarf_cfi_addrframe(theirs->cfi, svma, &frame) != 0)
        return -EPROTO;
    free(frame);
    return 0;
}

static void theirs_close(struct theirs *theirs)
{
    dwarf_cfi_end(theirs->cfi);
    elf_end(theirs->elf);
    close(theirs->fd);
}

static int time_theirs(const struct library *library, size_t round, double *ret_us)
{
    struct theirs theirs = {0};
    uint64_t start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    int error = theirs_open(library, &theirs);
    if (error)
        return error;
    error = theirs_find(&theirs, place_svma(library, 17 * round + 1));
    *ret_us = us_since(start_ns);
    theirs_close(&theirs);
    return error;
}

/* ---- memory ---- */

static uint64_t resident_bytes(void)
{
    char text[128];
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fgets(text, sizeof(text), file))
        sscanf(text, "%*u %" SCNu64, &pages);
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t malloc_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int fill_ours(const struct library *library)
{
    struct ours ours = {0};
    int error = ours_open(library, &ours);
    if (!error)
        error = ours_start(&ours);
    for (size_t n = 0; n < PLACES && !error; n++)
        error = ours_walk(&ours, place_svma(library, n), place_svma(library, n + 1));
    return error; /* kept: it is measured now */
}

static int fill_theirs(const struct library *library)
{
    struct theirs theirs = {0};
    int error = theirs_open(library, &theirs);
    for (size_t n = 0; n < PLACES && !error; n++)
        error = theirs_find(&theirs, place_svma(library, n));
    return error;
}

/* In a process of its own, which ends with what it has. */
static int measure_memory(const char *name, const struct library *library, int (*fill)(const struct library *))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        uint64_t heap = malloc_bytes();
        uint64_t resident = resident_bytes();
        int error = fill(library);
        printf("%s_malloc_kib %.0f\n%s_resident_kib %.0f\n", name, (double)(malloc_bytes() - heap) / 1024.0, name,
               (double)(resident_bytes() - resident) / 1024.0);
        fflush(stdout);
        _exit(error ? 1 : 0);
    }
    int status;
    if (waitpid(pid, &status, 0) < 0)
        return -errno;
    return status == 0 ? 0 : -EPROTO;
}

static void print_row(const char *name, const double *us)
{
    printf("%s", name);
    for (size_t r = 0; r < ROUNDS; r++)
        printf(" %.1f", us[r]);
    printf("\n");
}

static int find_text(struct library *library)
{
    struct ours ours = {0};
    int error = ours_open(library, &ours);
    if (error)
        return error;
    library->text_svma = ours.region.start_avma - BIAS_AVMA;
    ours_close(&ours);
    return 0;
}

int bench_cold(const char *path, size_t functions, size_t stride)
{
    struct library library = {.path = path, .functions = functions, .stride = stride};
    double open_us[ROUNDS];
    double first_us[ROUNDS];
    double libdw_us[ROUNDS];
    int error = functions && stride ? find_text(&library) : -EINVAL;
    /* First, while there is no freed memory that could be used again. */
    if (!error)
        error = measure_memory("ours", &library, fill_ours);
    if (!error)
        error = measure_memory("libdw", &library, fill_theirs);
    for (size_t r = 0; r < ROUNDS && !error; r++) {
        error = time_ours(&library, r, &open_us[r], &first_us[r]);
        if (!error)
            error = time_theirs(&library, r, &libdw_us[r]);
    }
    if (error)
        return error;
    print_row("image_open", open_us);
    print_row("ours_first", first_us);
    print_row("libdw_first", libdw_us);
    return 0;
}
