#include "symbolize/symtab.h"

#include "common/array.h"
#include "symbolize/dynamic.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SYMBOLS = 16 << 20,
    MAX_STRINGS_BYTES = 1 << 30,
    MAX_NAME_BYTES = 64 << 10,
    MAX_CODE_RANGES = 1 << 16,
    MAX_TABLES = 2, /* of an image */
    RANK_NO_FUNCTION = 1 << 16,
    SYMBOLS_AT_ONCE = 512,
    COMPARED_NAME_BYTES = 4 << 10 /* bounds what a file full of long equal names can cost */
};

struct symtab {
    struct symbol *ranges; /* sorted, disjoint */
    size_t count;
    size_t capacity;
    bool has_locals;
    char *strings[MAX_TABLES * SYMTAB_IMAGES_MAX]; /* owned; the names point into them */
};

/* A symbol that may name the bytes [start, end). */
struct candidate {
    uint64_t start;
    uint64_t end; /* of a sizeless one: the end of its section */
    const char *name;
    uint32_t rank; /* the smaller, the better */
    bool sizeless;
};

struct candidates {
    struct candidate *items;
    size_t count;
    size_t capacity;
};

/* A file with symbols. */
struct source {
    const struct image *image;
    Elf *elf;
    Elf_Scn *tables[MAX_TABLES]; /* .symtab, .dynsym */
    uint64_t bias;               /* what its addresses lack */
};

/* Addresses of code, sorted and disjoint: the executable sections. */
struct code_range {
    uint64_t start;
    uint64_t end;
};

struct code_ranges {
    struct code_range *items;
    size_t count;
    size_t capacity;
};

static bool is_function(unsigned char type)
{
    return type == STT_FUNC || type == STT_GNU_IFUNC;
}

static bool is_nameable(unsigned char type, const char *name)
{
    return type != STT_SECTION && type != STT_FILE && type != STT_TLS && name[0] != '\0' && name[0] != '$';
}

/* Everything of the rule that comes before the starts and the bytes of the names. */
static uint32_t rank_of(unsigned char type, unsigned char binding, const char *name)
{
    uint32_t underscores = 0;
    while (underscores < 255 && name[underscores] == '_')
        underscores++;
    uint32_t scope = 2;
    if (binding == STB_GLOBAL || binding == STB_GNU_UNIQUE)
        scope = 0;
    else if (binding == STB_WEAK)
        scope = 1;
    return (is_function(type) ? 0U : RANK_NO_FUNCTION) | scope << 8 | underscores;
}

static int compare_preference(const struct candidate *a, const struct candidate *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->start != b->start)
        return a->start > b->start ? -1 : 1;
    return a->name == b->name ? 0 : strncmp(a->name, b->name, COMPARED_NAME_BYTES);
}

/* By start; at one start the sized ones first, then the preferred name first. */
static int compare_start(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->sizeless != b->sizeless)
        return a->sizeless ? 1 : -1;
    return compare_preference(a, b);
}

static int add_candidate(struct candidates *all, const struct symtab_entry *entry)
{
    if (!is_nameable(entry->type, entry->name) || entry->svma >= entry->limit_svma)
        return 0;
    uint64_t room = entry->limit_svma - entry->svma;
    uint64_t bytes = entry->bytes == 0 || entry->bytes > room ? room : entry->bytes;
    int error = array_room(&all->items, &all->capacity, all->count + 1);
    if (error)
        return error;
    all->items[all->count++] = (struct candidate){.start = entry->svma,
                                                  .end = entry->svma + bytes,
                                                  .name = entry->name,
                                                  .rank = rank_of(entry->type, entry->binding, entry->name),
                                                  .sizeless = entry->bytes == 0};
    return 0;
}

static int emit(struct symtab *table, uint64_t start, uint64_t end, const struct candidate *by)
{
    if (start >= end)
        return 0;
    if (table->count > 0) {
        struct symbol *last = &table->ranges[table->count - 1];
        if (last->end_svma == start && last->name == by->name && last->is_sizeless == by->sizeless) {
            last->end_svma = end;
            return 0;
        }
    }
    int error = array_room(&table->ranges, &table->capacity, table->count + 1);
    if (error)
        return error;
    table->ranges[table->count++] =
        (struct symbol){.start_svma = start, .end_svma = end, .name = by->name, .is_sizeless = by->sizeless};
    return 0;
}

