#include "symbolize/dwarfsplit.h"

#include "common/strbuf.h"

#include <dwarf.h>
#include <sys/stat.h>

bool dwarfsplit_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static const char *name_of(Dwarf_Die *unit)
{
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr(unit, DW_AT_dwo_name, &attribute));
    return name ? name : dwarf_formstring(dwarf_attr(unit, DW_AT_GNU_dwo_name, &attribute));
}

bool dwarfsplit_is_split(Dwarf_Die *unit)
{
    return name_of(unit) != NULL;
}

/* Whatever is at a path that libdw would open is a file, or nothing: it would wait for the other end of a FIFO. */
static bool is_safe(const char *directory, const char *name)
{
    struct strbuf path = {0};
    struct stat st;
    if (name[0] != '/' && directory)
        strbuf_addf(&path, "%s/", directory);
    strbuf_adds(&path, name);
    bool is_safe = !strbuf_error(&path) && (stat(path.data, &st) < 0 || S_ISREG(st.st_mode));
    strbuf_deinit(&path);
    return is_safe;
}

bool dwarfsplit_open(Dwarf_Die *skeleton, Dwarf_Die *ret_unit)
{
    Dwarf_Attribute attribute;
    Dwarf_Die unit = {0};
    const char *name = name_of(skeleton);
    const char *directory = dwarf_formstring(dwarf_attr(skeleton, DW_AT_comp_dir, &attribute));
    if (!name || !is_safe(directory, name) ||
        dwarf_cu_info(skeleton->cu, NULL, NULL, NULL, &unit, NULL, NULL, NULL) != 0 || !unit.addr)
        return false;
    *ret_unit = unit;
    return true;
}
