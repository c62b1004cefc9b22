#include "symbolize/gopclntab.h"

#include "symbolize/imagewords.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FUNCTIONS = 4 << 20,
    MAX_TABLE_BYTES = 256 << 20,
    MAX_NAME_BYTES = 64 << 10,
    MAX_NAMES_BYTES = 256 << 20, /* looked through in all: names may lie over one another */
    MAX_TABLES_TRIED = 8,
    MAX_MODULES_TRIED = 8,
    MODULE_BYTES = 512, /* module data up to the start of the code: 24 words in Go 1.18 */
    MAGIC_BYTES = 8,
    HEADER_BYTES_MAX = 72,
    NONE = 0 /* word 0 of a header is the count of functions */
};

/*
 * Where a version's header, 8 bytes and then words of 8, has what. Offsets in it count from the table's start, those of
 * records from `functions` (Go 1.2: from the table's start), where also the pairs (entry, offset of a record) begin
 * (Go 1.2: behind the count). A record begins with the entry once more and the offset of its name.
 */
struct version {
    uint64_t first; /* magic, two zeros, bytes of the smallest instruction, of a pointer */
    uint64_t text_start;
    uint64_t names;
    uint64_t names_end; /* what lies behind the names */
    uint64_t functions;
    size_t entry_bytes; /* and of what else stands in pairs */
};

static const struct version VERSIONS[] = {
    {.first = 0x08010000fffffffb, .entry_bytes = 8},
    {.first = 0x08010000fffffffa, .names = 2, .names_end = 3, .functions = 6, .entry_bytes = 8},
    {.first = 0x08010000fffffff0, .text_start = 2, .names = 3, .names_end = 4, .functions = 7, .entry_bytes = 4},
    {.first = 0x08010000fffffff1, .text_start = 2, .names = 3, .names_end = 4, .functions = 7, .entry_bytes = 4},
};
enum { VERSION_COUNT = sizeof(VERSIONS) / sizeof(VERSIONS[0]) };

/* A table in memory; all offsets lie in it, and all pairs do. */
struct pclntab {
    uint8_t *data; /* owned */
    size_t bytes;
    uint64_t svma;
    const struct version *version;
    uint64_t count;
    uint64_t pairs_off;
    uint64_t records_off;
    uint64_t names_off;
    uint64_t names_end;
    uint64_t base_svma; /* what entries count from */
};

static uint64_t read_word(const uint8_t *at, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

static uint64_t header_word(const uint8_t *header, uint64_t index)
{
    return read_word(header + MAGIC_BYTES + index * sizeof(uint64_t), sizeof(uint64_t));
}

/* Entry and record in turn; the last is the table's end entry. `index` is at most 2 * count. */
static uint64_t pair_word(const struct pclntab *table, uint64_t index)
{
    size_t bytes = table->version->entry_bytes;
    return read_word(table->data + table->pairs_off + index * bytes, bytes);
}

static const struct version *version_of(uint64_t first)
{
    for (size_t i = 0; i < VERSION_COUNT; i++)
        if (VERSIONS[i].first == first)
            return &VERSIONS[i];
    return NULL;
}

/* From at least HEADER_BYTES_MAX bytes, of which only the sizes are checked against `bytes`. */
static bool parse_header(const uint8_t *header, uint64_t bytes, struct pclntab *table)
{
    const struct version *version = version_of(read_word(header, MAGIC_BYTES));
    if (!version)
        return false;
    table->version = version;
    table->count = header_word(header, 0);
    table->pairs_off = table->records_off = version->functions != NONE ? header_word(header, version->functions) : 0;
    if (version->functions == NONE)
        table->pairs_off = MAGIC_BYTES + sizeof(uint64_t);
    table->names_off = version->names != NONE ? header_word(header, version->names) : 0;
    table->names_end = version->names_end != NONE ? header_word(header, version->names_end) : bytes;
    return table->count > 0 && table->count <= MAX_FUNCTIONS && table->pairs_off <= bytes &&
           (2 * table->count + 1) * version->entry_bytes <= bytes - table->pairs_off &&
           table->names_off < table->names_end && table->names_end <= bytes;
}

/* NULL: it has none, or it is damaged. `*budget` is what may still be looked through. */
static const char *find_name(const struct pclntab *table, uint64_t index, uint64_t *budget)
{
    size_t entry_bytes = table->version->entry_bytes;
    uint64_t record = pair_word(table, 2 * index + 1);
    uint64_t room = table->bytes - table->records_off;
    if (record > room || room - record < entry_bytes + sizeof(uint32_t))
        return NULL;
    const uint8_t *at = table->data + table->records_off + record;
    if (read_word(at, entry_bytes) != pair_word(table, 2 * index))
        return NULL;
    uint64_t name_off = read_word(at + entry_bytes, sizeof(uint32_t));
    if (name_off >= table->names_end - table->names_off)
        return NULL;
    uint64_t limit = table->names_end - table->names_off - name_off;
    limit = limit < MAX_NAME_BYTES ? limit : MAX_NAME_BYTES;
    limit = limit < *budget ? limit : *budget;
    const char *name = (const char *)table->data + table->names_off + name_off;
    size_t length = strnlen(name, (size_t)limit);
    *budget -= length;
    return length > 0 && length < limit ? name : NULL;
}

static bool is_code(const struct image *image, uint64_t start_svma, uint64_t end_svma)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++)
        if (segments[i].executable && start_svma >= segments[i].svma && start_svma < end_svma &&
            end_svma - segments[i].svma <= segments[i].file_bytes)
            return true;
    return false;
}

