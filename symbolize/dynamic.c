#include "symbolize/dynamic.h"

#include <elf.h>
#include <string.h>

enum { MAX_WORDS = 4 << 20, WORDS_AT_ONCE = 1024 };

bool dynamic_is_address(int64_t tag)
{
    return tag == DT_SYMTAB || tag == DT_STRTAB || tag == DT_HASH || tag == DT_GNU_HASH || tag == DT_RELA;
}

bool dynamic_parse(const uint8_t *bytes, size_t size, struct dynamic *ret)
{
    struct dynamic dynamic = {0};
    uint64_t symbol_bytes = sizeof(Elf64_Sym);
    for (size_t at = 0; size - at >= sizeof(Elf64_Dyn); at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        memcpy(&entry, bytes + at, sizeof(entry));
        if (entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_SYMTAB)
            dynamic.symbols_svma = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_STRTAB)
            dynamic.strings_svma = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_STRSZ)
            dynamic.strings_bytes = entry.d_un.d_val;
        else if (entry.d_tag == DT_SYMENT)
            symbol_bytes = entry.d_un.d_val;
        else if (entry.d_tag == DT_HASH)
            dynamic.hash_svma = entry.d_un.d_ptr;
        else if (entry.d_tag == DT_GNU_HASH)
            dynamic.gnu_hash_svma = entry.d_un.d_ptr;
    }
    if (symbol_bytes != sizeof(Elf64_Sym) || !dynamic.symbols_svma || !dynamic.strings_svma || !dynamic.strings_bytes ||
        !(dynamic.hash_svma || dynamic.gnu_hash_svma))
        return false;
    *ret = dynamic;
    return true;
}

static bool read_words(const struct svma_reader *reader, uint64_t svma, uint32_t *words, size_t count)
{
    return reader->read(reader->context, svma, words, count * sizeof(*words)) == 0;
}

static bool count_hash(uint64_t svma, const struct svma_reader *reader, uint64_t *ret_count, uint64_t *ret_bytes)
{
    uint32_t head[2]; /* buckets, chains: as many as there are symbols */
    if (!read_words(reader, svma, head, 2) || head[0] > MAX_WORDS || head[1] > MAX_WORDS)
        return false;
    *ret_count = head[1];
    *ret_bytes = (2 + (uint64_t)head[0] + head[1]) * sizeof(*head);
    return true;
}

/* The largest number in the buckets: where the last chain begins. */
static bool last_chain(const struct svma_reader *reader, uint64_t svma, uint32_t buckets, uint32_t *ret_start)
{
    uint32_t words[WORDS_AT_ONCE];
    uint32_t largest = 0;
    for (uint32_t at = 0; at < buckets;) {
        uint32_t some = buckets - at < WORDS_AT_ONCE ? buckets - at : WORDS_AT_ONCE;
        if (!read_words(reader, svma + at * sizeof(*words), words, some))
            return false;
        for (uint32_t i = 0; i < some; i++)
            largest = words[i] > largest ? words[i] : largest;
        at += some;
    }
    *ret_start = largest;
    return true;
}

static bool count_gnu_hash(uint64_t svma, const struct svma_reader *reader, uint64_t *ret_count, uint64_t *ret_bytes)
{
    enum { CHAIN_MAX = 1 << 16 };
    uint32_t head[4];
    uint32_t symbol;
    if (!read_words(reader, svma, head, 4) || head[0] > MAX_WORDS || head[2] > MAX_WORDS || head[1] > MAX_WORDS)
        return false;
    uint64_t buckets_svma = svma + sizeof(head) + head[2] * sizeof(uint64_t);
    uint64_t chains_svma = buckets_svma + head[0] * sizeof(uint32_t);
    if (!last_chain(reader, buckets_svma, head[0], &symbol) || symbol > MAX_WORDS)
        return false;
    *ret_count = head[1];
    *ret_bytes = chains_svma - svma;
    if (symbol < head[1])
        return true; /* nothing is hashed: all symbols are undefined ones */
    uint64_t at_svma = chains_svma + (symbol - head[1]) * sizeof(uint32_t);
    for (unsigned i = 0; i < CHAIN_MAX; i++, at_svma += sizeof(uint32_t)) {
        uint32_t word;
        if (!read_words(reader, at_svma, &word, 1))
            return false;
        if (!(word & 1)) /* set in the last one of each chain */
            continue;
        *ret_count = (uint64_t)symbol + i + 1;
        *ret_bytes = at_svma + sizeof(uint32_t) - svma;
        return true;
    }
    return false;
}

bool dynamic_count(const struct dynamic *dynamic, const struct svma_reader *reader, uint64_t *ret_count,
                   uint64_t *ret_hash_bytes)
{
    if (dynamic->gnu_hash_svma && count_gnu_hash(dynamic->gnu_hash_svma, reader, ret_count, ret_hash_bytes))
        return true;
    return dynamic->hash_svma && count_hash(dynamic->hash_svma, reader, ret_count, ret_hash_bytes);
}
