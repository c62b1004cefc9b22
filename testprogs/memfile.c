/*
 * memfile load LIBRARY: loads a copy of the library from a file in memory:
 * main;call_library;library_outer;library_spin. memfile exec PROGRAM: becomes a copy of the program that way.
 */
#include "testprog.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

EXACT void call_library(void (*function)(volatile sig_atomic_t *))
{
    function(&stop);
    stop = 1;
}

static int copy_of(const char *path)
{
    struct stat stat;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = memfd_create("hidden", MFD_CLOEXEC);
    if (from < 0 || to < 0 || fstat(from, &stat) != 0)
        fail(path);
    for (off_t left = stat.st_size; left > 0;) {
        ssize_t done = sendfile(to, from, NULL, (size_t)left);
        if (done <= 0)
            fail("sendfile");
        left -= done;
    }
    close(from);
    return to;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    int fd = copy_of(argv[2]);
    if (strcmp(argv[1], "exec") == 0) {
        fexecve(fd, argv + 2, environ);
        fail("fexecve");
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *library = dlopen(path, RTLD_NOW);
    void *function = library != NULL ? dlsym(library, "library_outer") : NULL;
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    stop_after(60);
    ready("");
    call_library((void (*)(volatile sig_atomic_t *))(uintptr_t)function);
    return 0;
}
