#include "unwind/cfitable.h"

#include "common/array.h"
#include "unwind/cfientry.h"
#include "unwind/cfiindex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* .debug_frame, decompressed. The largest programs that have nothing else come near a tenth of it. */
enum { DEBUG_FRAME_BYTES_MAX = 1 << 26 };
/*
 * Of one function's CIE or FDE. An evaluator may need some 300 bytes for each byte of a program (remember_state), and
 * some nanoseconds; the largest in a Debian installation has 30 KB.
 */
enum { ENTRY_BYTES_MAX = 1 << 16 };
/* All normalised entries of one image. */
enum { NORMALISED_BYTES_MAX = 1 << 28 };

/* What cfitable_find made of an entry. */
struct function_record {
    int error;                    /* 0 or -EINVAL */
    struct cfi_function function; /* end_svma 0: not even the range could be read */
};

/* In the order in which they are asked. */
enum source_kind { SOURCE_SEARCH, SOURCE_EH_FRAME, SOURCE_DEBUG_FRAME, SOURCE_COUNT };

/* One index and where its entries are. */
struct source {
    bool built;
    struct cfiindex index;
    uint32_t *record_of; /* per span: index into records plus 1; 0: not parsed yet. NULL for an empty index */
    enum cfi_format format;
    struct image_section section; /* .debug_frame */
    uint8_t *data;                /* .debug_frame that is compressed in the file; else NULL */
    size_t data_bytes;
};

/*
 * Bytes read ahead: entries are small and shared (CIEs), and a system call costs more than all that is done with one.
 * Of two the one that was not used last is replaced, so that a CIE stays while FDEs come and go.
 */
enum { WINDOW_BYTES = 512, WINDOW_COUNT = 2 };

struct window {
    const struct source *source; /* NULL: empty */
    uint64_t position;
    uint8_t bytes[WINDOW_BYTES];
};

struct cfitable {
    const struct image *image;
    struct window windows[WINDOW_COUNT];
    unsigned last_window;
    struct source sources[SOURCE_COUNT];
    struct function_record *records;
    size_t record_count;
    size_t record_capacity;
    uint8_t *normalised;
    size_t normalised_bytes;
    size_t normalised_capacity;
    uint8_t *scratch; /* an entry as it is in the file */
    size_t scratch_capacity;
};

/* ---- sources ---- */

static int read_debug_frame(struct source *source, const struct image *image)
{
    source->format = CFI_DEBUG_FRAME;
    if (!image_find_section(image, ".debug_frame", &source->section) &&
        !image_find_section(image, ".zdebug_frame", &source->section))
        return 0;
    uint8_t *data;
    size_t size;
    int err = image_load_section(image, &source->section, DEBUG_FRAME_BYTES_MAX, &data, &size);
    if (err)
        return err == -ENOMEM ? err : 0;
    err = cfiindex_read_debug_frame(&source->index, image, data, size);
    if (!err && source->index.count > 0 && source->section.compression != IMAGE_STORED) {
        source->data = data;
        source->data_bytes = size;
        return 0;
    }
    free(data);
    return err;
}

static void source_deinit(struct source *source)
{
    cfiindex_deinit(&source->index);
    free(source->record_of);
    free(source->data);
    *source = (struct source){0};
}

static int source_build(struct cfitable *table, enum source_kind kind)
{
    struct source *source = &table->sources[kind];
    if (source->built)
        return 0;
    int err = kind == SOURCE_SEARCH     ? cfiindex_read_search(&source->index, table->image)
              : kind == SOURCE_EH_FRAME ? cfiindex_read_eh_frame(&source->index, table->image)
                                        : read_debug_frame(source, table->image);
    if (!err && source->index.count > 0) {
        source->record_of = calloc(source->index.count, sizeof(*source->record_of));
        if (!source->record_of)
            err = -ENOMEM;
    }
    if (err)
        source_deinit(source);
    else
        source->built = true;
    return err;
}

static int table_new(const struct image *image, bool linear, struct cfitable **ret_table)
{
    struct cfitable *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    table->image = image;
    int err = 0;
    if (linear)
        table->sources[SOURCE_SEARCH].built = true; /* and empty */
    else
        err = source_build(table, SOURCE_SEARCH);
    if (!err && table->sources[SOURCE_SEARCH].index.count == 0)
        err = source_build(table, SOURCE_EH_FRAME);
    if (err) {
        cfitable_free(table);
        return err;
    }
    *ret_table = table;
    return 0;
}

int cfitable_new(const struct image *image, struct cfitable **ret_table)
{
    return table_new(image, false, ret_table);
}

