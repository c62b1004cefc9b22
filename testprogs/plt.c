/*
 * plt [lazy] [SECONDS]: main;plt_outer;plt_caller;X, where X is a tiny library function, its PLT entry or, with
 * `lazy`, what the dynamic linker does to find it: the entry's GOT slot is put back before each call, so that each call
 * is the first one. Without, the entry jumps to itself for each other 4 ms of CPU time (what it takes otherwise is
 * nothing that a sampler would see on every machine); plt_turn, a signal handler, changes that. Linked with -z lazy;
 * also with the other PLT format (-z ibtplt).
 */
#include "testprog.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

unsigned tiny_library_function(unsigned x);

static uint64_t *slot;
static uint64_t unresolved;
static uint64_t resolved;
static bool lazy;

/* The only relocation of the PLT that is for that function. */
static void find_slot(void)
{
    const char *strings = NULL;
    const Elf64_Sym *symbols = NULL;
    const Elf64_Rela *relocations = NULL;
    size_t count = 0;
    for (const Elf64_Dyn *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            symbols = (const Elf64_Sym *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL)
            relocations = (const Elf64_Rela *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ)
            count = entry->d_un.d_val / sizeof(Elf64_Rela);
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = strings + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
        if (strcmp(name, "tiny_library_function") == 0)
            slot = (uint64_t *)(_r_debug.r_map->l_addr + relocations[i].r_offset);
    }
    if (!slot) {
        fputs("no PLT slot\n", stderr);
        exit(99);
    }
    unresolved = *slot;
}

static uint64_t entry_avma(void)
{
    uint64_t avma;
    __asm__("leaq tiny_library_function@PLT(%%rip), %0" : "=r"(avma));
    return avma;
}

EXACT void plt_turn(int signal_number)
{
    (void)signal_number;
    *(volatile uint64_t *)slot = *slot == resolved ? entry_avma() : resolved;
}

/* The slot has to be resolved. */
static void begin_turns(void)
{
    enum { PERIOD_US = 4000 };
    resolved = *slot;
    struct sigaction action = {.sa_handler = plt_turn, .sa_flags = SA_RESTART};
    sigaction(SIGVTALRM, &action, NULL);
    struct itimerval timer = {.it_interval.tv_usec = PERIOD_US, .it_value.tv_usec = PERIOD_US};
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

EXACT unsigned plt_caller(unsigned x)
{
    for (unsigned i = 0; i < 1000000 && !stop; i++) {
        if (lazy)
            *(volatile uint64_t *)slot = unresolved;
        x += tiny_library_function(i);
    }
    return x;
}

EXACT unsigned plt_outer(unsigned x)
{
    while (!stop)
        x += plt_caller(x);
    return x;
}

int main(int argc, char **argv)
{
    lazy = argc > 1 && strcmp(argv[1], "lazy") == 0;
    find_slot();
    stop_after(number_argument(argc, argv, 2, 60));
    unsigned first = tiny_library_function(0);
    if (!lazy)
        begin_turns();
    ready("");
    return (int)plt_outer(first) & 1;
}
