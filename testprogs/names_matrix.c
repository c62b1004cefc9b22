/*
 * One stack, main > middle > hot > spin (inlined), between names that are not to be shown: symbols without a size,
 * labels, objects and aliases at hot's address, functions before and after it, and an exported marker without a size
 * right before it, which a stripped program still has.
 *
 *   -DLIBRARY  all but main, for a shared library
 *   -DPROGRAM  main alone, which loads the library that argv[2] names
 *
 * names_matrix SECONDS [LIBRARY] takes so much CPU time. The lines of the stack carry a comment "line: FUNCTION", for
 * the test to find.
 */
#include "testprog.h"

#include <dlfcn.h>
#include <string.h>

#ifndef PROGRAM

/* Behind it the compiler puts the functions in the order of this file. */
__asm__(".text\n"
        ".type decoy_local, @function\n"
        "decoy_local:\n"
        "    ret\n"
        ".size decoy_local, . - decoy_local\n"
        ".globl decoy_exported\n"
        ".type decoy_exported, @function\n"
        "decoy_exported:\n"
        "    ret\n"
        ".size decoy_exported, . - decoy_exported\n"
        "decoy_label:\n"
        ".globl decoy_marker\n"
        ".type decoy_marker, @function\n"
        "decoy_marker:\n"
        "    .fill 16, 1, 0x90\n"
        ".set __decoy_same, hot\n"
        ".set __decoy_object, hot\n"
        ".type __decoy_object, @object\n"
        ".size __decoy_object, 8\n"
        ".set decoy_absolute, 0x1000\n");

static inline __attribute__((always_inline)) void spin(void)
{
    __asm__ volatile("decoy_inside_%=:\n.Ldecoy_inside_%=:" ::);
    for (volatile unsigned long turns = 0; !stop; turns++) /* line: spin */
        ;
    __asm__ volatile("decoy_behind_%=:" ::);
}

static EXACT void hot(void)
{
    spin(); /* line: hot */
    __asm__ volatile("");
}

static EXACT __attribute__((used)) void decoy_after(void)
{
    __asm__ volatile("" ::: "memory");
}

static void __decoy_alias(void) __attribute__((alias("hot"), used));

static void stop_after_cpu(double seconds)
{
    struct itimerval timer = {.it_value.tv_usec = (suseconds_t)(seconds * 1e6)};
    signal(SIGPROF, stop_on_signal);
    setitimer(ITIMER_PROF, &timer, NULL);
}

void middle(double seconds);

EXACT void middle(double seconds)
{
    stop_after_cpu(seconds);
    hot(); /* line: middle */
    __asm__ volatile("" ::: "memory");
}

void decoy_last(void);

EXACT void decoy_last(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif

#ifndef LIBRARY

#ifdef PROGRAM
typedef void work(double seconds);

static work *find_work(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library ? dlsym(library, "middle") : NULL;
    work *found;
    memcpy(&found, &symbol, sizeof found);
    if (!found)
        fail(dlerror());
    return found;
}
#endif

int main(int argc, char **argv)
{
    double seconds = number_argument(argc, argv, 1, 1);
#ifdef PROGRAM
    find_work(argc > 2 ? argv[2] : "")(seconds); /* line: library */
#else
    middle(seconds); /* line: main */
#endif
    return 0;
}

#endif
