#include "symbolize/dwarfsplit.h"

#include "common/strbuf.h"
#include "symbolize/mapguard.h"

#include <dwarf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool dwarfsplit_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

const char *dwarfsplit_name(Dwarf_Die *unit)
{
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr(unit, DW_AT_dwo_name, &attribute));
    return name ? name : dwarf_formstring(dwarf_attr(unit, DW_AT_GNU_dwo_name, &attribute));
}

bool dwarfsplit_is_split(Dwarf_Die *unit)
{
    return dwarfsplit_name(unit) != NULL;
}

/* The directory of the file that libdw was given, ending in '/', as libdw finds it; NULL: it has none. To be freed. */
static char *directory_of(const struct image *image)
{
    char link[32];
    if (image_fd(image) < 0)
        return NULL;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", image_fd(image));
    char *path = realpath(link, NULL);
    if (path && strrchr(path, '/'))
        strrchr(path, '/')[1] = '\0';
    return path;
}

static bool is_file_or_nothing(const char *directory, const char *between, const char *name)
{
    struct strbuf path = {0};
    struct stat st;
    strbuf_addf(&path, "%s%s/%s", directory, between, name);
    bool is_safe = !strbuf_error(&path) && (stat(path.data, &st) < 0 || S_ISREG(st.st_mode));
    strbuf_deinit(&path);
    return is_safe;
}

/*
 * Whatever is at a path that libdw would open is a file, or nothing: it would wait for the other end of a FIFO. It
 * looks in the directory of the file that it was given, and in that of the compilation, which may be relative to the
 * former.
 */
static bool is_safe(const struct image *image, const char *compilation, const char *name)
{
    if (name[0] == '/')
        return is_file_or_nothing("", "", name);
    char *own = directory_of(image);
    bool is_safe = (!own || is_file_or_nothing(own, "", name)) &&
                   (!compilation || is_file_or_nothing(compilation[0] == '/' || !own ? "" : own, compilation, name));
    free(own);
    return is_safe;
}

/* libdw has mapped the file. */
static bool guard(Dwarf_Die *unit, const void **ret_guarded)
{
    size_t bytes;
    const void *mapping = elf_rawfile(dwarf_getelf(dwarf_cu_getdwarf(unit->cu)), &bytes);
    if (!mapping || mapguard_add(mapping, bytes) < 0)
        return false;
    *ret_guarded = mapping;
    return true;
}

bool dwarfsplit_open(const struct image *image, Dwarf_Die *skeleton, Dwarf_Die *ret_unit, const void **ret_guarded)
{
    Dwarf_Attribute attribute;
    Dwarf_Die unit = {0};
    const char *name = dwarfsplit_name(skeleton);
    const char *directory = dwarf_formstring(dwarf_attr(skeleton, DW_AT_comp_dir, &attribute));
    if (!name || !is_safe(image, directory, name) ||
        dwarf_cu_info(skeleton->cu, NULL, NULL, NULL, &unit, NULL, NULL, NULL) != 0 || !unit.addr ||
        !guard(&unit, ret_guarded))
        return false;
    *ret_unit = unit;
    return true;
}
