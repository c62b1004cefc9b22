/*
 * Writes seeds for the fuzz targets into a directory per target: unwind information of this program and of the C
 * library, moved to where the targets' code is, and programs that are as much work as they can be.
 *
 *   make_seeds DIRECTORY
 */
#include "frameimage.h"
#include "unwind/cfitable.h"

#include <dwarf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As the targets have it. */
static const uint64_t BIAS = 0x500000;
static const uint64_t JIT = 0x600000;
static const uint64_t STACK = 0x700000;
static const uint64_t OTHER_STACK = 0x800000;

enum { FUNCTION_BYTES = 0x80, FUNCTIONS = 4, ENTRY_BYTES_MAX = 400, SEEDS_PER_FILE = 24, CODE_BYTES = 500 };

struct output {
    uint8_t bytes[1 << 17];
    size_t size;
};

static void put(struct output *output, const void *data, size_t size)
{
    if (size > sizeof(output->bytes) - output->size)
        return;
    if (size > 0)
        memcpy(output->bytes + output->size, data, size);
    output->size += size;
}

static void put_number(struct output *output, uint64_t value, size_t size)
{
    put(output, &value, size);
}

static void put_part(struct output *output, const struct output *part)
{
    put_number(output, part->size, 2);
    put(output, part->bytes, part->size);
}

static const char *directory;

static void save(const char *target, const char *name, const struct output *output)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", directory, target);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s/%s", directory, target, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, output->bytes, output->size) != (ssize_t)output->size) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    close(fd);
}

/* ---- unwind information ---- */

/* The normalised entry of a function, moved to the n-th place of the code; of a signal frame with its letter. */
static bool put_function(struct output *frames, struct cfitable *table, uint64_t svma, unsigned n)
{
    enum { VERSION_OFF = 8, LETTERS_END = 11, FDE_START_OFF = 8, FDE_LENGTH_OFF = 16 };
    struct cfi_function function;
    size_t bytes;
    if (cfitable_find(table, svma, &function) < 0 || function.end_off - function.cie_off > ENTRY_BYTES_MAX)
        return false;
    const uint8_t *entries = cfitable_bytes(table, &bytes);
    size_t start = frames->size;
    size_t cie_bytes = function.fde_off - function.cie_off;
    put(frames, entries + function.cie_off, LETTERS_END);
    uint32_t number;
    if (function.signal) {
        memcpy(&number, entries + function.cie_off, sizeof(number));
        number++;
        memcpy(frames->bytes + start, &number, sizeof(number));
        put(frames, "S", 1);
    }
    put(frames, entries + function.cie_off + LETTERS_END, cie_bytes - LETTERS_END);
    size_t fde = frames->size;
    put(frames, entries + function.fde_off, function.end_off - function.fde_off);
    number = (uint32_t)(fde + 4 - start);
    memcpy(frames->bytes + fde + 4, &number, sizeof(number));
    uint64_t start_svma = FRAMEIMAGE_TEXT + n * FUNCTION_BYTES;
    uint64_t length = FUNCTION_BYTES;
    memcpy(frames->bytes + fde + FDE_START_OFF, &start_svma, sizeof(start_svma));
    memcpy(frames->bytes + fde + FDE_LENGTH_OFF, &length, sizeof(length));
    return true;
}

/* Registers that point into the stack, known all. */
static void put_registers(struct output *output, unsigned turn)
{
    put_number(output, UINT32_MAX, 4);
    for (unsigned reg = 0; reg < 16; reg++)
        put_number(output, reg == 7 ? 0 : 24 + (reg * 32 + turn * 8) % 256, 2);
}

/* Calls, a prologue or the end of a signal handler here and there; all of them begin at multiples of 5. */
static void put_code(struct output *code, unsigned turn)
{
    static const uint8_t call[] = {0xe8, 0, 0, 0, 0};
    static const uint8_t prologue[] = {0x55, 0x48, 0x89, 0xe5, 0x90};
    static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0x90};
    while (code->size < CODE_BYTES) {
        if (code->size % 125 == 0 && turn % 2)
            put(code, prologue, sizeof(prologue));
        else if (code->size % 250 == 200 && turn % 4 == 3)
            put(code, sigreturn, sizeof(sigreturn));
        else
            put(code, call, sizeof(call));
    }
}

