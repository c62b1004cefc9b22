/* Bytes that end where an unmapped page starts: one byte read too far is a fault, with or without a sanitizer. */
#ifndef TESTS_UNIT_GUARDED_H
#define TESTS_UNIT_GUARDED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARDED_PAGE = 4096 };

struct guarded {
    uint8_t *bytes;
    void *mapping;
    size_t mapped;
};

/* `bytes` NULL when there is no memory. `data` may be NULL: zeros. */
static inline struct guarded guarded_new(const void *data, size_t size)
{
    struct guarded guarded = {0};
    guarded.mapped = (size + GUARDED_PAGE - 1) / GUARDED_PAGE * GUARDED_PAGE + GUARDED_PAGE;
    void *mapping = mmap(NULL, guarded.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return guarded;
    guarded.mapping = mapping;
    uint8_t *end = (uint8_t *)mapping + guarded.mapped - GUARDED_PAGE;
    mprotect(end, GUARDED_PAGE, PROT_NONE);
    guarded.bytes = end - size;
    if (data)
        memcpy(guarded.bytes, data, size);
    return guarded;
}

static inline void guarded_free(struct guarded *guarded)
{
    if (guarded->mapping)
        munmap(guarded->mapping, guarded->mapped);
}

#endif