/* All of it is code, in ascending order: a base with which some addresses would wrap has the last before the first. */
static bool has_sound_entries(const struct image *image, const struct pclntab *table)
{
    for (uint64_t i = 0; i < table->count; i++)
        if (pair_word(table, 2 * i) > pair_word(table, 2 * i + 2))
            return false;
    return is_code(image, table->base_svma + pair_word(table, 0),
                   table->base_svma + pair_word(table, 2 * table->count));
}

struct module_search {
    const struct image *image;
    struct pclntab *table;
    unsigned tried;
    bool found;
};

/*
 * Module data begins with the table's address and goes on, some words later in each version, with the first and the
 * last address of functions and the start of the code.
 */
static bool try_module(void *state, uint64_t svma)
{
    struct module_search *search = state;
    struct pclntab *table = search->table;
    uint8_t data[MODULE_BYTES];
    if (++search->tried > MAX_MODULES_TRIED)
        return true;
    if (image_read_svma(search->image, svma, data, sizeof(data)))
        return false;
    imagewords_relocate(search->image, svma, data, sizeof(data));
    uint64_t first = pair_word(table, 0);
    uint64_t length = pair_word(table, 2 * table->count) - first;
    for (size_t at = 0; at + 3 * sizeof(uint64_t) <= sizeof(data) && !search->found; at += sizeof(uint64_t)) {
        uint64_t start = read_word(data + at, sizeof(uint64_t));
        uint64_t end = read_word(data + at + sizeof(uint64_t), sizeof(uint64_t));
        uint64_t text = read_word(data + at + 2 * sizeof(uint64_t), sizeof(uint64_t));
        search->found = end - start == length && start - text == first && is_code(search->image, start, end);
        if (search->found)
            table->base_svma = text;
    }
    return search->found;
}

/* Whether the program's entry point is the one that Go's runtime has, if Go's code starts at `text_svma`. */
static bool has_go_entry(const struct image *image, const struct pclntab *table, uint64_t text_svma)
{
    static const char PREFIX[] = "_rt0_";
    uint64_t entry = image_entry_svma(image) - text_svma;
    for (uint64_t i = 0; i < table->count; i++) {
        uint64_t budget = MAX_NAME_BYTES;
        if (pair_word(table, 2 * i) != entry)
            continue;
        const char *name = find_name(table, i, &budget);
        return name && strncmp(name, PREFIX, strlen(PREFIX)) == 0;
    }
    return false;
}

/* Finds out what entries count from. Returns 0, -ENODATA or -ENOMEM. */
static int find_base(const struct image *image, struct pclntab *table)
{
    table->base_svma = 0;
    if (table->version->text_start == NONE)
        return 0;
    table->base_svma = header_word(table->data, table->version->text_start);
    if (table->base_svma != 0)
        return 0;
    struct module_search search = {.image = image, .table = table};
    int err = imagewords_find(image, &table->svma, 1, try_module, &search);
    if (err || search.found)
        return err;
    struct image_section text;
    if (!image_find_section(image, ".text", &text) || !has_go_entry(image, table, text.svma))
        return -ENODATA;
    table->base_svma = text.svma;
    return 0;
}

