/*
 * Function symbols of one image, ready for lookup by address.
 *
 * From .symtab and .dynsym together, of the image and of the files that have what was stripped from it; in an image
 * without section headers from what PT_DYNAMIC tells of .dynsym, and then an executable segment stands for its
 * sections. One name per
 * address, always the same one, whatever the order in the file: among symbols that cover an address functions
 * (STT_FUNC, STT_GNU_IFUNC) before other types; then global, weak, local; then fewer leading underscores; then the
 * larger start; then bytewise (the first 4 KiB). A symbol with st_size 0 covers the bytes to the next symbol's start
 * (or its section's end), and only where no symbol with a size covers them and no sized symbol ends in between (no name
 * from across a gap). Where there is no .symtab it covers nothing: the names of its local functions are gone, so what
 * follows it need not be its own. Section, file and TLS symbols, undefined and absolute ones, mapping labels (names
 * that begin with '$'), empty names and all that does not start in an executable section are not names. A size beyond
 * the section is cut to the section's end. STT_GNU_IFUNC names its resolver's code, which is a function's code like any
 * other.
 *
 * Built once from libelf (its handle lives only while building), then immutable: any thread may look up.
 * A damaged table gives the symbols that could be read. Limits per table: 16 million symbols, 1 GiB of names,
 * 64 KiB per name.
 */
#ifndef SYMBOLIZE_SYMTAB_H
#define SYMBOLIZE_SYMTAB_H

#include "symbolize/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symtab;

/* Half-open range of addresses for which this is the name. */
struct symbol {
    uint64_t start_svma;
    uint64_t end_svma;
    const char *name; /* mangled, as in the file; borrowed from the table */
    bool is_sizeless; /* how far it reaches is but likely */
};

enum { SYMTAB_IMAGES_MAX = 4 };

/* Returns 0 or -ENOMEM. Without symbols the table is empty. */
int symtab_new(const struct image *image, struct symtab **ret_table);

/*
 * Of the first image, which says where its code is; the others have more symbols of the same code, with its addresses
 * or (where the image was prelinked) others as much apart as their first code sections are.
 */
int symtab_new_merged(const struct image *const *images, size_t count, struct symtab **ret_table);
void symtab_free(struct symtab *table);

/* Whether functions came from .symtab: then what the table does not name has no name elsewhere in the image either. */
bool symtab_has_locals(const struct symtab *table);

size_t symtab_count(const struct symtab *table); /* ranges, not symbols */

/* The symbol that names `svma`; false when none does. */
bool symtab_find(const struct symtab *table, uint64_t svma, struct symbol *ret_symbol);

/*
 * For tests and for symbols that do not come from a file: a table from a list. The input is not kept.
 * `kind` and `binding` are ELF's STT_* and STB_* values, `limit_svma` the end of the section that holds the symbol.
 */
struct symtab_entry {
    const char *name;
    uint64_t svma;
    uint64_t bytes;
    uint64_t limit_svma;
    unsigned char type;
    unsigned char binding;
};
int symtab_new_from(const struct symtab_entry *entries, size_t count, struct symtab **ret_table);

/*
 * A table of ranges that are sorted and disjoint already, without a copy. `ranges` and `names`, which the ranges' names
 * point into, are from malloc (or NULL for none) and consumed, also on failure. Returns 0 or -ENOMEM.
 */
int symtab_new_sorted(struct symbol *ranges, size_t count, char *names, struct symtab **ret_table);

#endif