/* Return addresses, in the image and outside, and in every fourth word where the next frame record is. */
static void put_stack(struct output *output, unsigned turn)
{
    for (unsigned i = 0; i < 96; i++) {
        uint64_t start = i % 5 == turn % 5 ? JIT : BIAS + FRAMEIMAGE_TEXT;
        uint64_t code = start + (i * 7 + turn) % (CODE_BYTES / 5) * 5;
        uint64_t stack = turn % 3 == 0 ? OTHER_STACK : STACK;
        put_number(output, i % 4 == 3 ? stack + (i + 4) * 8 : code, 8);
    }
}

/* The same entries as .debug_frame: a CIE has all ones, an FDE the place of its CIE. */
static void turn_into_debug_frame(struct output *frames)
{
    uint32_t length, id;
    for (size_t off = 0; off + 8 <= frames->size; off += length + sizeof(length)) {
        memcpy(&length, frames->bytes + off, sizeof(length));
        memcpy(&id, frames->bytes + off + 4, sizeof(id));
        id = id == 0 ? UINT32_MAX : (uint32_t)(off + 4) - id;
        memcpy(frames->bytes + off + 4, &id, sizeof(id));
    }
}

static void save_all(const struct output *frames, const char *name, unsigned turn)
{
    static struct output seed, code;
    seed.size = code.size = 0;
    put_part(&seed, frames);
    put_registers(&seed, turn);
    put_stack(&seed, turn);
    save("cfi", name, &seed);

    seed.size = 0;
    put_code(&code, turn);
    put_part(&seed, frames);
    put_part(&seed, &code);
    put_number(&seed, FRAMEIMAGE_TEXT + turn % FUNCTIONS * FUNCTION_BYTES + turn % 13, 4);
    put_registers(&seed, turn);
    put_stack(&seed, turn);
    save("unwind", name, &seed);

    seed.size = 0;
    put_number(&seed, 0, 1);
    put_number(&seed, 0, 2);
    put(&seed, frames->bytes, frames->size);
    save("cfitable", name, &seed);

    seed.size = 0;
    static struct output debug;
    debug = *frames;
    turn_into_debug_frame(&debug);
    put_number(&seed, 2, 1);
    put_number(&seed, 0, 2);
    put(&seed, debug.bytes, debug.size);
    char debug_name[80];
    snprintf(debug_name, sizeof(debug_name), "%s-debug", name);
    save("cfitable", debug_name, &seed);
}

/* Functions of the file, evenly; of each file also the signal frames. */
static void seeds_of_table(struct cfitable *table, unsigned file)
{
    size_t count = cfitable_count(table);
    unsigned turn = 0;
    for (size_t i = 0; i < count; i++) {
        struct cfi_function function;
        bool chosen = i % (count / SEEDS_PER_FILE + 1) == 0;
        if (cfitable_find(table, cfitable_start(table, i), &function) < 0 || !(chosen || function.signal))
            continue;
        struct output frames = {.size = 0};
        unsigned n = 0;
        for (size_t k = i; k < count && n < FUNCTIONS; k++)
            n += put_function(&frames, table, cfitable_start(table, k), n);
        put_number(&frames, 0, 4);
        char name[64];
        snprintf(name, sizeof(name), "file%u-%u", file, turn);
        save_all(&frames, name, turn++);
    }
}

/* Moves functions with relative addresses of 4 bytes, as compilers write them, to the code. */
static void move_raw_functions(uint8_t *bytes, size_t size)
{
    enum { ADDRESS_OFF = 8, RAW_BYTES = 0x20 };
    uint32_t length, id, start_svma = FRAMEIMAGE_TEXT;
    for (size_t off = 0; off + 16 <= size; off += length + sizeof(length)) {
        memcpy(&length, bytes + off, sizeof(length));
        memcpy(&id, bytes + off + 4, sizeof(id));
        if (id == 0)
            continue;
        const uint32_t range[] = {start_svma - (uint32_t)(FRAMEIMAGE_FRAMES + off + ADDRESS_OFF), RAW_BYTES};
        memcpy(bytes + off + ADDRESS_OFF, range, sizeof(range));
        start_svma += RAW_BYTES;
    }
}

