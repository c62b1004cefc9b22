#include "symbolize/dwarffunctions.h"

#include "common/array.h"
#include "symbolize/dwarfscopes.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* Of real programs: namespaces, classes and blocks are not nested deeper; nor are inlined calls (gcc stops at 8 of one
 * function in itself). */
enum {
    NESTING_MAX = DWARFSCOPES_NESTING,
    INLININGS_NESTING_MAX = 256,
    FUNCTIONS_MAX = 1 << 22,
    INLININGS_MAX = 1 << 20,
    ENTRIES_MAX = 1 << 22
};

int dwarffunctions_add_ranges(struct rangemap *map, Dwarf_Die *die, uint32_t value)
{
    ptrdiff_t at = 0;
    Dwarf_Addr base;
    Dwarf_Addr start;
    Dwarf_Addr end;
    while (!rangemap_is_full(map) && (at = dwarf_ranges(die, at, &base, &start, &end)) > 0) {
        int error = rangemap_add(map, start, end, value);
        if (error)
            return error;
    }
    return 0;
}

/* ---- functions ---- */

static int add_function(struct dwarffunctions *functions, Dwarf_Die *die)
{
    size_t before = functions->ranges.count;
    if (functions->count >= FUNCTIONS_MAX)
        return 0;
    int error = array_room(&functions->dies, &functions->capacity, functions->count + 1);
    if (!error)
        error = dwarffunctions_add_ranges(&functions->ranges, die, (uint32_t)functions->count);
    if (!error && functions->ranges.count > before) /* else a declaration, or a function that is inlined everywhere */
        functions->dies[functions->count++] = *die;
    return error;
}

/* May functions be in there? */
static bool may_hold_functions(int tag, bool deep)
{
    bool is_code = tag == DW_TAG_subprogram || tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine;
    return dwarfscopes_is_outer(tag) || (deep && is_code);
}

static int read_functions_in(struct dwarffunctions *functions, Dwarf_Die *parent, unsigned depth, size_t *left)
{
    Dwarf_Die die;
    if (depth > NESTING_MAX || dwarf_child(parent, &die) != 0)
        return 0;
    do {
        int tag = dwarf_tag(&die);
        int error = tag == DW_TAG_subprogram ? add_function(functions, &die) : 0;
        if (!error && may_hold_functions(tag, functions->is_deep) && dwarf_haschildren(&die) > 0)
            error = read_functions_in(functions, &die, depth + 1, left);
        if (error)
            return error;
    } while (dwarfscopes_next_entry(&die, left));
    return 0;
}

int dwarffunctions_read(struct dwarffunctions *functions, Dwarf_Die *die, bool deep, size_t most)
{
    rangemap_clear(&functions->ranges);
    functions->count = 0;
    functions->is_deep = deep;
    int error = read_functions_in(functions, die, 0, &most);
    rangemap_sort(&functions->ranges);
    return error;
}

void dwarffunctions_deinit(struct dwarffunctions *functions)
{
    rangemap_deinit(&functions->ranges);
    free(functions->dies);
    *functions = (struct dwarffunctions){0};
}

Dwarf_Die *dwarffunctions_find(const struct dwarffunctions *functions, uint64_t svma)
{
    uint32_t number;
    return rangemap_find(&functions->ranges, svma, &number) ? &functions->dies[number] : NULL;
}

/* ---- inlined calls ---- */

static int add_inlining(struct inlinings *inlinings, Dwarf_Die *die, int32_t parent, int32_t *ret_number)
{
    if (inlinings->count >= INLININGS_MAX)
        return 0;
    int error = array_room(&inlinings->items, &inlinings->capacity, inlinings->count + 1);
    if (!error)
        error = dwarffunctions_add_ranges(&inlinings->ranges, die, (uint32_t)inlinings->count);
    if (error)
        return error;
    *ret_number = (int32_t)inlinings->count++;
    inlinings->items[*ret_number] =
        (struct inlining){.die = *die, .parent = parent, .depth = parent < 0 ? 1 : inlinings->items[parent].depth + 1};
    return 0;
}

static bool is_block(int tag)
{
    return tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block ||
           tag == DW_TAG_with_stmt;
}

static int read_inlinings_in(struct inlinings *inlinings, Dwarf_Die *scope, int32_t parent, unsigned depth,
                             size_t *left)
{
    Dwarf_Die die;
    if (depth > INLININGS_NESTING_MAX || dwarf_child(scope, &die) != 0)
        return 0;
    do {
        int tag = dwarf_tag(&die);
        int32_t number = parent;
        int error = tag == DW_TAG_inlined_subroutine ? add_inlining(inlinings, &die, parent, &number) : 0;
        if (!error && (tag == DW_TAG_inlined_subroutine || is_block(tag)) && dwarf_haschildren(&die) > 0)
            error = read_inlinings_in(inlinings, &die, number, depth + 1, left);
        if (error)
            return error;
    } while (dwarfscopes_next_entry(&die, left));
    return 0;
}

void inlinings_clear(struct inlinings *inlinings)
{
    inlinings->count = 0;
    rangemap_clear(&inlinings->ranges);
}

int inlinings_read(struct inlinings *inlinings, Dwarf_Die *function)
{
    inlinings_clear(inlinings);
    size_t left = ENTRIES_MAX;
    return read_inlinings_in(inlinings, function, -1, 0, &left);
}

void inlinings_deinit(struct inlinings *inlinings)
{
    rangemap_deinit(&inlinings->ranges);
    free(inlinings->items);
    *inlinings = (struct inlinings){0};
}

int32_t inlinings_find(const struct inlinings *inlinings, uint64_t svma)
{
    int32_t deepest = -1;
    for (size_t i = 0; i < inlinings->ranges.count; i++) {
        const struct range *range = &inlinings->ranges.items[i];
        if (svma >= range->start && svma < range->end &&
            (deepest < 0 || inlinings->items[range->value].depth > inlinings->items[deepest].depth))
            deepest = (int32_t)range->value;
    }
    return deepest;
}