/* The sized candidates that may cover the point the sweep has reached, the preferred one on top; ended ones leave late.
 */
struct heap {
    const struct candidate **items;
    size_t count;
};

static void heap_add(struct heap *heap, const struct candidate *item)
{
    size_t at = heap->count++;
    while (at > 0 && compare_preference(item, heap->items[(at - 1) / 2]) < 0) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static void heap_drop_first(struct heap *heap)
{
    const struct candidate *moved = heap->items[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && compare_preference(heap->items[child + 1], heap->items[child]) < 0)
            child++;
        if (compare_preference(moved, heap->items[child]) <= 0)
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = moved;
}

/* Names the bytes [at, until), in which no candidate starts. Returns 0 or -ENOMEM. */
static int name_between(struct symtab *table, struct heap *heap, uint64_t at, uint64_t until)
{
    while (at < until && heap->count > 0) {
        const struct candidate *best = heap->items[0];
        if (best->end <= at) {
            heap_drop_first(heap);
            continue;
        }
        uint64_t end = best->end < until ? best->end : until;
        int error = emit(table, at, end, best);
        if (error)
            return error;
        at = end;
    }
    return 0;
}

/* From the sorted candidates to ranges that do not overlap. `heap` has room for all of them. */
static int sweep(struct symtab *table, const struct candidates *all, struct heap *heap)
{
    uint64_t covered_end = 0; /* the largest end of a sized one so far */
    for (size_t i = 0; i < all->count;) {
        uint64_t start = all->items[i].start;
        const struct candidate *sizeless = NULL;
        uint64_t reach = 0; /* of those that start here so far, which are all preferred to the next */
        if (covered_end <= start)
            heap->count = 0;
        for (; i < all->count && all->items[i].start == start; i++) {
            const struct candidate *item = &all->items[i];
            if (item->sizeless) {
                sizeless = sizeless ? sizeless : item;
                continue;
            }
            if (item->end <= reach)
                continue;
            reach = item->end;
            heap_add(heap, item);
            covered_end = item->end > covered_end ? item->end : covered_end;
        }
        uint64_t next_start = i < all->count ? all->items[i].start : UINT64_MAX;
        int error = 0;
        if (covered_end > start)
            error = name_between(table, heap, start, next_start);
        else if (sizeless)
            error = emit(table, start, sizeless->end < next_start ? sizeless->end : next_start, sizeless);
        if (error)
            return error;
    }
    return 0;
}

static int build_ranges(struct symtab *table, struct candidates *all)
{
    if (all->count == 0)
        return 0;
    qsort(all->items, all->count, sizeof(*all->items), compare_start);
    struct heap heap = {.items = malloc(all->count * sizeof(*heap.items))};
    if (!heap.items)
        return -ENOMEM;
    int error = sweep(table, all, &heap);
    free(heap.items);
    return error;
}

static int compare_code_range(const void *left, const void *right)
{
    const struct code_range *a = left;
    const struct code_range *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Sorts them and cuts off what overlaps. */
static void sort_ranges(struct code_ranges *code)
{
    if (code->count > 0)
        qsort(code->items, code->count, sizeof(*code->items), compare_code_range);
    for (size_t i = 0; i + 1 < code->count; i++)
        if (code->items[i].end > code->items[i + 1].start)
            code->items[i].end = code->items[i + 1].start;
}

/* The sections that hold symbols. */
static void find_tables(struct source *source)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(source->elf, section))) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header))
            continue;
        if (header.sh_type == SHT_SYMTAB && !source->tables[0])
            source->tables[0] = section;
        if (header.sh_type == SHT_DYNSYM && !source->tables[1])
            source->tables[1] = section;
    }
}

static int find_code(Elf *elf, struct code_ranges *code)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(elf, section))) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header))
            continue;
        if (!(header.sh_flags & SHF_ALLOC) || !(header.sh_flags & SHF_EXECINSTR) || header.sh_size == 0 ||
            header.sh_addr > UINT64_MAX - header.sh_size || code->count >= MAX_CODE_RANGES)
            continue;
        int error = array_room(&code->items, &code->capacity, code->count + 1);
        if (error)
            return error;
        code->items[code->count++] =
            (struct code_range){.start = header.sh_addr, .end = header.sh_addr + header.sh_size};
    }
    sort_ranges(code);
    return 0;
}

