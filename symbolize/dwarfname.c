#include "symbolize/dwarfname.h"

#include <dwarf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *string_of(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attribute;
    return dwarf_formstring(dwarf_attr_integrate(die, name, &attribute));
}

enum { LANG_C_PLUS_PLUS_17 = 0x2b, LANG_C_PLUS_PLUS_20 = 0x2c }; /* newer than libdw 0.188 */

/* Only the unit has a language; those of several units that share what they have (dwz) need not have one. */
static bool has_scopes(Dwarf_Die *die)
{
    Dwarf_Die unit;
    if (!dwarf_diecu(die, &unit, NULL, NULL))
        return false;
    switch (dwarf_srclang(&unit)) {
    case DW_LANG_C_plus_plus:
    case DW_LANG_C_plus_plus_03:
    case DW_LANG_C_plus_plus_11:
    case DW_LANG_C_plus_plus_14:
    case LANG_C_PLUS_PLUS_17:
    case LANG_C_PLUS_PLUS_20:
    case DW_LANG_Rust:
    case DW_LANG_D:
        return true;
    default:
        return false;
    }
}

/* Where the function is declared, which is where its name is. */
static Dwarf_Die declaration_of(Dwarf_Die *die)
{
    static const unsigned links[] = {DW_AT_abstract_origin, DW_AT_specification};
    Dwarf_Die declaration = *die;
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        Dwarf_Attribute attribute;
        Dwarf_Die other;
        if (dwarf_attr(&declaration, links[i], &attribute) && dwarf_formref_die(&attribute, &other))
            declaration = other;
    }
    return declaration;
}

static bool is_named_scope(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_structure_type || tag == DW_TAG_class_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_enumeration_type || tag == DW_TAG_interface_type ||
           tag == DW_TAG_module;
}

static void add_scope(Dwarf_Die *scope, bool is_lambda, struct strbuf *name)
{
    const char *text = dwarf_diename(scope);
    if (!text)
        text = is_lambda ? "{lambda}" : dwarf_tag(scope) == DW_TAG_namespace ? "(anonymous namespace)" : "(anonymous)";
    strbuf_addf(name, "%s::", text);
}

/* Functions are in functions no deeper than this. */
enum { FUNCTIONS_MAX = 8 };

/* Those of a type in a function begin with the function's own, which stand where it is declared. */
static int add_scopes(struct dwarfscopes *scopes, Dwarf_Die *die, unsigned functions, struct strbuf *name)
{
    Dwarf_Die chain[DWARFSCOPES_NESTING];
    size_t count;
    const char *own = dwarf_diename(die);
    int error = dwarfscopes_of(scopes, die, chain, &count);
    if (!error && count > 0 && dwarf_tag(&chain[count - 1]) == DW_TAG_subprogram && functions < FUNCTIONS_MAX) {
        Dwarf_Die declaration = declaration_of(&chain[count - 1]);
        error = add_scopes(scopes, &declaration, functions + 1, name);
    }
    for (size_t i = count; i-- > 0;)
        if (is_named_scope(dwarf_tag(&chain[i])) || dwarf_tag(&chain[i]) == DW_TAG_subprogram)
            add_scope(&chain[i], i == 0 && own && strcmp(own, "operator()") == 0, name);
    return error;
}

int dwarfname_read(struct dwarfscopes *scopes, Dwarf_Die *die, struct strbuf *name)
{
    strbuf_clear(name);
    const char *text = string_of(die, DW_AT_linkage_name);
    if (!text)
        text = string_of(die, DW_AT_MIPS_linkage_name);
    if (!text) {
        text = dwarf_diename(die);
        Dwarf_Die declaration = declaration_of(die);
        int error = text && has_scopes(die) ? add_scopes(scopes, &declaration, 0, name) : 0;
        if (error)
            return error;
    }
    if (text)
        strbuf_adds(name, text);
    return strbuf_error(name);
}