/* The first bytes as they are in the file: relative addresses, padding, alignment. */
static void raw_seeds(const struct image *image, unsigned file)
{
    struct image_section frames;
    uint8_t bytes[2048];
    if (!image_find_section(image, ".eh_frame", &frames) || frames.bytes < sizeof(bytes) ||
        image_read_off(image, frames.off, bytes, sizeof(bytes)) < 0)
        return;
    move_raw_functions(bytes, sizeof(bytes));
    struct output seed = {.size = 0};
    put_number(&seed, 0, 1);
    put_number(&seed, 0, 2);
    put(&seed, bytes, sizeof(bytes));
    char name[64];
    snprintf(name, sizeof(name), "raw%u", file);
    save("cfitable", name, &seed);
}

/* A search table that fits: three functions. */
static void seed_with_search_table(void)
{
    enum { COUNT = 3 };
    struct output frames = {.size = 0}, search = {.size = 0}, seed = {.size = 0};
    put_number(&search, 0x3b031b01, 4);
    put_number(&search, FRAMEIMAGE_FRAMES - (FRAMEIMAGE_SEARCH + 4), 4);
    put_number(&search, COUNT, 4);
    for (unsigned i = 0; i < COUNT; i++) {
        static const uint8_t program[] = {0x41, 0x0e, 0x10, 0x86, 0x02, 0x43, 0x0d, 0x06};
        struct frameprogram function = {.start_svma = FRAMEIMAGE_TEXT + i * FUNCTION_BYTES,
                                        .bytes = FUNCTION_BYTES,
                                        .code_align = 1,
                                        .data_align = -8,
                                        .signal = i == 2,
                                        .program = program,
                                        .program_bytes = sizeof(program)};
        enum { CIE_BYTES = 24 };
        put_number(&search, function.start_svma - FRAMEIMAGE_SEARCH, 4);
        put_number(&search, FRAMEIMAGE_FRAMES + frames.size + CIE_BYTES - FRAMEIMAGE_SEARCH, 4);
        frames.size = frameprogram_write(&function, frames.bytes, sizeof(frames.bytes), frames.size);
    }
    put_number(&seed, 0, 1);
    put_part(&seed, &search);
    put(&seed, frames.bytes, frames.size);
    save("cfitable", "search", &seed);
}

/* ---- code ---- */

/* The first functions, asked for the depth at their ends, with the mark of a frame pointer or without. */
static void code_seeds(const struct image *image, struct cfitable *table, unsigned file)
{
    enum { CODE_BYTES_MAX = 4096 };
    uint8_t code[CODE_BYTES_MAX];
    unsigned saved = 0;
    for (size_t n = 0; n < cfitable_count(table) && saved < SEEDS_PER_FILE; n += 7) {
        struct output seed = {.size = 0};
        struct cfi_function function;
        char name[32];
        if (cfitable_find(table, cfitable_start(table, n), &function) < 0)
            continue;
        size_t size = (size_t)(function.end_svma - function.start_svma);
        if (size > sizeof(code) || image_read_svma(image, function.start_svma, code, size) < 0)
            continue;
        put_number(&seed, n & 3, 1);
        put_number(&seed, size - 1, 2);
        put_number(&seed, 1, 1);
        put_number(&seed, 0, 2);
        put_number(&seed, n & 2 ? 0 : 0xff, 1);
        put(&seed, code, size);
        snprintf(name, sizeof(name), "%u-%zu", file, n);
        save("prologue", name, &seed);
        saved++;
    }
}

static void seeds_of_file(const char *path, unsigned file)
{
    struct image *image = NULL;
    struct cfitable *table = NULL;
    if (image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image) < 0 || cfitable_new(image, &table) < 0)
        exit(1);
    seeds_of_table(table, file);
    code_seeds(image, table, file);
    raw_seeds(image, file);
    cfitable_free(table);
    image_free(image);
}

