/*
 * The dynamic symbol table as PT_DYNAMIC tells of it, for images whose section headers are gone or never were there:
 * stripped files, and images that were put together from memory.
 *
 * Pure parsing, of bytes that may say anything: what does not fit is no table. Addresses are `_svma`; where a loader
 * has made them addresses of the process, the caller undoes that first. Formats: System V ABI (DT_HASH), and the GNU
 * hash table: u32 buckets, first hashed symbol, filter words, shift; the filter (u64 each), the buckets, the chains.
 */
#ifndef SYMBOLIZE_DYNAMIC_H
#define SYMBOLIZE_DYNAMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More of a dynamic section is not looked at. The largest real ones have some hundred entries, DT_NEEDED mostly. */
enum { DYNAMIC_BYTES_MAX = 16 << 10 };

struct dynamic {
    uint64_t symbols_svma;
    uint64_t strings_svma;
    uint64_t strings_bytes;
    uint64_t hash_svma;     /* DT_HASH; 0: none */
    uint64_t gnu_hash_svma; /* DT_GNU_HASH; 0: none */
};

/* Where the tables are read from: exactly `size` bytes; 0 or a negative errno. */
struct svma_reader {
    int (*read)(void *context, uint64_t svma, void *buffer, size_t size);
    void *context;
};

/* From the entries, up to DT_NULL or the end. false: no symbols, names, or neither of the hash tables. */
bool dynamic_parse(const uint8_t *bytes, size_t size, struct dynamic *ret);

/*
 * The number of symbols, which only the hash tables tell, and how many bytes of that table say so. At most 4 million
 * words of a table are read. false: it does not fit.
 */
bool dynamic_count(const struct dynamic *dynamic, const struct svma_reader *reader, uint64_t *ret_count,
                   uint64_t *ret_hash_bytes);

/* True for the entries (DT_*) that hold an address of a table above, or of the relocations (imagewords.h). */
bool dynamic_is_address(int64_t tag);

#endif
