#include "unwind/cfitable.h"

#include "common/array.h"
#include "unwind/cfientry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nothing real comes near; a limit for what a sparse file may claim. */
enum { SECTION_BYTES_MAX = 1 << 30 };
/*
 * Of one function's CIE or FDE. An evaluator may need some 300 bytes for each byte of a program (remember_state), and
 * some nanoseconds; the largest in a Debian installation has 30 KB.
 */
enum { ENTRY_BYTES_MAX = 1 << 16 };
/* All normalised entries of one image. */
enum { NORMALISED_BYTES_MAX = 1 << 28 };

/* Addresses relative to the table's base. This is the layout of the search table in PT_GNU_EH_FRAME, too. */
struct index_entry {
    int32_t start;
    int32_t fde;
};

/* What cfitable_find made of an entry. */
struct function_record {
    int error; /* 0 or -EINVAL */
    struct cfi_function function;
};

struct cfitable {
    const struct image *image;
    uint64_t base_svma;
    struct index_entry *entries;
    size_t count;
    size_t capacity;
    uint32_t *record_of; /* per entry: index into records plus 1; 0: not parsed yet. NULL for an empty table */
    struct function_record *records;
    size_t record_count;
    size_t record_capacity;
    uint8_t *normalised;
    size_t normalised_bytes;
    size_t normalised_capacity;
    uint8_t *scratch; /* an entry as it is in the file */
    size_t scratch_capacity;
};

/* ---- the index ---- */

static int read_section(const struct image *image, const struct image_section *section, uint8_t **ret_data)
{
    if (section->bytes == 0 || section->bytes > SECTION_BYTES_MAX)
        return -ENODATA;
    uint8_t *data = malloc((size_t)section->bytes);
    if (!data)
        return -ENOMEM;
    if (image_read_off(image, section->off, data, (size_t)section->bytes) < 0) {
        free(data);
        return -ENODATA;
    }
    *ret_data = data;
    return 0;
}

static bool entries_are_sorted(const struct index_entry *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (entries[i].start < entries[i - 1].start)
            return false;
    }
    return true;
}

/* PT_GNU_EH_FRAME: version, three encodings, pointer to .eh_frame, number of entries, entries. */
struct search_header {
    uint64_t eh_frame_svma; /* 0: not said */
    bool has_table;
    uint64_t count;
    size_t table_off;
};

static bool search_header_read(const uint8_t *data, const struct image_section *section, struct search_header *ret)
{
    struct cfi_reader reader = {.bytes = {.data = data, .size = (size_t)section->bytes, .svma = section->svma}};
    uint64_t version = cfi_read_number(&reader, 1);
    uint8_t frame_encoding = (uint8_t)cfi_read_number(&reader, 1);
    uint8_t count_encoding = (uint8_t)cfi_read_number(&reader, 1);
    uint8_t table_encoding = (uint8_t)cfi_read_number(&reader, 1);
    if (reader.bad || version != 1)
        return false;
    struct search_header header = {0};
    header.eh_frame_svma = cfi_read_pointer(&reader, frame_encoding, section->svma);
    if (reader.bad)
        return false;
    if (count_encoding == PE_UDATA4 && table_encoding == (PE_DATAREL | PE_SDATA4)) {
        header.count = cfi_read_number(&reader, 4);
        header.table_off = reader.position;
        size_t room = reader.bytes.size - reader.position;
        header.has_table = !reader.bad && header.count > 0 && header.count <= room / sizeof(struct index_entry);
    }
    *ret = header;
    return true;
}

/* 0, -ENODATA when there is no table to trust, -ENOMEM. */
static int index_from_header(struct cfitable *table)
{
    struct image_section section;
    if (!image_find_eh_frame_hdr(table->image, &section))
        return -ENODATA;
    uint8_t *data = NULL;
    int err = read_section(table->image, &section, &data);
    if (err)
        return err;
    struct search_header header;
    err = -ENODATA;
    if (!search_header_read(data, &section, &header) || !header.has_table)
        goto out;
    err = array_room(&table->entries, &table->capacity, (size_t)header.count);
    if (err)
        goto out;
    memcpy(table->entries, data + header.table_off, (size_t)header.count * sizeof(*table->entries));
    if (entries_are_sorted(table->entries, (size_t)header.count)) {
        table->count = (size_t)header.count;
        table->base_svma = section.svma;
    } else {
        err = -ENODATA;
    }
out:
    free(data);
    return err;
}

