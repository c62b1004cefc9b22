#include "symbolize/dwarfscopes.h"

#include "common/array.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

enum { ENTRIES_MAX = 1 << 24 };

bool dwarfscopes_next_entry(Dwarf_Die *die, size_t *left)
{
    const void *before = die->addr;
    if (*left == 0 || dwarf_siblingof(die, die) != 0 || die->addr <= before)
        return false;
    --*left;
    return true;
}

bool dwarfscopes_is_outer(int tag)
{
    switch (tag) {
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type:
    case DW_TAG_enumeration_type: /* Rust */
    case DW_TAG_interface_type:
    case DW_TAG_variant_part:
    case DW_TAG_variant:
        return true;
    default:
        return false;
    }
}

static bool is_scope(int tag)
{
    return dwarfscopes_is_outer(tag) || tag == DW_TAG_subprogram || tag == DW_TAG_lexical_block;
}

static uint64_t address_of(const Dwarf_Die *die)
{
    return (uint64_t)(uintptr_t)die->addr;
}

static int add_scope(struct dwarfscopes_unit *unit, const Dwarf_Die *die, int32_t parent)
{
    int error = array_room(&unit->items, &unit->capacity, unit->count + 1);
    if (!error)
        unit->items[unit->count++] = (struct dwarfscope){.die = *die, .parent = parent};
    return error;
}

/* Those from `first` on that have no end yet end here. */
static void end_scopes(struct dwarfscopes_unit *unit, size_t first, uint64_t end)
{
    for (size_t i = first; i < unit->count; i++)
        if (!unit->items[i].end)
            unit->items[i].end = end;
}

static int read_in(struct dwarfscopes_unit *unit, Dwarf_Die *scope, int32_t parent, unsigned depth, size_t *left)
{
    Dwarf_Die die;
    int error = 0;
    if (depth >= DWARFSCOPES_NESTING || dwarf_child(scope, &die) != 0)
        return 0;
    for (;;) {
        size_t first = unit->count;
        if (is_scope(dwarf_tag(&die)) && dwarf_haschildren(&die) > 0) {
            error = add_scope(unit, &die, parent);
            if (!error)
                error = read_in(unit, &die, (int32_t)first, depth + 1, left);
        }
        if (error || !dwarfscopes_next_entry(&die, left))
            return error;
        end_scopes(unit, first, address_of(&die));
    }
}

static void unit_clear(struct dwarfscopes_unit *unit)
{
    free(unit->items);
    *unit = (struct dwarfscopes_unit){0};
}

static int read_unit(struct dwarfscopes_unit *unit, Dwarf_Die *die)
{
    size_t left = ENTRIES_MAX;
    int error = read_in(unit, die, -1, 0, &left);
    end_scopes(unit, 0, UINT64_MAX);
    unit->unit = die->addr;
    return error;
}

/* The innermost that the entry is in, not itself; -1: none. */
static int32_t find_scope(const struct dwarfscopes_unit *unit, const Dwarf_Die *die)
{
    size_t low = 0;
    size_t high = unit->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (address_of(&unit->items[middle].die) < address_of(die))
            low = middle + 1;
        else
            high = middle;
    }
    int32_t at = (int32_t)low - 1;
    while (at >= 0 && unit->items[at].end <= address_of(die))
        at = unit->items[at].parent;
    return at;
}

static int find_unit(struct dwarfscopes *scopes, Dwarf_Die *die, struct dwarfscopes_unit **ret_unit)
{
    for (size_t i = 0; i < DWARFSCOPES_UNITS; i++) {
        *ret_unit = &scopes->units[i];
        if (scopes->units[i].unit == die->addr)
            return 0;
    }
    *ret_unit = &scopes->units[scopes->next++ % DWARFSCOPES_UNITS];
    unit_clear(*ret_unit);
    int error = read_unit(*ret_unit, die);
    if (error)
        unit_clear(*ret_unit);
    return error;
}

void dwarfscopes_clear(struct dwarfscopes *scopes)
{
    for (size_t i = 0; i < DWARFSCOPES_UNITS; i++)
        unit_clear(&scopes->units[i]);
}

int dwarfscopes_of(struct dwarfscopes *scopes, Dwarf_Die *die, Dwarf_Die ret_chain[DWARFSCOPES_NESTING],
                   size_t *ret_count)
{
    Dwarf_Die unit_die;
    struct dwarfscopes_unit *unit;
    *ret_count = 0;
    if (!dwarf_diecu(die, &unit_die, NULL, NULL))
        return 0;
    int error = find_unit(scopes, &unit_die, &unit);
    if (error)
        return error;
    int32_t at = find_scope(unit, die);
    while (at >= 0 && *ret_count < DWARFSCOPES_NESTING) {
        Dwarf_Die *scope = &ret_chain[(*ret_count)++];
        *scope = unit->items[at].die;
        if (dwarf_tag(scope) == DW_TAG_subprogram)
            break;
        at = unit->items[at].parent;
    }
    return 0;
}