/* ---- expressions ---- */

struct op {
    uint8_t atom;
    uint8_t reg;
    uint16_t target;
    uint16_t size;
    uint64_t operand;
};

static void save_expression(const char *name, const struct op *ops, size_t count)
{
    struct output seed = {.size = 0};
    put_number(&seed, UINT32_MAX, 4);
    put_number(&seed, 3, 1);
    put_number(&seed, count, 1);
    for (size_t i = 0; i < count; i++) {
        put_number(&seed, ops[i].atom, 1);
        put_number(&seed, ops[i].reg, 1);
        put_number(&seed, ops[i].target, 2);
        put_number(&seed, ops[i].size, 2);
        put_number(&seed, ops[i].operand, 8);
    }
    put_stack(&seed, 0);
    save("expression", name, &seed);
}

static void expression_seeds(void)
{
    static const struct op plt[] = {
        {DW_OP_breg0, 7, 0, 0, 8},  {DW_OP_breg0, 16, 0, 0, 0},  {DW_OP_constu, 0, 0, 0, 15},
        {DW_OP_and, 0, 0, 0, 0},    {DW_OP_constu, 0, 0, 0, 11}, {DW_OP_ge, 0, 0, 0, 0},
        {DW_OP_constu, 0, 0, 0, 3}, {DW_OP_shl, 0, 0, 0, 0},     {DW_OP_plus, 0, 0, 0, 0}};
    static const struct op loop[] = {{DW_OP_constu, 0, 0, 0, 9}, {DW_OP_constu, 0, 0, 0, 1}, {DW_OP_minus, 0, 0, 0, 0},
                                     {DW_OP_dup, 0, 0, 0, 0},    {DW_OP_bra, 0, 1, 0, 0},    {DW_OP_drop, 0, 0, 0, 0}};
    static const struct op memory[] = {
        {DW_OP_breg0, 7, 0, 0, 16}, {DW_OP_deref, 0, 0, 0, 0}, {DW_OP_deref_size, 0, 0, 4, 0},
        {DW_OP_skip, 0, 5, 0, 0},   {DW_OP_drop, 0, 0, 0, 0},  {DW_OP_plus_uconst, 0, 0, 0, 8},
        {DW_OP_constu, 0, 0, 0, 3}, {DW_OP_div, 0, 0, 0, 0},   {DW_OP_over, 0, 0, 0, 0},
        {DW_OP_pick, 0, 0, 1, 0},   {DW_OP_rot, 0, 0, 0, 0},   {DW_OP_swap, 0, 0, 0, 0},
        {DW_OP_mod, 0, 0, 0, 0},    {DW_OP_shra, 0, 0, 0, 0}};
    save_expression("plt", plt, sizeof(plt) / sizeof(plt[0]));
    save_expression("loop", loop, sizeof(loop) / sizeof(loop[0]));
    save_expression("memory", memory, sizeof(memory) / sizeof(memory[0]));
    static const struct op large[] = {{DW_OP_breg0, 7, 0, 0, 16}, {DW_OP_deref_size, 0, 0, 200, 0}};
    save_expression("large", large, sizeof(large) / sizeof(large[0]));
    /* Each operation behind three numbers. */
    for (unsigned atom = DW_OP_addr; atom <= DW_OP_nop; atom++) {
        const struct op ops[] = {{DW_OP_constu, 0, 0, 0, 64},
                                 {DW_OP_constu, 0, 0, 0, UINT64_C(1) << 63},
                                 {DW_OP_constu, 0, 0, 0, UINT64_MAX},
                                 {(uint8_t)atom, 0, 4, 8, 1}};
        char name[32];
        snprintf(name, sizeof(name), "op%02x", atom);
        save_expression(name, ops, sizeof(ops) / sizeof(ops[0]));
    }
}

/* ---- much work ---- */

enum { PROGRAM_BYTES = 64000 };