int cfitable_new_linear(const struct image *image, struct cfitable **ret_table)
{
    return table_new(image, true, ret_table);
}

void cfitable_free(struct cfitable *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        source_deinit(&table->sources[i]);
    free(table->records);
    free(table->normalised);
    free(table->scratch);
    free(table);
}

static const struct cfiindex *eh_frame_index(const struct cfitable *table)
{
    const struct source *search = &table->sources[SOURCE_SEARCH];
    return search->index.count > 0 ? &search->index : &table->sources[SOURCE_EH_FRAME].index;
}

size_t cfitable_count(const struct cfitable *table)
{
    return eh_frame_index(table)->count;
}

uint64_t cfitable_start(const struct cfitable *table, size_t n)
{
    return cfiindex_start(eh_frame_index(table), n);
}

/* ---- normalised entries ---- */

static int append(struct cfitable *table, const void *data, size_t size)
{
    if (size > NORMALISED_BYTES_MAX - table->normalised_bytes)
        return -EINVAL;
    int err = array_room(&table->normalised, &table->normalised_capacity, table->normalised_bytes + size);
    if (err)
        return err;
    memcpy(table->normalised + table->normalised_bytes, data, size);
    table->normalised_bytes += size;
    return 0;
}

/* Appends one entry: length, what follows it, the program, and DW_CFA_nop up to a multiple of 8 bytes. */
static int append_entry(struct cfitable *table, const uint8_t *start, size_t start_bytes, const uint8_t *program,
                        size_t program_bytes)
{
    static const uint8_t nops[8];
    size_t used = sizeof(uint32_t) + start_bytes + program_bytes;
    size_t padding = (8 - used % 8) % 8;
    uint32_t length = (uint32_t)(used - sizeof(uint32_t) + padding);
    int err = append(table, &length, sizeof(length));
    if (!err)
        err = append(table, start, start_bytes);
    if (!err)
        err = append(table, program, program_bytes);
    if (!err)
        err = append(table, nops, padding);
    return err;
}

static size_t put_leb(uint8_t *bytes, uint64_t value, bool is_signed)
{
    size_t size = 0;
    for (;;) {
        uint8_t byte = value & 0x7f;
        uint64_t rest = is_signed ? (uint64_t)((int64_t)value >> 7) : value >> 7;
        bool last = is_signed ? (rest == 0 && !(byte & 0x40)) || (rest == ~UINT64_C(0) && (byte & 0x40)) : rest == 0;
        bytes[size++] = last ? byte : byte | 0x80;
        if (last)
            return size;
        value = rest;
    }
}

static int append_cie(struct cfitable *table, const struct cfi_cie *cie, const uint8_t *program, size_t program_bytes)
{
    /*
     * What a call preserves (System V ABI AMD64, section 3.2.1) has the caller's value until the program says
     * otherwise. Said here, because evaluators differ in what they take for granted: elfutils 0.188 believes that of
     * rax, not rbx.
     */
    enum { SAME_VALUE = 0x08, RBX = 3, RBP = 6, R12 = 12, R13 = 13, R14 = 14, R15 = 15 };
    static const uint8_t preserved[] = {SAME_VALUE, RBX, SAME_VALUE, RBP, SAME_VALUE, R12,
                                        SAME_VALUE, R13, SAME_VALUE, R14, SAME_VALUE, R15};
    uint8_t start[4 + 1 + 3 + 10 + 10 + 3 + sizeof(preserved)] = {0, 0, 0, 0, 1, 'z', 'R', '\0'};
    size_t size = 8;
    size += put_leb(start + size, cie->code_align, false);
    size += put_leb(start + size, (uint64_t)cie->data_align, true);
    start[size++] = 16; /* return address column */
    start[size++] = 1;  /* bytes of augmentation data */
    start[size++] = PE_ABSPTR | PE_UDATA8;
    memcpy(start + size, preserved, sizeof(preserved));
    size += sizeof(preserved);
    return append_entry(table, start, size, program, program_bytes);
}

enum { FDE_START_BYTES = 4 + 8 + 8 + 1 };

static int append_fde(struct cfitable *table, size_t cie_off, const struct cfi_fde *fde, const uint8_t *program,
                      size_t program_bytes)
{
    uint8_t start[FDE_START_BYTES] = {0};
    uint32_t distance = (uint32_t)(table->normalised_bytes + sizeof(uint32_t) - cie_off);
    uint64_t length = fde->end_svma - fde->start_svma;
    memcpy(start, &distance, 4);
    memcpy(start + 4, &fde->start_svma, 8);
    memcpy(start + 12, &length, 8);
    return append_entry(table, start, sizeof(start), program, program_bytes);
}

