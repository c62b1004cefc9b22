#include "name_at.h"

#include "common/rng.h"
#include "symbolize/gopclntab.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* A made image: addresses are file offsets plus BASE. */
enum {
    BASE = 0x400000,
    NAMES_OFF = 0x300,
    SECTIONS_OFF = 0x400,
    DYNAMIC_OFF = 0x600,
    RELOCATIONS_OFF = 0x680,
    TEXT_OFF = 0x1000, /* .text; Go's code starts later in it */
    GO_OFF = 0x1100,
    TEXT_END = 0x2000,
    MODULE_OFF = 0x2000,
    TABLE_OFF = 0x2400,
    TABLE_ROOM = 0x1000,
    MAX_RELOCATIONS = 20,
    FUNCTIONS = 5
};

static const char SECTION_NAMES[] = "\0.shstrtab\0.text\0.gopclntab\0.data.rel.ro.gopclntab\0.go.buildinfo";
enum { NAME_SHSTRTAB = 1, NAME_TEXT = 11, NAME_TABLE = 17, NAME_TABLE_PIE = 28, NAME_BUILDINFO = 51 };

static const char *const NAMES[FUNCTIONS] = {"_rt0_amd64_linux", "main.hot", "main.(*T).Method", "main.main.func1",
                                             "type..eq.a/b.Pair[go.shape.int_0]"};
static const uint64_t ENTRIES[FUNCTIONS + 1] = {0, 0x20, 0x24, 0x80, 0x80, 0xa0}; /* the fourth is empty */

/* Made tables of all versions; offsets are the table's. */
struct made {
    uint8_t bytes[TABLE_ROOM];
    size_t size;
    size_t pairs;
    size_t records;
    size_t names;
    size_t entry_bytes;
    uint64_t base; /* of entries in the table */
};

static const uint32_t MAGICS[] = {0xfffffffb, 0xfffffffa, 0xfffffff0, 0xfffffff1};
enum { MAGIC_COUNT = 4 };

static void put(struct made *made, size_t off, uint64_t value, size_t bytes)
{
    assert_true(off + bytes <= sizeof(made->bytes));
    memcpy(made->bytes + off, &value, bytes);
}

static void put_word(struct made *made, size_t index, uint64_t value)
{
    put(made, 8 + 8 * index, value, 8);
}

static size_t pair_off(const struct made *made, size_t index)
{
    return made->pairs + index * made->entry_bytes;
}

static void put_header(struct made *made, uint32_t magic)
{
    put(made, 0, magic, 4);
    made->bytes[6] = 1;
    made->bytes[7] = 8;
    put_word(made, 0, FUNCTIONS);
}

/* The tables that are not read (of files and lines) are a few bytes between the others. */
static struct made make(uint32_t magic)
{
    struct made made = {.entry_bytes = magic < 0xfffffffa ? 4 : 8};
    bool old = magic == 0xfffffffb;
    size_t names_bytes = 0;
    for (size_t i = 0; i < FUNCTIONS; i++)
        names_bytes += strlen(NAMES[i]) + 1;
    put_header(&made, magic);
    size_t header = made.entry_bytes == 4 ? 72 : 64;
    size_t pairs_bytes = (2 * FUNCTIONS + 1) * made.entry_bytes;
    size_t record_bytes = made.entry_bytes + 8;
    made.names = old ? 16 + pairs_bytes + FUNCTIONS * record_bytes : header;
    made.pairs = old ? 16 : header + (names_bytes + 16) / 8 * 8;
    made.base = made.entry_bytes == 4 ? 0 : BASE + GO_OFF;
    size_t from = old ? 0 : made.pairs;
    made.records = made.pairs + pairs_bytes;
    if (!old) {
        size_t first = made.entry_bytes == 4 ? 3 : 2;
        if (made.entry_bytes == 4)
            put_word(&made, 2, BASE + GO_OFF);
        put_word(&made, first, made.names);
        put_word(&made, first + 1, made.names + names_bytes);
        put_word(&made, first + 2, made.pairs - 8);
        put_word(&made, first + 3, made.pairs - 4);
        put_word(&made, first + 4, made.pairs);
    }
    size_t name = made.names;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        size_t record = made.records + i * record_bytes;
        put(&made, pair_off(&made, 2 * i), made.base + ENTRIES[i], made.entry_bytes);
        put(&made, pair_off(&made, 2 * i + 1), record - from, made.entry_bytes);
        put(&made, record, made.base + ENTRIES[i], made.entry_bytes);
        put(&made, record + made.entry_bytes, name - (old ? 0 : made.names), 4);
        memcpy(made.bytes + name, NAMES[i], strlen(NAMES[i]) + 1);
        name += strlen(NAMES[i]) + 1;
    }
    put(&made, pair_off(&made, 2 * FUNCTIONS), made.base + ENTRIES[FUNCTIONS], made.entry_bytes);
    made.size = old ? name : made.records + FUNCTIONS * record_bytes;
    return made;
}

