#include "symbolize/debuginfo.h"

#include "common/array.h"
#include "common/strbuf.h"
#include "symbolize/dwarffile.h"
#include "symbolize/dwarffunctions.h"
#include "symbolize/dwarfname.h"
#include "symbolize/dwarfsplit.h"
#include "symbolize/mapguard.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS_MAX = 1 << 22, CHAIN_MAX = 512, ENTRIES_MAX = 1 << 26 };

/* After so many lines (of about 50 bytes each) or functions (100) everything that was read is let go. */
enum { LINES_KEPT = 4 << 20, FUNCTIONS_KEPT = 2 << 20 };

/* A compilation unit. The handles are those of the file that is open. */
struct unit {
    Dwarf_Off die_off;
    uint64_t bytes; /* of the unit */
    bool is_read;
    bool has_lines;
    Dwarf_Die die;     /* of the unit in the file: has the lines */
    Dwarf_Die tree;    /* has the functions: the same, or the split unit's */
    const void *split; /* what the split unit's file is mapped at, guarded; NULL: none */
    struct dwarffunctions functions;
};

struct debuginfo {
    const struct image *image;
    struct debugfile_search search;
    bool lines;
    bool has_warned; /* of split units that cannot be read */
    struct dwarffile file;
    struct unit *units;
    size_t unit_count;
    size_t unit_capacity;
    struct rangemap ranges; /* to the number of the unit */
    struct dwarfscopes scopes;

    /* Since the file was opened. */
    size_t lines_read;
    size_t functions_read;

    /* What was asked for last. */
    const void *function; /* where its entry is; NULL: none */
    struct inlinings inlinings;
    struct source_frame *frames;
    struct strbuf *texts; /* two a frame: name, file */
    size_t frame_capacity;
    size_t text_capacity;
};

/* ---- units ---- */

static int add_unit(struct debuginfo *debuginfo, Dwarf_Die *die)
{
    struct rangemap *ranges = &debuginfo->ranges;
    size_t before = ranges->count;
    if (debuginfo->unit_count >= UNITS_MAX)
        return 0;
    int error = dwarffunctions_add_ranges(ranges, die, (uint32_t)debuginfo->unit_count);
    if (error || ranges->count == before) /* has no code, as far as it says */
        return error;
    error = array_room(&debuginfo->units, &debuginfo->unit_capacity, debuginfo->unit_count + 1);
    if (!error)
        debuginfo->units[debuginfo->unit_count++] = (struct unit){.die_off = dwarf_dieoffset(die)};
    return error;
}

static int read_units(struct debuginfo *debuginfo)
{
    Dwarf_CU *cu = NULL;
    Dwarf_Die die;
    uint8_t type;
    struct unit *last = NULL;
    while (dwarf_get_units(debuginfo->file.dwarf, cu, &cu, NULL, &type, &die, NULL) == 0) {
        if (last)
            last->bytes = dwarf_dieoffset(&die) - last->die_off;
        size_t before = debuginfo->unit_count;
        int error = type == DW_UT_compile || type == DW_UT_skeleton ? add_unit(debuginfo, &die) : 0;
        if (error)
            return error;
        last = debuginfo->unit_count > before ? &debuginfo->units[before] : NULL;
    }
    if (last)
        last->bytes = image_size(debuginfo->image);
    rangemap_sort(&debuginfo->ranges);
    return 0;
}

static void forget_units(struct debuginfo *debuginfo)
{
    for (size_t i = 0; i < debuginfo->unit_count; i++) {
        dwarffunctions_deinit(&debuginfo->units[i].functions);
        mapguard_remove(debuginfo->units[i].split);
        debuginfo->units[i].split = NULL;
        debuginfo->units[i].is_read = debuginfo->units[i].has_lines = false;
    }
    dwarfscopes_clear(&debuginfo->scopes);
    debuginfo->function = NULL;
    debuginfo->lines_read = 0;
    debuginfo->functions_read = 0;
}

/* Has so much been read that it is to be let go? The file is mapped, so that opening it again costs little. */
static int keep_bounded(struct debuginfo *debuginfo)
{
    if (debuginfo->lines_read < LINES_KEPT && debuginfo->functions_read < FUNCTIONS_KEPT)
        return 0;
    forget_units(debuginfo);
    dwarffile_close(&debuginfo->file);
    return dwarffile_open(&debuginfo->file, debuginfo->image, &debuginfo->search);
}

/* Said once. */
static void warn_of_split(struct debuginfo *debuginfo, Dwarf_Die *skeleton)
{
    static const char then[] = "functions have their names from the symbol table, without inlined ones";
    struct strbuf path = {0};
    struct strbuf text = {0};
    if (debuginfo->has_warned || !debuginfo->search.warn)
        return;
    debuginfo->has_warned = true;
    strbuf_addf(&path, "%s.dwp", image_path(debuginfo->image));
    if (path.data && dwarfsplit_is_regular(path.data))
        strbuf_addf(&text, "%s is not read: %s", path.data, then);
    else
        strbuf_addf(&text, "%s of %s is not there, or of another build: %s", dwarfsplit_name(skeleton),
                    image_path(debuginfo->image), then);
    if (text.data)
        debuginfo->search.warn(debuginfo->search.context, text.data);
    strbuf_deinit(&path);
    strbuf_deinit(&text);
}

