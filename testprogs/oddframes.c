/*
 * oddframes KIND [SECONDS]: main;outer;…, with a frame or a last instruction that is hard to unwind. Built with unwind
 * information for the assembly (oddframes_cfi_*) and without (oddframes_nocfi_*), each with frame pointers and without.
 *   decoys:     main;outer;decoy_locals: all locals look like return addresses into decoy_fn.
 *   rbp VALUE:  main;outer;rbp_abuser: rbp is zero, ten, a heap cell that points to itself (self), to one that points
 *               back (pair), to the next of a million (chain), lies at the last readable word (edge), or is no
 *               address (wild). The cells look like frames of decoy_fn.
 *   mont:       main;mont_caller;mont_asm: the CFA is an expression with a register that callees may change.
 *   framed:     main;outer;c_above;asm_with_frame;c_below;leaf_spin
 *   frameless:  main;outer;c_above;asm_without_frame;c_below;leaf_spin
 *   recursion:  main;outer;asm_recursion × 50
 *   noreturn:   main;outer;ends_in_call;abort_like: the return address belongs to asm_neighbour.
 *   noreturn_c: main;outer;ends_in_call_c;abort_like: the same by a compiler.
 */
#include "testprog.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

enum { CELLS = 1000000, RECURSION = 50, TURNS = 3000000 };

struct cell {
    uint64_t next;
    uint64_t return_address;
};

void decoy_fn(void);
void decoy_locals(void);
void rbp_abuser(uint64_t rbp, unsigned turns);
void mont_asm(unsigned turns);
void asm_with_frame(void (*callback)(void));
void asm_without_frame(void (*callback)(void));
void asm_recursion(unsigned depth);
void ends_in_call(void);

static volatile int zero;
static uint64_t abused_rbp;
static void (*middle)(void (*callback)(void));

static uint64_t address(const void *pointer)
{
    return (uintptr_t)pointer;
}

static uint64_t make_cells(size_t count, bool closed)
{
    struct cell *cells = calloc(count, sizeof *cells);
    if (!cells)
        fail("calloc");
    for (size_t i = 0; i < count; i++) {
        cells[i].next = i + 1 < count || closed ? address(&cells[(i + 1) % count]) : 0;
        cells[i].return_address = (uintptr_t)decoy_fn + 5;
    }
    return address(cells);
}

static uint64_t last_word(void)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || munmap(pages + 4096, 4096) != 0)
        fail("mmap");
    memset(pages, 0x10, 4096);
    return address(pages + 4096 - 8);
}

static uint64_t rbp_value(const char *name)
{
    if (strcmp(name, "ten") == 0)
        return 10;
    if (strcmp(name, "self") == 0)
        return make_cells(1, true);
    if (strcmp(name, "pair") == 0)
        return make_cells(2, true);
    if (strcmp(name, "chain") == 0)
        return make_cells(CELLS, false);
    if (strcmp(name, "edge") == 0)
        return last_word();
    if (strcmp(name, "wild") == 0)
        return 0x8000000012345678;
    return 0;
}

EXACT void leaf_spin(void)
{
    SPIN();
}

EXACT void c_below(void)
{
    leaf_spin();
    zero = 0;
}

EXACT void c_above(void)
{
    middle(c_below);
    zero = 0;
}

EXACT __attribute__((noreturn)) void abort_like(void)
{
    SPIN();
    exit(0);
}

EXACT void ends_in_call_c(void)
{
    abort_like();
}

EXACT void c_neighbour(void)
{
    zero = 0;
}

EXACT void mont_caller(void)
{
    while (!stop)
        mont_asm(TURNS);
}

EXACT void outer(const char *kind)
{
    /* One call each, so that nothing is between. */
    if (strcmp(kind, "decoys") == 0)
        decoy_locals();
    else if (strcmp(kind, "recursion") == 0)
        asm_recursion(RECURSION);
    else if (strcmp(kind, "noreturn") == 0)
        ends_in_call();
    else if (strcmp(kind, "noreturn_c") == 0)
        ends_in_call_c();
    else if (strcmp(kind, "rbp") == 0)
        while (!stop)
            rbp_abuser(abused_rbp, TURNS);
    else
        c_above();
    zero = 0;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "decoys";
    bool has_value = strcmp(kind, "rbp") == 0;
    abused_rbp = has_value && argc > 2 ? rbp_value(argv[2]) : 0;
    middle = strcmp(kind, "framed") == 0 ? asm_with_frame : asm_without_frame;
    stop_after(number_argument(argc, argv, has_value ? 3 : 2, 60));
    if (strcmp(kind, "decoys") == 0 || strcmp(kind, "recursion") == 0)
        signal(SIGALRM, SIG_DFL); /* these do not look at `stop` */
    ready("");
    if (strcmp(kind, "mont") == 0)
        mont_caller();
    else
        outer(kind);
    return 0;
}