/* How the table lies in the image. */
struct layout {
    uint32_t section_name; /* 0: the table is in no section */
    bool buildinfo;
    bool stripped; /* no section headers */
    bool module;   /* there are module data */
    uint64_t entry_svma;
    size_t relocation_count;
    Elf64_Rela relocations[MAX_RELOCATIONS];
};

static void relocate(struct layout *layout, uint64_t off, uint64_t addend)
{
    assert_true(layout->relocation_count < MAX_RELOCATIONS);
    layout->relocations[layout->relocation_count++] =
        (Elf64_Rela){.r_offset = BASE + off, .r_info = R_X86_64_RELATIVE, .r_addend = (int64_t)addend};
}

static Elf64_Phdr segment(uint32_t type, uint32_t flags, uint64_t off, uint64_t bytes)
{
    return (Elf64_Phdr){
        .p_type = type, .p_flags = flags, .p_offset = off, .p_vaddr = BASE + off, .p_filesz = bytes, .p_memsz = bytes};
}

static Elf64_Shdr section(uint32_t name, uint64_t off, uint64_t bytes)
{
    return (Elf64_Shdr){
        .sh_name = name, .sh_type = SHT_PROGBITS, .sh_addr = BASE + off, .sh_offset = off, .sh_size = bytes};
}

static void write_image(uint8_t *file, const struct layout *layout, const void *table, size_t table_bytes)
{
    const Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_entry = layout->entry_svma,
        .e_phoff = sizeof(header),
        .e_shoff = layout->stripped ? 0 : SECTIONS_OFF,
        .e_ehsize = sizeof(header),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 4,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = layout->stripped ? 0 : 5,
        .e_shstrndx = layout->stripped ? 0 : 1,
    };
    size_t relocation_bytes = layout->relocation_count * sizeof(Elf64_Rela);
    const Elf64_Dyn dynamic[] = {{.d_tag = DT_RELA, .d_un.d_ptr = BASE + RELOCATIONS_OFF},
                                 {.d_tag = DT_RELASZ, .d_un.d_val = relocation_bytes},
                                 {.d_tag = DT_NULL}};
    const Elf64_Phdr segments[] = {segment(PT_LOAD, PF_R, 0, TEXT_OFF),
                                   segment(PT_LOAD, PF_R | PF_X, TEXT_OFF, TEXT_END - TEXT_OFF),
                                   segment(PT_LOAD, PF_R, MODULE_OFF, TABLE_OFF - MODULE_OFF + table_bytes),
                                   segment(PT_DYNAMIC, PF_R, DYNAMIC_OFF, sizeof(dynamic))};
    const Elf64_Shdr sections[] = {{0},
                                   section(NAME_SHSTRTAB, NAMES_OFF, sizeof(SECTION_NAMES)),
                                   section(NAME_TEXT, TEXT_OFF, TEXT_END - TEXT_OFF),
                                   section(layout->section_name, TABLE_OFF, table_bytes),
                                   section(layout->buildinfo ? NAME_BUILDINFO : 0, MODULE_OFF, 8)};
    memcpy(file, &header, sizeof(header));
    memcpy(file + header.e_phoff, segments, sizeof(segments));
    memcpy(file + NAMES_OFF, SECTION_NAMES, sizeof(SECTION_NAMES));
    memcpy(file + SECTIONS_OFF, sections, sizeof(sections));
    memcpy(file + DYNAMIC_OFF, dynamic, sizeof(dynamic));
    memcpy(file + RELOCATIONS_OFF, layout->relocations, relocation_bytes);
    if (layout->module) {
        const uint64_t words[] = {BASE + TABLE_OFF, BASE + GO_OFF, /* no such pair */
                                  BASE + GO_OFF + ENTRIES[0], BASE + GO_OFF + ENTRIES[FUNCTIONS], BASE + GO_OFF};
        memcpy(file + MODULE_OFF + 16, words, sizeof(words));
    }
    if (table_bytes > 0)
        memcpy(file + TABLE_OFF, table, table_bytes);
}