/*
 * Bytes of an entry. `position` is what struct cfi_bytes calls svma: a linker address, or an offset into .debug_frame.
 */
static int read_file(const struct cfitable *table, const struct source *source, uint64_t position, void *buffer,
                     size_t size)
{
    if (source->format == CFI_EH_FRAME)
        return image_read_svma(table->image, position, buffer, size) < 0 ? -EINVAL : 0;
    uint64_t end = source->data ? source->data_bytes : source->section.bytes;
    if (position > end || size > end - position)
        return -EINVAL;
    if (source->data) {
        memcpy(buffer, source->data + position, size);
        return 0;
    }
    return image_read_off(table->image, source->section.off + position, buffer, size) < 0 ? -EINVAL : 0;
}

/* The same, read ahead where that is possible. */
static int read_position(struct cfitable *table, const struct source *source, uint64_t position, void *buffer,
                         size_t size)
{
    for (unsigned i = 0; i < WINDOW_COUNT; i++) {
        const struct window *window = &table->windows[i];
        uint64_t start = position - window->position;
        if (window->source == source && start <= WINDOW_BYTES && size <= WINDOW_BYTES - start) {
            memcpy(buffer, window->bytes + start, size);
            table->last_window = i;
            return 0;
        }
    }
    unsigned oldest = (table->last_window + 1) % WINDOW_COUNT;
    struct window *window = &table->windows[oldest];
    window->source = NULL;
    if (size > WINDOW_BYTES || read_file(table, source, position, window->bytes, WINDOW_BYTES) < 0)
        return read_file(table, source, position, buffer, size);
    window->source = source;
    window->position = position;
    table->last_window = oldest;
    memcpy(buffer, window->bytes, size);
    return 0;
}

/* Reads one entry into the scratch memory, behind the `used` bytes there. */
static int read_entry(struct cfitable *table, const struct source *source, uint64_t position, size_t used,
                      struct cfi_bytes *ret_bytes)
{
    uint8_t length_bytes[12];
    uint32_t short_length;
    int err = read_position(table, source, position, &short_length, sizeof(short_length));
    if (err)
        return err;
    uint64_t length = short_length + UINT64_C(4);
    if (short_length == UINT32_MAX) {
        err = read_position(table, source, position, length_bytes, sizeof(length_bytes));
        if (err)
            return err;
        memcpy(&length, length_bytes + 4, sizeof(length));
        if (length > ENTRY_BYTES_MAX)
            return -EINVAL;
        length += 12;
    }
    if (length > ENTRY_BYTES_MAX)
        return -EINVAL;
    err = array_room(&table->scratch, &table->scratch_capacity, used + (size_t)length);
    if (!err)
        err = read_position(table, source, position, table->scratch + used, (size_t)length);
    if (err)
        return err;
    *ret_bytes = (struct cfi_bytes){
        .data = table->scratch + used, .size = (size_t)length, .svma = position, .format = source->format};
    return 0;
}

static int normalise_entry(struct cfitable *table, const struct source *source, uint64_t position,
                           struct cfi_function *ret_function)
{
    struct cfi_bytes fde_bytes;
    int err = read_entry(table, source, position, 0, &fde_bytes);
    if (err)
        return err;
    struct cfi_head fde_head;
    if (cfi_head_read(fde_bytes, 0, &fde_head) != CFI_HEAD_ENTRY || fde_head.cie_distance == 0)
        return -EINVAL;
    struct cfi_bytes cie_bytes;
    uint64_t cie_position = position + fde_head.id_off - fde_head.cie_distance;
    err = read_entry(table, source, cie_position, fde_bytes.size, &cie_bytes);
    if (err)
        return err;
    fde_bytes.data = table->scratch; /* may have moved */

    struct cfi_head cie_head;
    struct cfi_cie cie;
    struct cfi_fde fde;
    if (cfi_head_read(cie_bytes, 0, &cie_head) != CFI_HEAD_ENTRY || cie_head.cie_distance != 0 ||
        !cfi_cie_read(cie_bytes, &cie_head, &cie) || !cfi_fde_read(fde_bytes, &fde_head, &cie, &fde))
        return -EINVAL;