static const struct code_range *code_find(const struct code_ranges *code, uint64_t svma)
{
    size_t low = 0;
    size_t high = code->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code->items[middle].start <= svma)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && svma < code->items[low - 1].end ? &code->items[low - 1] : NULL;
}

/*
 * Copies a table's strings into `*ret_strings` (NULL: there are none), cut behind the last NUL so that every offset
 * below
 * `*ret_bytes` is the start of an ended string.
 */
static int read_strings(const struct image *image, Elf *elf, size_t section_index, char **ret_strings,
                        size_t *ret_bytes)
{
    *ret_strings = NULL;
    *ret_bytes = 0;
    Elf_Scn *section = elf_getscn(elf, section_index);
    GElf_Shdr header;
    if (!section || !gelf_getshdr(section, &header) || header.sh_type != SHT_STRTAB || header.sh_size == 0 ||
        (header.sh_flags & SHF_COMPRESSED) || header.sh_size > MAX_STRINGS_BYTES ||
        header.sh_size > image_size(image) || header.sh_offset > image_size(image) - header.sh_size)
        return 0;
    char *strings = malloc(header.sh_size);
    if (!strings)
        return -ENOMEM;
    const char *last = image_read_off(image, header.sh_offset, strings, header.sh_size)
                           ? NULL
                           : memrchr(strings, '\0', header.sh_size);
    if (!last) {
        free(strings);
        return 0;
    }
    *ret_strings = strings;
    *ret_bytes = (size_t)(last - strings) + 1;
    return 0;
}

struct strings {
    const char *data;
    size_t bytes;
};

/* One symbol of the file; what names no code is passed over. */
static int add_symbol(struct candidates *all, const GElf_Sym *symbol, struct strings strings,
                      const struct code_ranges *code, uint64_t bias, bool stripped)
{
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || symbol->st_shndx == SHN_COMMON ||
        symbol->st_name >= strings.bytes)
        return 0;
    /* Where the names of local functions are gone, nothing tells how far a sizeless symbol reaches. */
    if (stripped && symbol->st_size == 0)
        return 0;
    const struct code_range *range = code_find(code, symbol->st_value + bias);
    if (!range)
        return 0;
    const char *name = strings.data + symbol->st_name;
    if (strnlen(name, MAX_NAME_BYTES) == MAX_NAME_BYTES)
        return 0;
    struct symtab_entry entry = {.name = name,
                                 .svma = symbol->st_value + bias,
                                 .bytes = symbol->st_size,
                                 .limit_svma = range->end,
                                 .type = GELF_ST_TYPE(symbol->st_info),
                                 .binding = GELF_ST_BIND(symbol->st_info)};
    return add_candidate(all, &entry);
}

static int read_symbols(const struct source *source, Elf_Scn *section, const struct code_ranges *code, bool stripped,
                        struct candidates *all, char **ret_strings)
{
    GElf_Shdr header;
    if (!gelf_getshdr(section, &header) || (header.sh_flags & SHF_COMPRESSED) ||
        header.sh_size / sizeof(Elf64_Sym) > MAX_SYMBOLS)
        return 0;
    struct strings strings = {0};
    int error = read_strings(source->image, source->elf, header.sh_link, ret_strings, &strings.bytes);
    strings.data = *ret_strings;
    if (error || !strings.data)
        return error;
    Elf_Data *data = elf_getdata(section, NULL);
    if (!data || !data->d_buf || data->d_type != ELF_T_SYM)
        return 0;
    size_t count = data->d_size / sizeof(Elf64_Sym);
    for (size_t i = 0; i < count && !error; i++) {
        GElf_Sym symbol;
        if (gelf_getsym(data, (int)i, &symbol))
            error = add_symbol(all, &symbol, strings, code, source->bias, stripped);
    }
    return error;
}