/* An entry has a byte at least; of a split unit the size is not known. */
static int read_functions(struct unit *unit, uint64_t lowest_svma, bool deep)
{
    bool is_split = unit->tree.addr != unit->die.addr;
    size_t most = is_split || unit->bytes > ENTRIES_MAX ? ENTRIES_MAX : (size_t)unit->bytes;
    unit->functions.ranges.lowest = lowest_svma;
    return dwarffunctions_read(&unit->functions, &unit->tree, deep, most);
}

static int read_unit(struct debuginfo *debuginfo, struct unit *unit)
{
    unit->is_read = true;
    memset(&unit->die, 0, sizeof(unit->die));
    memset(&unit->tree, 0, sizeof(unit->tree));
    if (!dwarf_offdie(debuginfo->file.dwarf, unit->die_off, &unit->die))
        return 0;
    unit->tree = unit->die;
    if (dwarfsplit_is_split(&unit->die) && !dwarfsplit_open(debuginfo->image, &unit->die, &unit->tree, &unit->split)) {
        warn_of_split(debuginfo, &unit->die);
        unit->tree = unit->die;
    }
    int error = read_functions(unit, debuginfo->ranges.lowest, false);
    debuginfo->functions_read += unit->functions.count;
    return error;
}

/* The unit at the address, read; NULL: none. */
static int find_unit(struct debuginfo *debuginfo, uint64_t svma, struct unit **ret_unit)
{
    uint32_t number;
    *ret_unit = NULL;
    if (!debuginfo->file.dwarf || !rangemap_find(&debuginfo->ranges, svma, &number))
        return 0;
    struct unit *unit = &debuginfo->units[number];
    int error = unit->is_read ? 0 : keep_bounded(debuginfo);
    if (!error && debuginfo->file.dwarf && !unit->is_read)
        error = read_unit(debuginfo, unit);
    if (!error && unit->is_read)
        *ret_unit = unit;
    return error;
}

static int find_function(struct debuginfo *debuginfo, struct unit *unit, uint64_t svma, Dwarf_Die **ret_function)
{
    int error = 0;
    *ret_function = dwarffunctions_find(&unit->functions, svma);
    if (!*ret_function && !unit->functions.is_deep && unit->tree.addr) {
        error = read_functions(unit, debuginfo->ranges.lowest, true);
        debuginfo->functions_read += unit->functions.count;
        debuginfo->function = NULL;
        *ret_function = dwarffunctions_find(&unit->functions, svma);
    }
    return error;
}

/* ---- lines ---- */

/* A path of the line table; one that is not absolute is from the directory of the compilation. */
static int set_path(struct strbuf *text, Dwarf_Die *unit, const char *path)
{
    Dwarf_Attribute attribute;
    const char *directory = path[0] == '/' ? NULL : dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
    strbuf_clear(text);
    if (directory)
        strbuf_addf(text, "%s/", directory);
    strbuf_adds(text, path);
    return strbuf_error(text);
}

static void count_lines(struct debuginfo *debuginfo, Dwarf_Die *unit)
{
    Dwarf_Lines *lines;
    size_t count;
    if (dwarf_getsrclines(unit, &lines, &count) == 0)
        debuginfo->lines_read += count;
}

/* Where the code at the address stands. */
static int set_line(struct unit *unit, uint64_t svma, struct strbuf *text, struct source_frame *frame)
{
    Dwarf_Line *line = unit->die.addr ? dwarf_getsrc_die(&unit->die, svma) : NULL;
    const char *path = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    int number = 0;
    if (!path || dwarf_lineno(line, &number) != 0 || number <= 0)
        return 0;
    int error = set_path(text, &unit->die, path);
    frame->line = (unsigned)number;
    frame->file = text->data;
    return error;
}

/* Where the inlined function was called. */
static int set_call(struct unit *unit, Dwarf_Die *inlined, struct strbuf *text, struct source_frame *frame)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file;
    Dwarf_Word line;
    Dwarf_Files *files;
    size_t count;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 || line == 0 ||
        line > UINT32_MAX || dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
        dwarf_getsrcfiles(&unit->die, &files, &count) != 0 || file >= count)
        return 0;
    const char *path = dwarf_filesrc(files, (size_t)file, NULL, NULL);
    if (!path)
        return 0;
    int error = set_path(text, &unit->die, path);
    frame->line = (unsigned)line;
    frame->file = text->data;
    return error;
}

/* ---- frames ---- */