/* The file ends with the table. */
static struct image *open_made(const struct layout *layout, const struct made *made)
{
    size_t size = TABLE_OFF + made->size;
    uint8_t *file = calloc(1, size);
    assert_non_null(file);
    write_image(file, layout, made->bytes, made->size);
    struct image *image = NULL;
    assert_int_equal(image_open_memory(file, size, "made", &image), 0);
    assert_int_equal(image_kind(image), IMAGE_ELF);
    return image;
}

static struct symtab *symbols_of(const struct layout *layout, const struct made *made)
{
    struct image *image = open_made(layout, made);
    struct symtab *table = NULL;
    assert_int_equal(gopclntab_symbols(image, &table), 0);
    image_free(image);
    return table;
}

static void expect(const struct symtab *table, uint64_t into, const char *name)
{
    struct symbol symbol;
    uint64_t svma = BASE + GO_OFF + into;
    bool found = symtab_find(table, svma, &symbol);
    if (found != (name != NULL))
        fail_msg("0x%lx has %s name", (unsigned long)svma, found ? symbol.name : "no");
    if (name)
        assert_string_equal(symbol.name, name);
}

/* Each byte of the code, and those around. */
static void expect_all(const struct symtab *table)
{
    expect(table, (uint64_t)-1, NULL);
    for (uint64_t into = 0; into < ENTRIES[FUNCTIONS]; into++) {
        size_t function = 0;
        while (into >= ENTRIES[function + 1])
            function++;
        expect(table, into, NAMES[function]);
    }
    expect(table, ENTRIES[FUNCTIONS], NULL);
    assert_int_equal(symtab_count(table), FUNCTIONS - 1);
}

static void expect_made(const struct layout *layout, const struct made *made)
{
    struct symtab *table = symbols_of(layout, made);
    expect_all(table);
    symtab_free(table);
}

static void expect_none(const struct layout *layout, const struct made *made)
{
    struct symtab *table = symbols_of(layout, made);
    assert_int_equal(symtab_count(table), 0);
    expect(table, 0, NULL);
    symtab_free(table);
}

static const struct layout ORDINARY = {.section_name = NAME_TABLE, .buildinfo = true};

static void test_versions(void **state)
{
    (void)state;
    const struct layout layouts[] = {
        ORDINARY, {.section_name = NAME_TABLE_PIE}, {.buildinfo = true}, {.stripped = true}};
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        struct made made = make(MAGICS[version]);
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
            expect_made(&layouts[i], &made);
        /* In no section, and nothing says that Go is here: not searched for. */
        expect_none(&(struct layout){0}, &made);
    }
}