/* .eh_frame by its section header, or by what PT_GNU_EH_FRAME says when there are no section headers. */
static bool find_eh_frame(const struct image *image, struct image_section *ret_section, bool *ret_whole)
{
    if (image_find_section(image, ".eh_frame", ret_section)) {
        *ret_whole = true;
        return true;
    }
    struct image_section section;
    uint8_t start[16] = {0};
    if (!image_find_eh_frame_hdr(image, &section) || section.bytes < sizeof(start) ||
        image_read_off(image, section.off, start, sizeof(start)) < 0)
        return false;
    section.bytes = sizeof(start);
    struct search_header header;
    if (!search_header_read(start, &section, &header))
        return false;
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t distance = header.eh_frame_svma - segments[i].svma;
        if (header.eh_frame_svma >= segments[i].svma && distance < segments[i].file_bytes) {
            *ret_section = (struct image_section){.off = segments[i].off + distance,
                                                  .svma = header.eh_frame_svma,
                                                  .bytes = segments[i].file_bytes - distance};
            *ret_whole = false;
            return true;
        }
    }
    return false;
}

static int index_add(struct cfitable *table, uint64_t start_svma, uint64_t fde_svma)
{
    int64_t start = (int64_t)(start_svma - table->base_svma);
    int64_t fde = (int64_t)(fde_svma - table->base_svma);
    if (start != (int32_t)start || fde != (int32_t)fde)
        return 0; /* more than 2 GB away: not an address of this image */
    int err = array_room(&table->entries, &table->capacity, table->count + 1);
    if (err)
        return err;
    table->entries[table->count++] = (struct index_entry){.start = (int32_t)start, .fde = (int32_t)fde};
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct index_entry *left = a;
    const struct index_entry *right = b;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    return left->fde < right->fde ? -1 : left->fde > right->fde;
}

/* Walks the entries; `whole`: the bytes are the section and nothing else, so a terminator (crtend.o's) does not end it.
 */
static int index_from_bytes(struct cfitable *table, struct cfi_bytes bytes, bool whole)
{
    struct cfi_cie cie = {0};
    size_t cie_off = SIZE_MAX; /* of the CIE that was parsed last */
    bool cie_good = false;
    size_t off = 0;
    while (off < bytes.size) {
        struct cfi_head head;
        enum cfi_head_answer answer = cfi_head_read(bytes, off, &head);
        if (answer == CFI_HEAD_TERMINATOR && whole) {
            off += 4;
            continue;
        }
        if (answer != CFI_HEAD_ENTRY)
            break; /* damaged, but what came before is as good as it was */
        if (head.cie_distance != 0 && head.cie_distance <= head.id_off) {
            size_t wanted = head.id_off - (size_t)head.cie_distance;
            struct cfi_head cie_head;
            if (wanted != cie_off) {
                cie_off = wanted;
                cie_good = cfi_head_read(bytes, wanted, &cie_head) == CFI_HEAD_ENTRY && cie_head.cie_distance == 0 &&
                           cfi_cie_read(bytes, &cie_head, &cie);
            }
            struct cfi_fde fde;
            if (cie_good && cfi_fde_read(bytes, &head, &cie, &fde)) {
                int err = index_add(table, fde.start_svma, bytes.svma + off);
                if (err)
                    return err;
            }
        }
        off = head.end_off;
    }
    if (table->count > 0)
        qsort(table->entries, table->count, sizeof(*table->entries), compare_entries);
    return 0;
}

static int index_linear(struct cfitable *table)
{
    struct image_section section;
    bool whole;
    if (!find_eh_frame(table->image, &section, &whole))
        return 0;
    uint8_t *data = NULL;
    int err = read_section(table->image, &section, &data);
    if (err)
        return err == -ENOMEM ? err : 0;
    table->base_svma = section.svma;
    struct cfi_bytes bytes = {.data = data, .size = (size_t)section.bytes, .svma = section.svma};
    err = index_from_bytes(table, bytes, whole);
    free(data);
    return err;
}

