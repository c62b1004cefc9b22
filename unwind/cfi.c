#include "unwind/cfi.h"

#include "common/array.h"
#include "common/hash.h"
#include "unwind/cfitable.h"

#include <errno.h>
#include <libunwind-x86_64.h>
#include <stdlib.h>
#include <string.h>

/* Exported by libunwind for debuggers, but in none of its headers. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
                                              unw_proc_info_t *ret, int need_unwind_info, void *context);

/*
 * Where libunwind finds the normalised entries of the table in question: at addresses that nothing in a target has,
 * because they are not canonical. A search table with one entry, the function that cfitable found, stands in front of
 * them.
 */
static const uint64_t SEARCH_TABLE = UINT64_C(0x4000000000000000);
static const uint64_t ENTRIES = UINT64_C(0x4000000000001000);

enum {
    RULE_SLOTS = 8192, /* pages of it are touched as they are used */
    /* libunwind 1.6.2 has 168 bytes; another version with larger rows gets no rules rather than broken ones. */
    ROW_BYTES_MAX = 232,
    /* Words that libunwind may ask for in one operation. Stops endless expressions; the largest program has 64 KB. */
    WORDS_MAX = 1 << 18
};

struct cfi_rule {
    const struct image *image; /* NULL: unused */
    uint64_t svma;
    enum cfi_kind kind;
    bool signal;
    uint32_t table; /* index into cfi->tables */
    _Alignas(8) uint8_t row[ROW_BYTES_MAX];
};

struct image_table {
    const struct image *image;
    struct cfitable *table;
};

struct cfi {
    unw_addr_space_t space;
    struct cfi_rule *rules; /* direct-mapped */
    struct image_table *tables;
    size_t table_count;
    size_t table_capacity;
    uint32_t *table_of; /* hash of the image to index into tables plus 1; open addressing */
    size_t table_of_slots;

    /* What the accessors answer from, during one operation. */
    const struct cfitable *table;
    struct cfi_function function;
    const struct registers *registers;
    uint64_t pc;
    struct view *view; /* NULL: no target, only a table */
    size_t words;
};

/* ---- what libunwind asks ---- */

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *ret, int need_unwind_info,
                          void *context)
{
    struct cfi *cfi = context;
    if (ip < cfi->function.start_svma || ip >= cfi->function.end_svma)
        return -UNW_ENOINFO;
    unw_dyn_info_t table = {
        .start_ip = cfi->function.start_svma,
        .end_ip = cfi->function.end_svma,
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .u.rti = {.segbase = ENTRIES, .table_data = SEARCH_TABLE, .table_len = 1},
    };
    return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, ret, need_unwind_info, context);
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *context)
{
    (void)space;
    (void)info;
    (void)context;
}

static int get_dyn_info_list_addr(unw_addr_space_t space, unw_word_t *ret, void *context)
{
    (void)space;
    (void)ret;
    (void)context;
    return -UNW_ENOINFO;
}

static bool read_entries(const struct cfi *cfi, uint64_t address, unw_word_t *ret)
{
    size_t size;
    const uint8_t *bytes = cfitable_bytes(cfi->table, &size);
    uint64_t offset = address - ENTRIES;
    if (size < sizeof(*ret) || offset > size - sizeof(*ret))
        return false;
    memcpy(ret, bytes + offset, sizeof(*ret));
    return true;
}

static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *context)
{
    (void)space;
    struct cfi *cfi = context;
    if (write || cfi->words == WORDS_MAX)
        return -UNW_EINVAL;
    cfi->words++;
    if (address >= ENTRIES && address - ENTRIES < UINT32_MAX)
        return read_entries(cfi, address, value) ? 0 : -UNW_EINVAL;
    if (address == SEARCH_TABLE) {
        /* Start of the function and its FDE, relative to ENTRIES; libunwind cuts the pc to 32 bits: anything is above
         * this. */
        int32_t entry[2] = {INT32_MIN, (int32_t)cfi->function.fde_off};
        memcpy(value, entry, sizeof(*value));
        return 0;
    }
    return cfi->view && view_read(cfi->view, address, value, sizeof(*value)) ? 0 : -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t space, unw_regnum_t reg, unw_word_t *value, int write, void *context)
{
    (void)space;
    const struct cfi *cfi = context;
    /* libunwind's numbers are DWARF's. */
    _Static_assert((int)UNW_X86_64_RIP == (int)REGISTER_PC && (int)UNW_X86_64_RSP == (int)REGISTER_RSP,
                   "register numbers");
    if (write || reg < 0 || reg >= REGISTER_COUNT)
        return -UNW_EBADREG;
    if (reg == REGISTER_PC) {
        *value = cfi->pc;
        return 0;
    }
    if (!cfi->registers) {
        *value = 0;
        return 0;
    }
    if (!registers_known(cfi->registers, (unsigned)reg))
        return -UNW_EBADREG;
    *value = cfi->registers->value[reg];
    return 0;
}