static void test_not_these(void **state)
{
    (void)state;
    static const uint8_t starts[][8] = {
        {0xfb, 0xff, 0xff, 0xff, 0, 0, 1, 4}, /* 32 bit */
        {0xfb, 0xff, 0xff, 0xff, 0, 0, 4, 8}, /* another processor */
        {0xfb, 0xff, 0xff, 0xff, 0, 1, 1, 8}, {0xff, 0xff, 0xff, 0xfb, 0, 0, 1, 8},
        {0xf2, 0xff, 0xff, 0xff, 0, 0, 1, 8}, {0},
    };
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
            struct made made = make(MAGICS[version]);
            memcpy(made.bytes, starts[i], 8);
            expect_none(&ORDINARY, &made);
            expect_none(&(struct layout){.stripped = true}, &made);
        }
    }
}

/* Position-independent: addresses are in the relocations only. */
static void test_relocated(void **state)
{
    (void)state;
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        struct made made = make(MAGICS[version]);
        struct layout layout = {.section_name = NAME_TABLE_PIE};
        if (made.entry_bytes == 4) {
            relocate(&layout, TABLE_OFF + 24, BASE + GO_OFF);
            put_word(&made, 2, 0);
        } else {
            for (size_t i = 0; i <= FUNCTIONS; i++) {
                relocate(&layout, TABLE_OFF + pair_off(&made, 2 * i), made.base + ENTRIES[i]);
                put(&made, pair_off(&made, 2 * i), 0, 8);
            }
            for (size_t i = 0; i < FUNCTIONS; i++) {
                relocate(&layout, TABLE_OFF + made.records + 16 * i, made.base + ENTRIES[i]);
                put(&made, made.records + 16 * i, 0, 8);
            }
        }
        expect_made(&layout, &made);
        layout.stripped = true;
        expect_made(&layout, &made);
        /* Other kinds of relocations write nothing. */
        for (size_t i = 0; i < layout.relocation_count; i++)
            layout.relocations[i].r_info = R_X86_64_64;
        expect_none(&layout, &made);
    }
}

/* Relocations outside of all, across the ends, at addresses that wrap. */
static void test_bad_relocations(void **state)
{
    (void)state;
    struct made made = make(0xfffffff1);
    struct layout layout = ORDINARY;
    const uint64_t offsets[] = {TABLE_OFF - 1,   TABLE_OFF - 8,       TABLE_OFF + made.size, TABLE_OFF + made.size - 1,
                                (uint64_t)-BASE, (uint64_t)-BASE - 1, (uint64_t)-BASE - 8};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        relocate(&layout, offsets[i], UINT64_MAX);
    expect_made(&layout, &made);
}

/* Since the header may say nothing of the start of the code: what else does. */
static void test_start_of_code(void **state)
{
    (void)state;
    for (size_t version = 2; version < MAGIC_COUNT; version++) {
        struct made made = make(MAGICS[version]);
        put_word(&made, 2, 0);
        expect_none(&ORDINARY, &made);
        struct layout module = {.section_name = NAME_TABLE, .module = true};
        expect_made(&module, &made);
        module.section_name = 0;
        module.stripped = true;
        expect_made(&module, &made);
        /* Module data that other words only look like. */
        struct made longer = made;
        put(&longer, pair_off(&longer, 2 * FUNCTIONS), ENTRIES[FUNCTIONS] + 1, 4);
        expect_none(&module, &longer);
        relocate(&module, MODULE_OFF + 0x30, BASE + GO_OFF + 8); /* the start of the code is elsewhere */
        expect_none(&module, &made);
    }
}

static void test_start_of_code_relocated(void **state)
{
    (void)state;
    struct made made = make(0xfffffff1);
    put_word(&made, 2, 0);
    struct layout layout = {.section_name = NAME_TABLE};
    relocate(&layout, MODULE_OFF + 0x40, BASE + TABLE_OFF);
    relocate(&layout, MODULE_OFF + 0x80, BASE + GO_OFF + ENTRIES[0]);
    relocate(&layout, MODULE_OFF + 0x88, BASE + GO_OFF + ENTRIES[FUNCTIONS]);
    relocate(&layout, MODULE_OFF + 0x90, BASE + GO_OFF);
    expect_made(&layout, &made);
}

