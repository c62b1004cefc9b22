/*
 * Functions in the debug information of a compilation unit, and what was inlined into one of them. Handles of libdw:
 * one thread's, valid as long as the file is open.
 */
#ifndef SYMBOLIZE_DWARFFUNCTIONS_H
#define SYMBOLIZE_DWARFFUNCTIONS_H

#include "symbolize/rangemap.h"

#include <elfutils/libdw.h>

struct dwarffunctions {
    struct rangemap ranges; /* to the number of the function */
    Dwarf_Die *dies;        /* owned */
    size_t count;
    size_t capacity;
    bool is_deep;
};

/*
 * Reads those of the unit `die`, of which no more than `most` entries are looked at. Not those inside other functions,
 * which takes longer (`deep`: these too). Returns 0 or -ENOMEM; of damaged information as much as there is.
 */
int dwarffunctions_read(struct dwarffunctions *functions, Dwarf_Die *die, bool deep, size_t most);
void dwarffunctions_deinit(struct dwarffunctions *functions);

/* Adds all stretches of the code of `die`, a unit, function or inlined call, with this number. Returns 0 or -ENOMEM. */
int dwarffunctions_add_ranges(struct rangemap *map, Dwarf_Die *die, uint32_t value);

/* NULL: none. */
Dwarf_Die *dwarffunctions_find(const struct dwarffunctions *functions, uint64_t svma);

/* A call that was inlined, in the function itself or in another inlined one. */
struct inlining {
    Dwarf_Die die;
    int32_t parent; /* -1: the function */
    uint32_t depth; /* from 1 */
};

struct inlinings {
    struct inlining *items;
    size_t count;
    size_t capacity;
    struct rangemap ranges; /* one for each stretch; the deepest is asked for, which is not always the last to begin */
};

int inlinings_read(struct inlinings *inlinings, Dwarf_Die *function); /* 0 or -ENOMEM */
void inlinings_clear(struct inlinings *inlinings);
void inlinings_deinit(struct inlinings *inlinings);

/* The deepest at this address; -1: none. */
int32_t inlinings_find(const struct inlinings *inlinings, uint64_t svma);

#endif