/* Keeps of the table what is needed for long: ranges, and the names that they point to. */
static int make_symbols(const struct pclntab *table, struct symtab **ret_table)
{
    size_t names_bytes = (size_t)(table->names_end - table->names_off);
    const char *names_data = (const char *)table->data + table->names_off;
    struct symbol *ranges = malloc((size_t)table->count * sizeof(*ranges));
    char *names = malloc(names_bytes);
    if (!ranges || !names) {
        free(ranges);
        free(names);
        return -ENOMEM;
    }
    memcpy(names, names_data, names_bytes);
    uint64_t budget = MAX_NAMES_BYTES;
    size_t count = 0;
    for (uint64_t i = 0; i < table->count; i++) {
        uint64_t start = table->base_svma + pair_word(table, 2 * i);
        uint64_t end = table->base_svma + pair_word(table, 2 * i + 2);
        const char *name = start < end ? find_name(table, i, &budget) : NULL;
        if (name)
            ranges[count++] =
                (struct symbol){.start_svma = start, .end_svma = end, .name = names + (name - names_data)};
    }
    return symtab_new_sorted(ranges, count, names, ret_table);
}

/* Returns 0, -ENODATA when there is no sound table in it, or -ENOMEM. */
static int read_table(const struct image *image, const struct image_section *section, struct symtab **ret_table)
{
    struct pclntab table = {.svma = section->svma};
    uint8_t header[HEADER_BYTES_MAX];
    if (section->bytes < sizeof(header) || image_read_off(image, section->off, header, sizeof(header)) ||
        !parse_header(header, section->bytes, &table))
        return -ENODATA;
    int err = image_load_section(image, section, MAX_TABLE_BYTES, &table.data, &table.bytes);
    if (err)
        return err;
    imagewords_relocate(image, table.svma, table.data, table.bytes);
    if (!parse_header(table.data, table.bytes, &table))
        err = -ENODATA;
    if (!err)
        err = find_base(image, &table);
    if (!err && !has_sound_entries(image, &table))
        err = -ENODATA;
    if (!err)
        err = make_symbols(&table, ret_table);
    free(table.data);
    return err;
}

/* What the file has of the segment from `svma` on. */
static bool rest_of_segment(const struct image *image, uint64_t svma, struct image_section *ret_section)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t into = svma - segments[i].svma;
        if (svma < segments[i].svma || into >= segments[i].file_bytes)
            continue;
        uint64_t bytes = segments[i].file_bytes - into;
        *ret_section = (struct image_section){
            .off = segments[i].off + into, .svma = svma, .bytes = bytes < MAX_TABLE_BYTES ? bytes : MAX_TABLE_BYTES};
        return true;
    }
    return false;
}

struct table_search {
    const struct image *image;
    struct symtab *symbols;
    unsigned tried;
    int err;
};

static bool try_table(void *state, uint64_t svma)
{
    struct table_search *search = state;
    struct image_section section;
    if (++search->tried > MAX_TABLES_TRIED)
        return true;
    if (!rest_of_segment(search->image, svma, &section))
        return false;
    int err = read_table(search->image, &section, &search->symbols);
    search->err = err == -ENODATA ? 0 : err;
    return err != -ENODATA;
}

static int search_table(const struct image *image, struct symtab **ret_table)
{
    uint64_t firsts[VERSION_COUNT];
    for (size_t i = 0; i < VERSION_COUNT; i++)
        firsts[i] = VERSIONS[i].first;
    struct table_search search = {.image = image};
    int err = imagewords_find(image, firsts, VERSION_COUNT, try_table, &search);
    if (err || search.err)
        return err ? err : search.err;
    *ret_table = search.symbols;
    return search.symbols ? 0 : -ENODATA;
}

/* Files that no Go linker made are not searched: most are large, and none of them has a table. */
static bool may_be_go(const struct image *image)
{
    struct image_section section;
    return image_section_count(image) == 0 || image_find_section(image, ".go.buildinfo", &section) ||
           image_find_section(image, ".note.go.buildid", &section);
}

int gopclntab_symbols(const struct image *image, struct symtab **ret_table)
{
    struct image_section section;
    int err = -ENODATA;
    if (image_find_section(image, ".gopclntab", &section) ||
        image_find_section(image, ".data.rel.ro.gopclntab", &section))
        err = section.compression == IMAGE_STORED ? read_table(image, &section, ret_table) : -ENODATA;
    else if (may_be_go(image))
        err = search_table(image, ret_table);
    return err == -ENODATA ? symtab_new_sorted(NULL, 0, NULL, ret_table) : err;
}