/* .text is believed to begin with Go's code only where the entry point says so. */
static void test_text_section(void **state)
{
    (void)state;
    struct made made = make(0xfffffff1);
    put_word(&made, 2, 0);
    struct layout layout = ORDINARY;
    layout.entry_svma = BASE + TEXT_OFF;
    struct symtab *table = symbols_of(&layout, &made);
    struct symbol symbol;
    assert_true(symtab_find(table, BASE + TEXT_OFF + ENTRIES[1], &symbol));
    assert_string_equal(symbol.name, "main.hot");
    symtab_free(table);
    const uint64_t others[] = {0, BASE + TEXT_OFF + 1, BASE + TEXT_OFF + ENTRIES[1], BASE + GO_OFF, UINT64_MAX};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        layout.entry_svma = others[i];
        expect_none(&layout, &made);
    }
}

/* No prefix of the table gives a wrong name, as a section or as the end of the file. */
static void test_truncated(void **state)
{
    (void)state;
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        struct made made = make(MAGICS[version]);
        size_t whole = made.size;
        size_t named = 0;
        for (made.size = 0; made.size < whole; made.size++) {
            for (int stripped = 0; stripped < 2; stripped++) {
                struct layout layout = ORDINARY;
                layout.stripped = stripped;
                struct symtab *table = symbols_of(&layout, &made);
                struct symbol symbol;
                for (size_t i = 0; i < FUNCTIONS; i++)
                    if (symtab_find(table, BASE + GO_OFF + ENTRIES[i], &symbol) && ENTRIES[i + 1] > ENTRIES[i]) {
                        assert_string_equal(symbol.name, NAMES[i]);
                        named++;
                    }
                symtab_free(table);
            }
        }
        assert_true(named > 0);
    }
}

static void test_bad_entries(void **state)
{
    (void)state;
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        const struct made good = make(MAGICS[version]);
        for (size_t i = 0; i <= FUNCTIONS; i++) {
            const uint64_t wrong[] = {i == 0 ? good.base + ENTRIES[FUNCTIONS] + 1 : 0, UINT64_MAX, UINT64_MAX - BASE,
                                      good.base + TEXT_END, INT64_MAX};
            for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
                /* An offset of 0 is the first entry's own, and so may be the next one's. */
                if (k == 0 && i == 1 && good.base == 0)
                    continue;
                struct made made = good;
                put(&made, pair_off(&made, 2 * i), wrong[k], made.entry_bytes);
                expect_none(&ORDINARY, &made);
            }
        }
        if (good.base != 0)
            continue;
        const uint64_t bases[] = {1, BASE + TEXT_END - 1, UINT64_MAX, UINT64_MAX - ENTRIES[1], BASE};
        for (size_t k = 0; k < sizeof(bases) / sizeof(bases[0]); k++) {
            struct made made = good;
            put_word(&made, 2, bases[k]);
            expect_none(&ORDINARY, &made);
        }
    }
}

