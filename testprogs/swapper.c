/*
 * swapper LIBRARY DECOY PHASE_SECONDS PHASES: loads one, works in it for a phase, unloads it, then the other, and so
 * on: main;call_library;library_outer;library_spin and main;call_decoyed;decoyed_outer;decoyed_spin. At its end it
 * prints
 * {"places": N}: at how many addresses they lay.
 */
#include "testprog.h"

#include <dlfcn.h>

typedef void function_type(volatile sig_atomic_t *);

EXACT void call_library(function_type *function)
{
    function(&stop);
    stop = 1;
}

EXACT void call_decoyed(function_type *function)
{
    function(&stop);
    stop = 2;
}

static function_type *find(void *library, const char *name)
{
    void *function = library != NULL ? dlsym(library, name) : NULL;
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(99);
    }
    return (function_type *)(uintptr_t)function;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 99;
    double seconds = strtod(argv[3], NULL);
    int phases = atoi(argv[4]);
    int places = 0;
    function_type *last = NULL;
    for (int phase = 0; phase < phases; phase++) {
        void *library = dlopen(argv[1 + phase % 2], RTLD_NOW);
        function_type *function = find(library, phase % 2 ? "decoyed_outer" : "library_outer");
        places += function != last;
        last = function;
        stop = 0;
        stop_after(seconds);
        if (phase == 0)
            ready("");
        if (phase % 2)
            call_decoyed(function);
        else
            call_library(function);
        dlclose(library);
    }
    printf("{\"places\": %d}\n", places);
    return 0;
}