static int table_new(const struct image *image, bool linear, struct cfitable **ret_table)
{
    struct cfitable *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    table->image = image;
    int err = linear ? -ENODATA : index_from_header(table);
    if (err == -ENODATA)
        err = index_linear(table);
    if (!err && table->count > 0) {
        table->record_of = calloc(table->count, sizeof(*table->record_of));
        if (!table->record_of)
            err = -ENOMEM;
    }
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
    free(table->entries);
    free(table->record_of);
    free(table->records);
    free(table->normalised);
    free(table->scratch);
    free(table);
}

size_t cfitable_count(const struct cfitable *table)
{
    return table->count;
}

uint64_t cfitable_start(const struct cfitable *table, size_t n)
{
    return table->base_svma + (uint64_t)(int64_t)table->entries[n].start;
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

/* Reads the entry at `svma` into the scratch memory, behind the `used` bytes there. */
static int read_entry(struct cfitable *table, uint64_t svma, size_t used, struct cfi_bytes *ret_bytes)
{
    uint8_t length_bytes[12];
    uint32_t short_length;
    if (image_read_svma(table->image, svma, &short_length, sizeof(short_length)) < 0)
        return -EINVAL;
    uint64_t length = short_length + UINT64_C(4);
    if (short_length == UINT32_MAX) {
        if (image_read_svma(table->image, svma, length_bytes, sizeof(length_bytes)) < 0)
            return -EINVAL;
        memcpy(&length, length_bytes + 4, sizeof(length));
        if (length > ENTRY_BYTES_MAX)
            return -EINVAL;
        length += 12;
    }
    if (length > ENTRY_BYTES_MAX)
        return -EINVAL;
    int err = array_room(&table->scratch, &table->scratch_capacity, used + (size_t)length);
    if (err)
        return err;
    if (image_read_svma(table->image, svma, table->scratch + used, (size_t)length) < 0)
        return -EINVAL;
    *ret_bytes = (struct cfi_bytes){.data = table->scratch + used, .size = (size_t)length, .svma = svma};
    return 0;
}

static int normalise_entry(struct cfitable *table, uint64_t fde_svma, struct cfi_function *ret_function)
{
    struct cfi_bytes fde_bytes;
    int err = read_entry(table, fde_svma, 0, &fde_bytes);
    if (err)
        return err;
    struct cfi_head fde_head;
    if (cfi_head_read(fde_bytes, 0, &fde_head) != CFI_HEAD_ENTRY || fde_head.cie_distance == 0)
        return -EINVAL;
    struct cfi_bytes cie_bytes;
    err = read_entry(table, fde_svma + fde_head.id_off - fde_head.cie_distance, fde_bytes.size, &cie_bytes);
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

/* The last entry that starts at or before `svma`; SIZE_MAX for none. */
static size_t find_entry(const struct cfitable *table, uint64_t svma)
{
    int64_t wanted = (int64_t)(svma - table->base_svma);
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->entries[middle].start <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? SIZE_MAX : low - 1;
}

static int parse_record(struct cfitable *table, size_t n)
{
    int err = array_room(&table->records, &table->record_capacity, table->record_count + 1);
    if (err)
        return err;
    struct function_record record = {0};
    uint64_t fde_svma = table->base_svma + (uint64_t)(int64_t)table->entries[n].fde;
    record.error = normalise_entry(table, fde_svma, &record.function);
    if (record.error == -ENOMEM)
        return -ENOMEM;
    table->records[table->record_count++] = record;
    table->record_of[n] = (uint32_t)table->record_count;
    return 0;
}

int cfitable_find(struct cfitable *table, uint64_t svma, struct cfi_function *ret_function)
{
    size_t n = find_entry(table, svma);
    if (n == SIZE_MAX)
        return -ENOENT;
    if (table->record_of[n] == 0) {
        int err = parse_record(table, n);
        if (err)
            return err;
    }
    const struct function_record *record = &table->records[table->record_of[n] - 1];
    const struct cfi_function *function = &record->function;
    /* An entry whose range could be read says where it ends, also when its program is no good. */
    if (function->end_svma != 0 && (svma < function->start_svma || svma >= function->end_svma))
        return -ENOENT;
    if (record->error)
        return record->error;
    *ret_function = *function;
    return 0;
}

const uint8_t *cfitable_bytes(const struct cfitable *table, size_t *ret_size)
{
    *ret_size = table->normalised_bytes;
    return table->normalised;
}
