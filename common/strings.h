/* Interned strings: equal bytes have equal numbers. Number 0 is the empty string. One owner, not thread-safe. */
#ifndef COMMON_STRINGS_H
#define COMMON_STRINGS_H

#include <stddef.h>
#include <stdint.h>

struct strings {
    char **items; /* owned, by number */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* open addressing: number + 1, 0 is free */
    size_t slot_count;
};

int strings_init(struct strings *strings); /* 0 or -ENOMEM */
void strings_deinit(struct strings *strings);

/* Returns 0 or -ENOMEM (also beyond 2^32 - 2 strings). */
int strings_add(struct strings *strings, const char *text, uint32_t *ret_number);

/* Borrowed until strings_deinit. */
const char *strings_get(const struct strings *strings, uint32_t number);

#endif