/* A function whose record or name is damaged has none; the others have theirs. */
static void test_bad_records(void **state)
{
    (void)state;
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        const struct made good = make(MAGICS[version]);
        const uint64_t wrong[] = {UINT64_MAX, UINT32_MAX, good.size, INT32_MAX, good.size - good.records};
        size_t name_at = good.records + (good.entry_bytes + 8) * 1 + good.entry_bytes;
        for (size_t k = 0; k < 4 + 1; k++) {
            struct made made[3] = {good, good, good};
            put(&made[0], pair_off(&good, 3), wrong[k], good.entry_bytes);
            put(&made[1], name_at, wrong[k] == good.size - good.records ? UINT32_MAX : wrong[k], 4);
            put(&made[2], name_at - good.entry_bytes, wrong[k], good.entry_bytes); /* another function's record */
            for (size_t i = 0; i < 3; i++) {
                struct symtab *table = symbols_of(&ORDINARY, &made[i]);
                expect(table, ENTRIES[0], NAMES[0]);
                expect(table, ENTRIES[1], NULL);
                expect(table, ENTRIES[2], NAMES[2]);
                expect(table, ENTRIES[4], NAMES[4]);
                symtab_free(table);
            }
        }
        /* Empty, and not ended. */
        struct made empty = good;
        put(&empty, good.names + strlen(NAMES[0]) + 1, 0, 1);
        struct symtab *table = symbols_of(&ORDINARY, &empty);
        expect(table, ENTRIES[1], NULL);
        expect(table, ENTRIES[2], NAMES[2]);
        symtab_free(table);
        struct made open = good;
        size_t end = good.names;
        for (size_t i = 0; i < FUNCTIONS; i++)
            end += strlen(NAMES[i]) + 1;
        open.bytes[end - 1] = 'x';
        table = symbols_of(&ORDINARY, &open);
        expect(table, ENTRIES[3], NULL);
        expect(table, ENTRIES[2], NAMES[2]);
        symtab_free(table);
    }
}

static void test_bad_header(void **state)
{
    (void)state;
    for (size_t version = 0; version < MAGIC_COUNT; version++) {
        const struct made good = make(MAGICS[version]);
        const uint64_t counts[] = {0,          (4 << 20) + 1, UINT64_MAX, UINT64_MAX / 8, UINT64_MAX / 16 + 1,
                                   UINT32_MAX, good.size / 8, 1ULL << 32, 1ULL << 63};
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            struct made made = good;
            put_word(&made, 0, counts[k]);
            expect_none(&ORDINARY, &made);
            expect_none(&(struct layout){.stripped = true}, &made);
        }
        if (version == 0)
            continue;
        size_t first = good.entry_bytes == 4 ? 3 : 2;
        const uint64_t offsets[] = {UINT64_MAX, good.size, good.size + 1, UINT64_MAX - 8, 1ULL << 32};
        for (size_t k = 0; k < sizeof(offsets) / sizeof(offsets[0]); k++) {
            for (size_t word = 0; word < 5; word++) {
                struct made made = good;
                put_word(&made, first + word, offsets[k]);
                bool harmless = word == 2 || word == 3 || (word == 1 && offsets[k] == good.size);
                struct symtab *table = symbols_of(&ORDINARY, &made);
                assert_int_equal(symtab_count(table), harmless ? FUNCTIONS - 1 : 0);
                symtab_free(table);
            }
        }
    }
}

/* Bytes anywhere changed: no fault, no hang, and names lie in code only. */
static void test_random_damage(void **state)
{
    (void)state;
    struct rng rng = {.state = 7};
    for (int round = 0; round < 20000; round++) {
        struct made made = make(MAGICS[round % MAGIC_COUNT]);
        struct layout layout = {.section_name = round & 4 ? NAME_TABLE : 0, .buildinfo = true, .module = round & 8};
        if (round & 16 && made.entry_bytes == 4)
            put_word(&made, 2, 0);
        for (int change = 0; change < 1 + round % 5; change++)
            made.bytes[rng_below(&rng, made.size)] = (uint8_t)rng_next(&rng);
        struct symtab *table = symbols_of(&layout, &made);
        struct symbol symbol;
        assert_false(symtab_find(table, BASE + TEXT_OFF - 1, &symbol));
        assert_false(symtab_find(table, BASE + TEXT_END, &symbol));
        symtab_free(table);
    }
}