static Elf *open_elf(const struct image *image)
{
    if (elf_version(EV_CURRENT) == EV_NONE)
        return NULL;
    size_t size;
    const void *memory = image_memory(image, &size);
    if (memory)
        return elf_memory((char *)(uintptr_t)memory, size); /* not written to: the handle is only read from */
    /* Reading, not mapping: a file that shrinks under a mapping kills by SIGBUS. */
    return image_fd(image) < 0 ? NULL : elf_begin(image_fd(image), ELF_C_READ, NULL);
}

/* ---- without section headers ---- */

static int read_image_svma(void *context, uint64_t svma, void *buffer, size_t size)
{
    return image_read_svma(context, svma, buffer, size);
}

static int read_dynamic_strings(const struct image *image, const struct dynamic *dynamic, char **ret_strings,
                                struct strings *ret)
{
    uint64_t bytes = dynamic->strings_bytes;
    if (bytes == 0 || bytes > MAX_STRINGS_BYTES || bytes > image_size(image))
        return 0;
    char *strings = malloc(bytes);
    if (!strings)
        return -ENOMEM;
    const char *last =
        image_read_svma(image, dynamic->strings_svma, strings, bytes) ? NULL : memrchr(strings, '\0', bytes);
    if (!last) {
        free(strings);
        return 0;
    }
    *ret_strings = strings;
    *ret = (struct strings){.data = strings, .bytes = (size_t)(last - strings) + 1};
    return 0;
}

static int survey_segments(const struct image *image, struct code_ranges *code)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        if (!segments[i].executable || code->count >= MAX_CODE_RANGES)
            continue;
        int error = array_room(&code->items, &code->capacity, code->count + 1);
        if (error)
            return error;
        code->items[code->count++] =
            (struct code_range){.start = segments[i].svma, .end = segments[i].svma + segments[i].file_bytes};
    }
    sort_ranges(code);
    return 0;
}

static int read_dynamic_symbols(const struct image *image, const struct dynamic *dynamic, uint64_t count,
                                struct strings strings, const struct code_ranges *code, bool stripped,
                                struct candidates *all)
{
    Elf64_Sym symbols[SYMBOLS_AT_ONCE];
    int error = 0;
    for (uint64_t at = 0; at < count && !error;) {
        uint64_t some = count - at < SYMBOLS_AT_ONCE ? count - at : SYMBOLS_AT_ONCE;
        if (image_read_svma(image, dynamic->symbols_svma + at * sizeof(*symbols), symbols, some * sizeof(*symbols)))
            return 0;
        for (uint64_t i = 0; i < some && !error; i++)
            error = add_symbol(all, &symbols[i], strings, code, 0, stripped);
        at += some;
    }
    return error;
}

static int read_dynamic(const struct image *image, const struct code_ranges *code, bool stripped,
                        struct candidates *all, char **ret_strings)
{
    struct image_section section;
    struct dynamic dynamic;
    uint64_t count;
    uint64_t hash_bytes;
    uint8_t entries[DYNAMIC_BYTES_MAX];
    if (!image_find_dynamic(image, &section))
        return 0;
    size_t bytes = section.bytes < sizeof(entries) ? (size_t)section.bytes : sizeof(entries);
    struct svma_reader reader = {.read = read_image_svma, .context = (void *)(uintptr_t)image};
    if (image_read_off(image, section.off, entries, bytes) || !dynamic_parse(entries, bytes, &dynamic) ||
        !dynamic_count(&dynamic, &reader, &count, &hash_bytes) || count > MAX_SYMBOLS)
        return 0;
    struct strings strings = {0};
    int error = read_dynamic_strings(image, &dynamic, ret_strings, &strings);
    if (!error && strings.data)
        error = read_dynamic_symbols(image, &dynamic, count, strings, code, stripped, all);
    return error;
}

/* ---- all files of an image ---- */

static void open_source(const struct image *first, const struct image *image, struct source *ret_source)
{
    uint64_t first_svma;
    uint64_t svma;
    *ret_source = (struct source){.image = image};
    if (image_code_start(first, &first_svma) && image_code_start(image, &svma))
        ret_source->bias = first_svma - svma;
    Elf *elf = image_section_count(image) > 0 ? open_elf(image) : NULL;
    if (elf && elf_kind(elf) != ELF_K_ELF) {
        elf_end(elf);
        elf = NULL;
    }
    ret_source->elf = elf;
    if (elf)
        find_tables(ret_source);
}

