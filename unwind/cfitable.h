/*
 * The unwind information of one image: which functions have some, and the parsed entry of a function.
 *
 * Three indexes (function start to entry) are asked in turn, each made when it is first needed: the search table of
 * PT_GNU_EH_FRAME; one pass over .eh_frame; one pass over .debug_frame. The search table costs next to nothing but may
 * lie or be incomplete, so an entry found through it counts only if it starts where the table says and covers the
 * address; else .eh_frame itself says. That serves images without the table too (gcc -static on Debian has none).
 * .debug_frame answers for what .eh_frame does not cover: Go has nothing else, and a C program without asynchronous
 * unwind tables has .eh_frame for its start files only. It may be compressed (zlib), and has 64 MB at most.
 *
 * An entry is normalised when it is first wanted: its CIE and FDE are written anew, in one encoding, into memory of the
 * table. So whoever evaluates it sees only lengths, encodings and offsets that were written here, and the file is not
 * read again.
 *
 * Belongs to one thread. The image is borrowed and must outlive the table.
 */
#ifndef UNWIND_CFITABLE_H
#define UNWIND_CFITABLE_H

#include "symbolize/image.h"

struct cfitable;

/* Returns 0, or -ENOMEM. An image without usable unwind information gives an empty table. */
int cfitable_new(const struct image *image, struct cfitable **ret_table);

/* The same by the pass over .eh_frame, whatever PT_GNU_EH_FRAME says. For tests, and to compare. */
int cfitable_new_linear(const struct image *image, struct cfitable **ret_table);

void cfitable_free(struct cfitable *table);

/* Functions that .eh_frame has, by the search table if there is one. */
size_t cfitable_count(const struct cfitable *table);

/* Linear address of the n-th function, ascending. */
uint64_t cfitable_start(const struct cfitable *table, size_t n);

/* One function's normalised entry. */
struct cfi_function {
    uint64_t start_svma;
    uint64_t end_svma;
    bool signal; /* its caller was interrupted, not calling */
    /* Into cfitable_bytes: the CIE, then the FDE, up to end_off. The CIE pointer is .eh_frame's, the FDE's address an
     * absolute 8-byte start_svma. */
    uint32_t cie_off;
    uint32_t fde_off;
    uint32_t program_off; /* of the FDE */
    uint32_t end_off;
    uint64_t code_align; /* unit of the program's advances */
};

/*
 * The entry whose range holds `svma`. Returns 0; -ENOENT when no function does (never the nearest wrong neighbour);
 * -EINVAL when the entry is damaged or has instructions that are not supported; -ENOMEM.
 */
int cfitable_find(struct cfitable *table, uint64_t svma, struct cfi_function *ret_function);

/*
 * For an address that cfitable_find has no function for: the range around it that has none either, at least as far as
 * the neighbours in all indexes; 0 and UINT64_MAX stand for no neighbour. So a cache can remember "nothing here" for
 * all of it. false: the address is covered, or memory ran out; nothing can be said of UINT64_MAX itself.
 */
bool cfitable_gap(struct cfitable *table, uint64_t svma, uint64_t *ret_start_svma, uint64_t *ret_end_svma);

/* The normalised entries: a multiple of 8 bytes. Borrowed, until the next cfitable_find. */
const uint8_t *cfitable_bytes(const struct cfitable *table, size_t *ret_size);

#endif