static void save_program(const char *name, const uint8_t *program, size_t size)
{
    static struct output frames, seed;
    frames.size = seed.size = 0;
    struct frameprogram function = {.start_svma = FRAMEIMAGE_TEXT,
                                    .bytes = 0x100000,
                                    .code_align = 1,
                                    .data_align = -8,
                                    .program = program,
                                    .program_bytes = size};
    frames.size = frameprogram_write(&function, frames.bytes, sizeof(frames.bytes), 0);
    put_part(&seed, &frames);
    put_registers(&seed, 0);
    put_stack(&seed, 0);
    save("cfi", name, &seed);
}

/* The same instructions as often as they fit, behind others. */
static void save_repeated(const char *name, const uint8_t *start, size_t start_bytes, const uint8_t *again,
                          size_t bytes)
{
    static uint8_t program[PROGRAM_BYTES];
    size_t size = start_bytes;
    if (start_bytes > 0)
        memcpy(program, start, start_bytes);
    for (; size + bytes <= sizeof(program); size += bytes)
        memcpy(program + size, again, bytes);
    save_program(name, program, size);
}

#define REPEATED(name, ...)                                                                                            \
    save_repeated(name, NULL, 0, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void large_seeds(void)
{
    REPEATED("large-remember", DW_CFA_remember_state);
    REPEATED("large-remember-restore", DW_CFA_remember_state, DW_CFA_restore_state);
    REPEATED("large-rows", DW_CFA_advance_loc + 1, DW_CFA_def_cfa_offset, 16);
    REPEATED("large-remembered-rows", DW_CFA_advance_loc + 1, DW_CFA_remember_state);
    /* An endless CFA; one with many jumps to the end; one with an operation in each byte. */
    static const uint8_t endless[] = {DW_CFA_def_cfa_expression, 5, DW_OP_lit1, DW_OP_dup, DW_OP_bra, 0xfc, 0xff};
    save_program("endless", endless, sizeof(endless));
    static const uint8_t endless_places[] = {DW_CFA_expression, 3, 4, DW_OP_nop, DW_OP_skip, 0xfc, 0xff,
                                             DW_CFA_expression, 6, 4, DW_OP_nop, DW_OP_skip, 0xfc, 0xff};
    save_program("endless-places", endless_places, sizeof(endless_places));
    /* What traps in a processor: INT64_MIN / -1 and 1 / 0. */
    static const uint8_t divisions[] = {DW_CFA_val_expression,
                                        3,
                                        6,
                                        DW_OP_lit1,
                                        DW_OP_const1u,
                                        63,
                                        DW_OP_shl,
                                        DW_OP_lit0,
                                        DW_OP_div,
                                        DW_CFA_val_expression,
                                        6,
                                        9,
                                        DW_OP_lit1,
                                        DW_OP_const1u,
                                        63,
                                        DW_OP_shl,
                                        DW_OP_const1s,
                                        0xff,
                                        DW_OP_div,
                                        DW_OP_nop,
                                        DW_OP_nop};
    save_program("divisions", divisions, sizeof(divisions));
    save_program("division", divisions + 9, sizeof(divisions) - 9);
    static const uint8_t modulo[] = {
        DW_CFA_val_expression, 3, 6, DW_OP_lit1, DW_OP_const1u, 63, DW_OP_shl, DW_OP_lit0, DW_OP_mod};
    save_program("modulo", modulo, sizeof(modulo));
    enum { LENGTH = PROGRAM_BYTES - 4 };
    static const uint8_t length[] = {DW_CFA_def_cfa_expression, (LENGTH & 0x7f) | 0x80, (LENGTH >> 7 & 0x7f) | 0x80,
                                     LENGTH >> 14};
    static const uint8_t jump[] = {DW_OP_lit0, DW_OP_bra, 0x00, 0x00};
    save_repeated("large-jumps", length, sizeof(length), jump, sizeof(jump));
    static const uint8_t nop[] = {DW_OP_nop};
    save_repeated("large-operations", length, sizeof(length), nop, sizeof(nop));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    directory = argv[1];
    mkdir(directory, 0755);
    seeds_of_file("/proc/self/exe", 0);
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        if (strstr(map->l_name, "libc.so"))
            seeds_of_file(map->l_name, 1);
    }
    seed_with_search_table();
    expression_seeds();
    large_seeds();
    return 0;
}
