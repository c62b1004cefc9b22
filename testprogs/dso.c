/* dso LIBRARY [SECONDS]: loads the library from that path: main;call_library;library_outer;library_spin. */
#include "testprog.h"

#include <dlfcn.h>

EXACT void call_library(void (*function)(volatile sig_atomic_t *))
{
    function(&stop);
    stop = 1;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    void *library = dlopen(argv[1], RTLD_NOW);
    void *function = library != NULL ? dlsym(library, "library_outer") : NULL;
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    call_library((void (*)(volatile sig_atomic_t *))(uintptr_t)function);
    return 0;
}