/* Among those from `first` on. */
static bool has_function(const struct candidates *all, size_t first)
{
    for (size_t i = first; i < all->count; i++)
        if (all->items[i].rank < RANK_NO_FUNCTION)
            return true;
    return false;
}

static int read_sources(const struct source *sources, size_t count, struct symtab *table, struct candidates *all)
{
    struct code_ranges code = {0};
    bool stripped = true;
    bool has_sections = image_section_count(sources[0].image) > 0;
    int error = 0;
    if (sources[0].elf)
        error = find_code(sources[0].elf, &code);
    else if (!has_sections)
        error = survey_segments(sources[0].image, &code);
    for (size_t i = 0; i < count; i++)
        stripped &= !sources[i].tables[0];
    if (!error && !has_sections)
        error = read_dynamic(sources[0].image, &code, stripped, all, &table->strings[1]);
    for (size_t i = 0; i < count * MAX_TABLES && !error; i++) {
        const struct source *source = &sources[i / MAX_TABLES];
        Elf_Scn *section = source->tables[i % MAX_TABLES];
        size_t before = all->count;
        if (section)
            error = read_symbols(source, section, &code, stripped, all, &table->strings[i]);
        table->has_locals |= i % MAX_TABLES == 0 && has_function(all, before);
    }
    free(code.items);
    return error;
}

int symtab_new(const struct image *image, struct symtab **ret_table)
{
    return symtab_new_merged(&image, 1, ret_table);
}

int symtab_new_merged(const struct image *const *images, size_t count, struct symtab **ret_table)
{
    struct source sources[SYMTAB_IMAGES_MAX];
    struct symtab *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    struct candidates all = {0};
    count = count < SYMTAB_IMAGES_MAX ? count : SYMTAB_IMAGES_MAX;
    for (size_t i = 0; i < count; i++)
        open_source(images[0], images[i], &sources[i]);
    int error = read_sources(sources, count, table, &all);
    for (size_t i = 0; i < count; i++)
        elf_end(sources[i].elf);
    if (!error)
        error = build_ranges(table, &all);
    free(all.items);
    if (error) {
        symtab_free(table);
        return error;
    }
    *ret_table = table;
    return 0;
}

static char *copy_names(const struct symtab_entry *entries, size_t count)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(entries[i].name) + 1;
    char *names = malloc(bytes);
    char *to = names;
    for (size_t i = 0; names && i < count; i++)
        to = stpcpy(to, entries[i].name) + 1;
    return names;
}

int symtab_new_from(const struct symtab_entry *entries, size_t count, struct symtab **ret_table)
{
    struct symtab *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    struct candidates all = {0};
    table->strings[0] = copy_names(entries, count);
    int error = table->strings[0] ? 0 : -ENOMEM;
    const char *name = table->strings[0];
    for (size_t i = 0; i < count && !error; i++) {
        struct symtab_entry entry = entries[i];
        entry.name = name;
        name += strlen(name) + 1;
        error = add_candidate(&all, &entry);
    }
    if (!error)
        error = build_ranges(table, &all);
    free(all.items);
    if (error) {
        symtab_free(table);
        return error;
    }
    *ret_table = table;
    return 0;
}

int symtab_new_sorted(struct symbol *ranges, size_t count, char *names, struct symtab **ret_table)
{
    struct symtab *table = calloc(1, sizeof(*table));
    if (!table) {
        free(ranges);
        free(names);
        return -ENOMEM;
    }
    table->ranges = ranges;
    table->count = table->capacity = count;
    table->strings[0] = names;
    *ret_table = table;
    return 0;
}

void symtab_free(struct symtab *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < sizeof(table->strings) / sizeof(table->strings[0]); i++)
        free(table->strings[i]);
    free(table->ranges);
    free(table);
}

bool symtab_has_locals(const struct symtab *table)
{
    return table->has_locals;
}

size_t symtab_count(const struct symtab *table)
{
    return table->count;
}

bool symtab_find(const struct symtab *table, uint64_t svma, struct symbol *ret_symbol)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->ranges[middle].start_svma <= svma)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || svma >= table->ranges[low - 1].end_svma)
        return false;
    *ret_symbol = table->ranges[low - 1];
    return true;
}
