/*
 * mapbad FILE OFFSET [SECONDS]: maps FILE, whatever it is, executable, and calls the code at OFFSET in it, which spins
 * until the byte that its argument points to is not 0: main;run_mapped;<code of FILE>.
 */
#include "testprog.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

EXACT void run_mapped(unsigned char *code)
{
    void (*entry)(volatile sig_atomic_t *) = (void (*)(volatile sig_atomic_t *))(uintptr_t)code;
    entry(&stop);
    stop = 1;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 99;
    struct stat stat;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0)
        fail(argv[1]);
    unsigned char *file = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED)
        fail("mmap");
    close(fd);
    stop_after(number_argument(argc, argv, 3, 60));
    ready("");
    run_mapped(file + strtoul(argv[2], NULL, 0));
    return 0;
}
