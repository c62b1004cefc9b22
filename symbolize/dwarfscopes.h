/*
 * Which namespaces, types and functions an entry of debug information is in. libdw finds that by a walk from the unit's
 * beginning to the entry, each time, and by recursion as deep as the nesting is; here a unit is gone through once.
 */
#ifndef SYMBOLIZE_DWARFSCOPES_H
#define SYMBOLIZE_DWARFSCOPES_H

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deeper ones are not looked at: real ones are nested some ten deep. */
enum { DWARFSCOPES_NESTING = 64, DWARFSCOPES_UNITS = 16 };

struct dwarfscope {
    Dwarf_Die die;
    uint64_t end; /* of its entries; 0: not known yet */
    int32_t parent;
};

struct dwarfscopes_unit {
    const void *unit;         /* where its entry is; NULL: free */
    struct dwarfscope *items; /* in the order of their entries */
    size_t count;
    size_t capacity;
};

/* Of the units that were asked for last. */
struct dwarfscopes {
    struct dwarfscopes_unit units[DWARFSCOPES_UNITS];
    size_t next;
};

void dwarfscopes_clear(struct dwarfscopes *scopes); /* before the file is closed */

/*
 * Those of `die`, the innermost first, up to and with the first that is a function, or to the unit. Returns 0 or
 * -ENOMEM; of damaged information as many as there are.
 */
int dwarfscopes_of(struct dwarfscopes *scopes, Dwarf_Die *die, Dwarf_Die ret_chain[DWARFSCOPES_NESTING],
                   size_t *ret_count);

/* Is it a namespace or type, which functions are declared and defined in? */
bool dwarfscopes_is_outer(int tag);

/*
 * Goes over to the next entry beside this one. Damaged information leads back, or in again from the side: entries lie
 * in the order of their addresses, and there are no more of them than `left`.
 */
bool dwarfscopes_next_entry(Dwarf_Die *die, size_t *left);

#endif