static int access_fpreg(unw_addr_space_t space, unw_regnum_t reg, unw_fpreg_t *value, int write, void *context)
{
    (void)space;
    (void)reg;
    (void)value;
    (void)write;
    (void)context;
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t space, unw_cursor_t *cursor, void *context)
{
    (void)space;
    (void)cursor;
    (void)context;
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t space, unw_word_t ip, char *name, size_t size, unw_word_t *offset,
                         void *context)
{
    (void)space;
    (void)ip;
    (void)name;
    (void)size;
    (void)offset;
    (void)context;
    return -UNW_ENOINFO;
}

/* ---- tables ---- */

struct cfi *cfi_new(void)
{
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = get_dyn_info_list_addr,
        .access_mem = access_mem,
        .access_reg = access_reg,
        .access_fpreg = access_fpreg,
        .resume = resume,
        .get_proc_name = get_proc_name,
    };
    struct cfi *cfi = calloc(1, sizeof(*cfi));
    if (!cfi)
        return NULL;
    cfi->rules = calloc(RULE_SLOTS, sizeof(*cfi->rules));
    cfi->space = unw_create_addr_space(&accessors, 0);
    if (!cfi->rules || !cfi->space) {
        cfi_free(cfi);
        return NULL;
    }
    unw_set_caching_policy(cfi->space, UNW_CACHE_NONE);
    return cfi;
}

void cfi_free(struct cfi *cfi)
{
    if (!cfi)
        return;
    for (size_t i = 0; i < cfi->table_count; i++)
        cfitable_free(cfi->tables[i].table);
    free(cfi->tables);
    free(cfi->table_of);
    free(cfi->rules);
    if (cfi->space)
        unw_destroy_addr_space(cfi->space);
    free(cfi);
}

static uint32_t *table_slot(const struct cfi *cfi, const struct image *image)
{
    size_t mask = cfi->table_of_slots - 1;
    size_t slot = hash_u64((uintptr_t)image) & mask;
    while (cfi->table_of[slot] != 0 && cfi->tables[cfi->table_of[slot] - 1].image != image)
        slot = (slot + 1) & mask;
    return &cfi->table_of[slot];
}

/* Keeps at least half of the slots free. */
static int make_table_room(struct cfi *cfi)
{
    int err = array_room(&cfi->tables, &cfi->table_capacity, cfi->table_count + 1);
    if (err || (cfi->table_count + 1) * 2 <= cfi->table_of_slots)
        return err;
    size_t slots = cfi->table_of_slots ? cfi->table_of_slots * 2 : 64;
    uint32_t *table_of = calloc(slots, sizeof(*table_of));
    if (!table_of)
        return -ENOMEM;
    free(cfi->table_of);
    cfi->table_of = table_of;
    cfi->table_of_slots = slots;
    for (size_t i = 0; i < cfi->table_count; i++)
        *table_slot(cfi, cfi->tables[i].image) = (uint32_t)(i + 1);
    return 0;
}

static int find_table(struct cfi *cfi, const struct image *image, uint32_t *ret_index)
{
    int err = make_table_room(cfi);
    if (err)
        return err;
    uint32_t *slot = table_slot(cfi, image);
    if (*slot == 0) {
        struct cfitable *table;
        err = cfitable_new(image, &table);
        if (err)
            return err;
        cfi->tables[cfi->table_count++] = (struct image_table){.image = image, .table = table};
        *slot = (uint32_t)cfi->table_count;
    }
    *ret_index = *slot - 1;
    return 0;
}

/* ---- rules ---- */

struct row_search {
    struct cfi_rule *rule;
    bool found;
};

/* libunwind calls it with each row of the function; the data is a row for unw_apply_reg_state. A negative result ends
 * it. */
static int take_row(void *token, void *row, size_t row_bytes, unw_word_t start_ip, unw_word_t end_ip)
{
    struct row_search *search = token;
    if (search->rule->svma < start_ip || search->rule->svma >= end_ip)
        return 0;
    if (row_bytes <= ROW_BYTES_MAX) {
        memcpy(search->rule->row, row, row_bytes);
        search->found = true;
    }
    return -UNW_ESTOPUNWIND;
}

