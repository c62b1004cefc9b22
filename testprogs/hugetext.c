/*
 * hugetext whole|middle|changed [SECONDS]: puts a copy of its text, or of the page with the functions in question, into
 * anonymous memory and in place of the mapping of the file, then main;text_outer;text_middle;text_spin. With `changed`
 * the copy is another one, where no function is that runs.
 */
#include "testprog.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

/* Functions in one page of their own. */
#define TEXT __attribute__((section(".text.moved"))) EXACT

static const uintptr_t PAGE = 4096;

TEXT __attribute__((aligned(4096))) unsigned long text_spin(unsigned long x)
{
    SPIN();
    return x;
}

TEXT unsigned long text_middle(unsigned long x)
{
    unsigned long below = text_spin(x + 1);
    return below ^ x;
}

TEXT unsigned long text_outer(unsigned long x)
{
    unsigned long below = text_middle(x + 1);
    return below ^ x;
}

TEXT unsigned long text_unused(unsigned long x)
{
    return x * 12345 + 1;
}

TEXT __attribute__((aligned(4096))) unsigned long text_behind(unsigned long x)
{
    return x;
}

/* The mapping that holds the code. */
static void find_mapping(uintptr_t address, uintptr_t *start, uintptr_t *end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[8192];
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        char *rest;
        *start = strtoul(line, &rest, 16);
        *end = strtoul(rest + 1, NULL, 16);
        found = *start <= address && address < *end;
    }
    if (!found)
        fail("maps");
    fclose(maps);
}

static void replace_text(uintptr_t start, uintptr_t end, bool is_changed)
{
    size_t size = end - start;
    unsigned char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        fail("mmap");
    memcpy(copy, (const void *)start, size);
    if (is_changed)
        copy[(uintptr_t)text_unused - start] ^= 0xff;
    if (mprotect(copy, size, PROT_READ | PROT_EXEC) != 0)
        fail("mprotect");
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED)
        fail("mremap");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    uintptr_t start = (uintptr_t)text_spin;
    uintptr_t end = (uintptr_t)text_spin + PAGE;
    if (strcmp(argv[1], "middle") != 0)
        find_mapping((uintptr_t)text_spin, &start, &end);
    replace_text(start, end, strcmp(argv[1], "changed") == 0);
    stop_after(number_argument(argc, argv, 2, 60));
    ready("start=%lx end=%lx", (unsigned long)start, (unsigned long)end);
    volatile unsigned long result = text_outer((unsigned long)argc) + text_behind(1);
    (void)result;
    return 0;
}