static int make_room(struct debuginfo *debuginfo, size_t count)
{
    size_t had = debuginfo->text_capacity;
    int error = array_room(&debuginfo->frames, &debuginfo->frame_capacity, count);
    if (!error)
        error = array_room(&debuginfo->texts, &debuginfo->text_capacity, 2 * count);
    if (!error)
        memset(debuginfo->texts + had, 0, (debuginfo->text_capacity - had) * sizeof(*debuginfo->texts));
    return error;
}

/* The entries of the chain, outermost first: the function, then inlined calls. Returns their count. */
static size_t list_chain(struct debuginfo *debuginfo, Dwarf_Die *function, uint64_t svma, Dwarf_Die *chain[CHAIN_MAX])
{
    int32_t deepest = inlinings_find(&debuginfo->inlinings, svma);
    struct inlining *items = debuginfo->inlinings.items;
    size_t depth = deepest < 0 ? 0 : items[deepest].depth;
    if (depth >= CHAIN_MAX)
        depth = 0;
    chain[0] = function;
    size_t at = depth;
    for (int32_t i = deepest; i >= 0 && at > 0; i = items[i].parent)
        chain[at--] = &items[i].die;
    return depth + 1;
}

static int set_frame(struct debuginfo *debuginfo, struct unit *unit, uint64_t svma, Dwarf_Die *const *chain,
                     size_t count, size_t index, bool names_function)
{
    struct strbuf *name = &debuginfo->texts[2 * index];
    struct strbuf *file = &debuginfo->texts[2 * index + 1];
    struct source_frame *frame = &debuginfo->frames[index];
    *frame = (struct source_frame){0};
    bool is_named = chain[index] && (index > 0 || names_function);
    int error = is_named ? dwarfname_read(&debuginfo->scopes, chain[index], name) : 0;
    if (is_named && name->size)
        frame->name = name->data;
    if (error || !debuginfo->lines)
        return error;
    return index + 1 == count ? set_line(unit, svma, file, frame) : set_call(unit, chain[index + 1], file, frame);
}

static int set_frames(struct debuginfo *debuginfo, struct unit *unit, Dwarf_Die *function, uint64_t svma,
                      bool names_function, size_t *ret_count)
{
    Dwarf_Die *chain[CHAIN_MAX];
    size_t count = list_chain(debuginfo, function, svma, chain);
    int error = make_room(debuginfo, count);
    for (size_t i = 0; i < count && !error; i++)
        error = set_frame(debuginfo, unit, svma, chain, count, i, names_function);
    *ret_count = count;
    return error;
}

int debuginfo_find(struct debuginfo *debuginfo, uint64_t svma, bool names_function,
                   const struct source_frame **ret_frames, size_t *ret_count)
{
    struct unit *unit;
    Dwarf_Die *function = NULL;
    *ret_count = 0;
    int error = find_unit(debuginfo, svma, &unit);
    if (error || !unit)
        return error;
    error = find_function(debuginfo, unit, svma, &function);
    if (!error && !function) {
        inlinings_clear(&debuginfo->inlinings);
        debuginfo->function = NULL;
    } else if (!error && function->addr != debuginfo->function) {
        error = inlinings_read(&debuginfo->inlinings, function);
        debuginfo->function = function->addr;
    }
    if (!error && debuginfo->lines && !unit->has_lines && unit->die.addr) {
        count_lines(debuginfo, &unit->die);
        unit->has_lines = true;
    }
    if (!error)
        error = set_frames(debuginfo, unit, function, svma, names_function, ret_count);
    *ret_frames = debuginfo->frames;
    return error;
}

/* ---- the whole ---- */

int debuginfo_new(const struct image *image, const struct debugfile_search *search, bool lines,
                  struct debuginfo **ret_debuginfo)
{
    *ret_debuginfo = NULL;
    struct debuginfo *debuginfo = calloc(1, sizeof(*debuginfo));
    if (!debuginfo)
        return -ENOMEM;
    debuginfo->image = image;
    debuginfo->search = *search;
    debuginfo->lines = lines;
    image_code_start(image, &debuginfo->ranges.lowest); /* what the linker has left out begins at 0 */
    int error = dwarffile_open(&debuginfo->file, image, search);
    if (!error && debuginfo->file.dwarf)
        error = read_units(debuginfo);
    if (error || !debuginfo->file.dwarf) {
        debuginfo_free(debuginfo);
        return error;
    }
    *ret_debuginfo = debuginfo;
    return 0;
}

void debuginfo_free(struct debuginfo *debuginfo)
{
    if (!debuginfo)
        return;
    forget_units(debuginfo);
    dwarffile_close(&debuginfo->file);
    rangemap_deinit(&debuginfo->ranges);
    inlinings_deinit(&debuginfo->inlinings);
    for (size_t i = 0; i < debuginfo->text_capacity; i++)
        strbuf_deinit(&debuginfo->texts[i]);
    free(debuginfo->texts);
    free(debuginfo->frames);
    free(debuginfo->units);
    free(debuginfo);
}