static bool find_row(struct cfi *cfi, struct cfi_rule *rule)
{
    cfi->pc = rule->svma;
    cfi->registers = NULL;
    cfi->view = NULL;
    cfi->words = 0;
    unw_cursor_t cursor;
    struct row_search search = {.rule = rule};
    if (unw_init_remote(&cursor, cfi->space, cfi) < 0)
        return false;
    unw_reg_states_iterate(&cursor, take_row, &search);
    return search.found;
}

static int make_rule(struct cfi *cfi, const struct image *image, uint64_t svma, struct cfi_rule *rule)
{
    rule->image = NULL; /* not valid until it is whole */
    int err = find_table(cfi, image, &rule->table);
    if (err)
        return err;
    struct cfitable *table = cfi->tables[rule->table].table;
    err = cfitable_find(table, svma, &cfi->function);
    if (err == -ENOMEM)
        return err;
    rule->svma = svma;
    rule->signal = false;
    rule->kind = err == -ENOENT ? CFI_NONE : CFI_BAD;
    if (!err) {
        cfi->table = table;
        rule->signal = cfi->function.signal;
        if (find_row(cfi, rule))
            rule->kind = CFI_RULE;
    }
    rule->image = image;
    return 0;
}

const struct cfi_rule *cfi_find(struct cfi *cfi, const struct code_region *region, uint64_t lookup_avma)
{
    static const struct cfi_rule none = {.kind = CFI_NONE};
    if (!region->image || !region->has_bias)
        return &none;
    uint64_t svma = lookup_avma - region->bias;
    struct cfi_rule *rule = &cfi->rules[hash_pair((uintptr_t)region->image, svma) % RULE_SLOTS];
    if (rule->image == region->image && rule->svma == svma)
        return rule;
    return make_rule(cfi, region->image, svma, rule) < 0 ? NULL : rule;
}

enum cfi_kind cfi_rule_kind(const struct cfi_rule *rule)
{
    return rule->kind;
}

bool cfi_rule_is_signal(const struct cfi_rule *rule)
{
    return rule->signal;
}

/* System V ABI AMD64, section 3.2.1: what a called function preserves. */
enum {
    PRESERVED = 1U << REGISTER_RBX | 1U << REGISTER_RBP | 1U << REGISTER_R12 | 1U << REGISTER_R13 | 1U << REGISTER_R14 |
                1U << REGISTER_R15
};

static void caller_registers(struct cfi *cfi, unw_cursor_t *cursor, bool signal, struct registers *ret_registers)
{
    struct view before = *cfi->view;
    uint32_t wanted = signal ? (1U << REGISTER_PC) - 1 : PRESERVED;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        if ((wanted >> reg & 1U) && unw_get_reg(cursor, (int)reg, &ret_registers->value[reg]) == 0)
            ret_registers->known |= 1U << reg;
    }
    /* A saved register that cannot be had is not known. That is no failure, and nothing to copy more of the stack for.
     */
    *cfi->view = before;
}

enum cfi_answer cfi_apply(struct cfi *cfi, const struct cfi_rule *rule, struct view *view,
                          const struct registers *registers, uint64_t lookup_avma, struct registers *ret_registers)
{
    cfi->table = cfi->tables[rule->table].table;
    cfi->pc = lookup_avma;
    cfi->registers = registers;
    cfi->view = view;
    cfi->words = 0;
    view->failed = false;
    view->cut = false;
    unw_cursor_t cursor;
    if (unw_init_remote(&cursor, cfi->space, cfi) < 0)
        return CFI_UNUSABLE;
    /* libunwind only reads the row, but does not say so. */
    _Alignas(8) uint8_t row[ROW_BYTES_MAX];
    memcpy(row, rule->row, sizeof(row));
    int result = unw_apply_reg_state(&cursor, row);
    if (result == -UNW_EBADFRAME)
        return CFI_NO_PROGRESS;
    if (result < 0)
        return view->failed ? CFI_NEEDS_MEMORY : CFI_UNUSABLE;
    if (result == 0)
        return CFI_OUTERMOST;
    struct registers caller = {.known = 1U << REGISTER_RSP | 1U << REGISTER_PC};
    if (unw_get_reg(&cursor, UNW_X86_64_CFA, &caller.value[REGISTER_RSP]) < 0 ||
        unw_get_reg(&cursor, UNW_REG_IP, &caller.value[REGISTER_PC]) < 0)
        return CFI_UNUSABLE;
    caller_registers(cfi, &cursor, rule->signal, &caller);
    *ret_registers = caller;
    return CFI_STEPPED;
}