/* Many functions that share one long name: no more is looked through than may be, and the rest has no name. */
static void test_bomb(void **state)
{
    (void)state;
    enum { MANY = 1 << 20, LONG = 60000, ALL_NAMES = 256 << 20, HEADER = 72 };
    size_t pairs = HEADER + LONG + 4;
    size_t records = pairs + (2 * (size_t)MANY + 1) * 4;
    size_t size = TABLE_OFF + records + (size_t)MANY * 8;
    uint8_t *file = calloc(1, size);
    assert_non_null(file);
    struct made made = {.size = HEADER};
    put_header(&made, 0xfffffff1);
    put_word(&made, 0, MANY);
    put_word(&made, 2, BASE + GO_OFF);
    put_word(&made, 3, HEADER);
    put_word(&made, 4, pairs);
    put_word(&made, 7, pairs);
    write_image(file, &ORDINARY, made.bytes, made.size);
    memset(file + TABLE_OFF + HEADER, 'n', LONG);
    for (uint32_t i = 0; i <= MANY; i++) {
        const uint32_t pair[] = {i, (uint32_t)(records - pairs) + 8 * i};
        const uint32_t record[] = {i, 0};
        memcpy(file + TABLE_OFF + pairs + 8 * (size_t)i, pair, i < MANY ? sizeof(pair) : 4);
        if (i < MANY)
            memcpy(file + TABLE_OFF + records + 8 * (size_t)i, record, sizeof(record));
    }
    /* Code is the whole file. */
    const Elf64_Phdr code = segment(PT_LOAD, PF_R | PF_X, 0, size);
    const Elf64_Shdr all = section(NAME_TABLE, TABLE_OFF, size - TABLE_OFF);
    memcpy(file + sizeof(Elf64_Ehdr) + sizeof(code), &code, sizeof(code));
    memcpy(file + SECTIONS_OFF + 3 * sizeof(all), &all, sizeof(all));
    struct image *image = NULL;
    assert_int_equal(image_open_memory(file, size, "bomb", &image), 0);
    struct symtab *table = NULL;
    assert_int_equal(gopclntab_symbols(image, &table), 0);
    assert_int_equal(symtab_count(table), ALL_NAMES / LONG);
    symtab_free(table);
    image_free(image);
}

/* What the ordinary symbols do not name, Go's table does. */
static void test_symbolizer(void **state)
{
    (void)state;
    struct made made = make(0xfffffff1);
    struct image *image = open_made(&ORDINARY, &made);
    struct symbolizer *symbolizer = symbolizer_new(&names_only);
    assert_non_null(symbolizer);
    assert_string_equal(name_at(symbolizer, image, GO_OFF + ENTRIES[1]), "main.hot");
    assert_string_equal(name_at(symbolizer, image, GO_OFF + ENTRIES[4]), NAMES[4]);
    assert_null(name_at(symbolizer, image, GO_OFF + ENTRIES[FUNCTIONS]));
    assert_null(name_at(symbolizer, image, GO_OFF - 1));
    symbolizer_free(symbolizer);
    image_free(image);
}

/* No Go program has no table, and no format is mistaken for one. */
static void test_no_go(void **state)
{
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct image *images[2] = {NULL};
    assert_int_equal(image_open(fd, "self", &images[0]), 0);
    assert_int_equal(image_open(-1, "none", &images[1]), 0);
    for (size_t i = 0; i < 2; i++) {
        struct symtab *table = NULL;
        assert_int_equal(gopclntab_symbols(images[i], &table), 0);
        assert_int_equal(symtab_count(table), 0);
        symtab_free(table);
        image_free(images[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),      cmocka_unit_test(test_not_these),
        cmocka_unit_test(test_relocated),     cmocka_unit_test(test_bad_relocations),
        cmocka_unit_test(test_start_of_code), cmocka_unit_test(test_start_of_code_relocated),
        cmocka_unit_test(test_text_section),  cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_bad_entries),   cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_bad_header),    cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_bomb),          cmocka_unit_test(test_symbolizer),
        cmocka_unit_test(test_no_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
