#include "common/hash.h"

#include <string.h>

uint64_t hash_bytes(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t hash = hash_u64(size + 1);
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = hash_pair(hash, word);
        bytes += 8;
        size -= 8;
    }
    uint64_t tail = 0;
    memcpy(&tail, bytes, size);
    return hash_pair(hash, tail);
}
