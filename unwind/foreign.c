#include "unwind/foreign.h"

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
    /* libunwind 1.6.2 has 168 bytes; another version with larger rows gets no rules rather than broken ones. */
    ROW_BYTES_MAX = 232,
    /* Bytes of one function's entries. Nothing is kept, so each step reads and evaluates all of them. */
    ENTRY_BYTES_MAX = 1 << 13,
    /* Words that libunwind may ask for in one operation: some for each byte. Stops endless expressions. */
    WORDS_MAX = 1 << 15
};

struct foreign {
    unw_addr_space_t space;

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
    struct foreign *foreign = context;
    if (ip < foreign->function.start_svma || ip >= foreign->function.end_svma)
        return -UNW_ENOINFO;
    unw_dyn_info_t table = {
        .start_ip = foreign->function.start_svma,
        .end_ip = foreign->function.end_svma,
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

static bool read_entries(const struct foreign *foreign, uint64_t address, unw_word_t *ret)
{
    size_t size;
    const uint8_t *bytes = cfitable_bytes(foreign->table, &size);
    uint64_t offset = address - ENTRIES;
    if (size < sizeof(*ret) || offset > size - sizeof(*ret))
        return false;
    memcpy(ret, bytes + offset, sizeof(*ret));
    return true;
}

static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *context)
{
    (void)space;
    struct foreign *foreign = context;
    if (write || foreign->words == WORDS_MAX || (foreign->view && foreign->view->work >= VIEW_WORK_MAX))
        return -UNW_EINVAL;
    foreign->words++;
    if (foreign->view)
        foreign->view->work++;
    if (address >= ENTRIES && address - ENTRIES < UINT32_MAX)
        return read_entries(foreign, address, value) ? 0 : -UNW_EINVAL;
    if (address == SEARCH_TABLE) {
        /* Start of the function and its FDE, relative to ENTRIES; libunwind cuts the pc to 32 bits: anything is above
         * this. */
        int32_t entry[2] = {INT32_MIN, (int32_t)foreign->function.fde_off};
        memcpy(value, entry, sizeof(*value));
        return 0;
    }
    return foreign->view && view_read(foreign->view, address, value, sizeof(*value)) ? 0 : -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t space, unw_regnum_t reg, unw_word_t *value, int write, void *context)
{
    (void)space;
    const struct foreign *foreign = context;
    /* libunwind's numbers are DWARF's. */
    _Static_assert((int)UNW_X86_64_RIP == (int)REGISTER_PC && (int)UNW_X86_64_RSP == (int)REGISTER_RSP,
                   "register numbers");
    if (write || reg < 0 || reg >= REGISTER_COUNT)
        return -UNW_EBADREG;
    if (reg == REGISTER_PC) {
        *value = foreign->pc;
        return 0;
    }
    if (!foreign->registers) {
        *value = 0;
        return 0;
    }
    if (!registers_known(foreign->registers, (unsigned)reg))
        return -UNW_EBADREG;
    *value = foreign->registers->value[reg];
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

/* ---- life ---- */

struct foreign *foreign_new(void)
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
    struct foreign *foreign = calloc(1, sizeof(*foreign));
    if (!foreign)
        return NULL;
    foreign->space = unw_create_addr_space(&accessors, 0);
    if (!foreign->space) {
        free(foreign);
        return NULL;
    }
    unw_set_caching_policy(foreign->space, UNW_CACHE_NONE);
    return foreign;
}

void foreign_free(struct foreign *foreign)
{
    if (!foreign)
        return;
    unw_destroy_addr_space(foreign->space);
    free(foreign);
}

/* ---- one step ---- */

struct row_search {
    uint64_t svma;
    bool found;
    _Alignas(8) uint8_t row[ROW_BYTES_MAX];
};

/* libunwind calls it with each row of the function; the data is a row for unw_apply_reg_state. A negative result ends
 * it. */
static int take_row(void *token, void *row, size_t row_bytes, unw_word_t start_ip, unw_word_t end_ip)
{
    struct row_search *search = token;
    if (search->svma < start_ip || search->svma >= end_ip)
        return 0;
    if (row_bytes <= ROW_BYTES_MAX) {
        memcpy(search->row, row, row_bytes);
        search->found = true;
    }
    return -UNW_ESTOPUNWIND;
}

static bool find_row(struct foreign *foreign, struct row_search *search)
{
    foreign->pc = search->svma;
    foreign->registers = NULL;
    foreign->view = NULL;
    foreign->words = 0;
    unw_cursor_t cursor;
    if (unw_init_remote(&cursor, foreign->space, foreign) < 0)
        return false;
    unw_reg_states_iterate(&cursor, take_row, search);
    return search->found;
}

static void caller_registers(struct foreign *foreign, unw_cursor_t *cursor, struct registers *ret_registers)
{
    struct view before = *foreign->view;
    uint32_t wanted = foreign->function.signal ? (1U << REGISTER_PC) - 1 : RULE_PRESERVED;
    for (unsigned reg = 0; reg < REGISTER_PC; reg++) {
        if ((wanted >> reg & 1U) && unw_get_reg(cursor, (int)reg, &ret_registers->value[reg]) == 0)
            ret_registers->known |= 1U << reg;
    }
    /* A saved register that cannot be had is not known. That is no failure, and nothing to copy more of the stack for.
     */
    view_restore(foreign->view, &before);
}

enum rule_answer foreign_apply(struct foreign *foreign, const struct cfitable *table,
                               const struct cfi_function *function, uint64_t svma, struct view *view,
                               struct registers *registers, uint64_t lookup_avma)
{
    struct row_search search = {.svma = svma};
    if (function->end_off - function->cie_off > ENTRY_BYTES_MAX)
        return RULE_UNUSABLE;
    foreign->table = table;
    foreign->function = *function;
    if (!find_row(foreign, &search))
        return RULE_UNUSABLE;
    foreign->pc = lookup_avma;
    foreign->registers = registers;
    foreign->view = view;
    foreign->words = 0;
    unw_cursor_t cursor;
    if (unw_init_remote(&cursor, foreign->space, foreign) < 0)
        return RULE_UNUSABLE;
    int result = unw_apply_reg_state(&cursor, search.row);
    if (result < 0)
        return view->failed ? RULE_NEEDS_MEMORY : RULE_UNUSABLE;
    if (result == 0)
        return RULE_OUTERMOST;
    struct registers caller = {.known = 1U << REGISTER_RSP | 1U << REGISTER_PC};
    if (unw_get_reg(&cursor, UNW_X86_64_CFA, &caller.value[REGISTER_RSP]) < 0 ||
        unw_get_reg(&cursor, UNW_REG_IP, &caller.value[REGISTER_PC]) < 0)
        return RULE_UNUSABLE;
    caller_registers(foreign, &cursor, &caller);
    *registers = caller;
    return RULE_STEPPED;
}