    ret_function->start_svma = fde.start_svma;
    ret_function->end_svma = fde.end_svma;
    ret_function->signal = cie.signal;
    uint8_t *cie_program = table->scratch + fde_bytes.size + cie.program_off;
    uint8_t *fde_program = table->scratch + fde.program_off;
    size_t cie_program_bytes = cie_head.end_off - cie.program_off;
    size_t fde_program_bytes = fde_head.end_off - fde.program_off;
    if (!cfi_program_normalise(cie_program, cie_program_bytes) ||
        !cfi_program_normalise(fde_program, fde_program_bytes))
        return -EINVAL;
    size_t cie_off = table->normalised_bytes;
    err = append_cie(table, &cie, cie_program, cie_program_bytes);
    size_t fde_off = table->normalised_bytes;
    if (!err)
        err = append_fde(table, cie_off, &fde, fde_program, fde_program_bytes);
    if (err) {
        table->normalised_bytes = cie_off;
        return err;
    }
    ret_function->cie_off = (uint32_t)cie_off;
    ret_function->fde_off = (uint32_t)fde_off;
    ret_function->program_off = (uint32_t)(fde_off + sizeof(uint32_t) + FDE_START_BYTES);
    ret_function->end_off = (uint32_t)table->normalised_bytes;
    ret_function->code_align = cie.code_align;
    return 0;
}

/* ---- questions ---- */

static int parse_record(struct cfitable *table, const struct source *source, size_t n)
{
    int err = array_room(&table->records, &table->record_capacity, table->record_count + 1);
    if (err)
        return err;
    struct function_record record = {0};
    uint64_t base = source->format == CFI_EH_FRAME ? source->index.base_svma : 0;
    uint64_t position = base + (uint64_t)(int64_t)source->index.spans[n].fde;
    record.error = normalise_entry(table, source, position, &record.function);
    if (record.error == -ENOMEM)
        return -ENOMEM;
    table->records[table->record_count++] = record;
    source->record_of[n] = (uint32_t)table->record_count;
    return 0;
}

/* Where the span's entry says that it ends; where the span starts, if the entry is another function's or no entry. */
static uint64_t true_end(const struct cfitable *table, const struct source *source, size_t n)
{
    uint64_t start = cfiindex_start(&source->index, n);
    if (source->index.spans[n].bytes > 0)
        return start + source->index.spans[n].bytes;
    if (source->record_of[n] == 0)
        return start;
    const struct cfi_function *function = &table->records[source->record_of[n] - 1].function;
    return function->end_svma > 0 && function->start_svma == start ? function->end_svma : start;
}

static int find_in(struct cfitable *table, const struct source *source, uint64_t svma,
                   struct cfi_function *ret_function)
{
    size_t n = cfiindex_find(&source->index, svma);
    if (n == SIZE_MAX || (source->index.spans[n].bytes > 0 && svma >= true_end(table, source, n)))
        return -ENOENT;
    if (source->record_of[n] == 0) {
        int err = parse_record(table, source, n);
        if (err)
            return err;
    }
    if (svma >= true_end(table, source, n))
        return -ENOENT;
    const struct function_record *record = &table->records[source->record_of[n] - 1];
    if (record->error)
        return record->error;
    *ret_function = record->function;
    return 0;
}

/* A search table that gives no entry for the address may lie, so .eh_frame itself is asked. */
int cfitable_find(struct cfitable *table, uint64_t svma, struct cfi_function *ret_function)
{
    for (enum source_kind kind = 0; kind < SOURCE_COUNT; kind++) {
        int err = source_build(table, kind);
        if (!err)
            err = find_in(table, &table->sources[kind], svma, ret_function);
        if (err != -ENOENT)
            return err;
    }
    return -ENOENT;
}

bool cfitable_gap(struct cfitable *table, uint64_t svma, uint64_t *ret_start_svma, uint64_t *ret_end_svma)
{
    struct cfi_function function;
    if (cfitable_find(table, svma, &function) != -ENOENT)
        return false;
    uint64_t start = 0;
    uint64_t end = UINT64_MAX;
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        const struct source *source = &table->sources[i];
        size_t n = cfiindex_find(&source->index, svma);
        size_t next = n == SIZE_MAX ? 0 : n + 1;
        if (n != SIZE_MAX && true_end(table, source, n) > start)
            start = true_end(table, source, n);
        if (next < source->index.count && cfiindex_start(&source->index, next) < end)
            end = cfiindex_start(&source->index, next);
    }
    if (svma >= end) /* the very last address */
        return false;
    *ret_start_svma = start;
    *ret_end_svma = end;
    return true;
}

const uint8_t *cfitable_bytes(const struct cfitable *table, size_t *ret_size)
{
    *ret_size = table->normalised_bytes;
    return table->normalised;
}
