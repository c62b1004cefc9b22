#include "unwind/cfientry.h"

#include <string.h>

/* libdw reads 10 bytes of a LEB128, which is what 64 bits take, and takes the rest for instructions. */
enum { LEB_BYTES_MAX = 10, AUGMENTATION_BYTES_MAX = 16 /* with its NUL */ };

uint64_t cfi_read_number(struct cfi_reader *reader, size_t size)
{
    uint64_t value = 0;
    if (reader->bad || size > reader->bytes.size - reader->position) {
        reader->bad = true;
        return 0;
    }
    memcpy(&value, reader->bytes.data + reader->position, size);
    reader->position += size;
    return value;
}

/* The bits of one LEB128; *ret_shift is how many there were, *ret_last the last byte. Bits beyond 64 are dropped. */
static uint64_t read_leb(struct cfi_reader *reader, unsigned *ret_shift, uint8_t *ret_last)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = (uint8_t)cfi_read_number(reader, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (shift > 7 * LEB_BYTES_MAX)
            reader->bad = true;
    } while ((byte & 0x80) && !reader->bad);
    *ret_shift = shift;
    *ret_last = byte;
    return value;
}

uint64_t cfi_read_uleb(struct cfi_reader *reader)
{
    unsigned shift;
    uint8_t last;
    return read_leb(reader, &shift, &last);
}

int64_t cfi_read_sleb(struct cfi_reader *reader)
{
    unsigned shift;
    uint8_t last;
    uint64_t value = read_leb(reader, &shift, &last);
    if ((last & 0x40) && shift < 64)
        value |= ~UINT64_C(0) << shift;
    return (int64_t)value;
}

static uint64_t read_pointer_format(struct cfi_reader *reader, unsigned format)
{
    switch (format) {
    case 0x0: /* absptr */
    case 0x4: /* udata8 */
    case 0xc: /* sdata8 */
        return cfi_read_number(reader, 8);
    case 0x1:
        return cfi_read_uleb(reader);
    case 0x2:
        return cfi_read_number(reader, 2);
    case 0x3:
        return cfi_read_number(reader, 4);
    case 0x9:
        return (uint64_t)cfi_read_sleb(reader);
    case 0xa:
        return (uint64_t)(int64_t)(int16_t)cfi_read_number(reader, 2);
    case 0xb:
        return (uint64_t)(int64_t)(int32_t)cfi_read_number(reader, 4);
    default:
        reader->bad = true;
        return 0;
    }
}

uint64_t cfi_read_pointer(struct cfi_reader *reader, uint8_t encoding, uint64_t data_svma)
{
    uint64_t here = reader->bytes.svma + reader->position;
    uint64_t value = read_pointer_format(reader, encoding & 0x0fU);
    switch (encoding & 0xf0U) {
    case PE_ABSPTR:
        return value;
    case PE_PCREL:
        return here + value;
    case PE_DATAREL:
        return data_svma + value;
    default:
        reader->bad = true;
        return 0;
    }
}

/* .debug_frame: what stands in cie_distance becomes what .eh_frame would say. */
static bool distance_from_offset(struct cfi_head *head, uint64_t section_off, size_t id_bytes)
{
    if (head->cie_distance == (id_bytes == 4 ? UINT32_MAX : UINT64_MAX)) {
        head->cie_distance = 0;
        return true;
    }
    head->cie_distance = section_off + head->id_off - head->cie_distance;
    return head->cie_distance != 0;
}

enum cfi_head_answer cfi_head_read(struct cfi_bytes bytes, size_t off, struct cfi_head *ret_head)
{
    if (off > bytes.size)
        return CFI_HEAD_BAD;
    struct cfi_reader reader = {.bytes = bytes, .position = off};
    size_t id_bytes = 4;
    uint64_t length = cfi_read_number(&reader, 4);
    if (length == UINT32_MAX) {
        length = cfi_read_number(&reader, 8);
        id_bytes = 8;
    }
    if (reader.bad)
        return CFI_HEAD_BAD;
    if (length == 0)
        return CFI_HEAD_TERMINATOR;
    if (length < id_bytes || length > bytes.size - reader.position)
        return CFI_HEAD_BAD;
    struct cfi_head head = {.id_off = reader.position, .end_off = reader.position + (size_t)length};
    head.cie_distance = cfi_read_number(&reader, id_bytes);
    head.content_off = reader.position;
    if (bytes.format == CFI_DEBUG_FRAME && !distance_from_offset(&head, bytes.svma, id_bytes))
        return CFI_HEAD_BAD;
    *ret_head = head;
    return CFI_HEAD_ENTRY;
}

/* The augmentation data that the string's letters announce. */
static bool read_augmentation(struct cfi_reader *reader, const char *letters, struct cfi_cie *cie)
{
    for (const char *letter = letters; *letter != '\0'; letter++) {
        uint8_t encoding;
        switch (*letter) {
        case 'L':
            cfi_read_number(reader, 1);
            break;
        case 'R':
            cie->pointer_encoding = (uint8_t)cfi_read_number(reader, 1);
            break;
        case 'P':
            encoding = (uint8_t)cfi_read_number(reader, 1);
            read_pointer_format(reader, encoding & 0x0fU);
            break;
        case 'S':
            cie->signal = true;
            break;
        default:
            /* What follows is not known, but how long all of it is. */
            return cie->sized;
        }
    }
    return !reader->bad;
}

/* Version, augmentation string (left for the caller), and in version 4 the sizes of addresses and segment selectors. */
static bool read_cie_start(struct cfi_reader *reader, const char **ret_letters, uint64_t *ret_version)
{
    uint64_t version = cfi_read_number(reader, 1);
    bool is_debug = reader->bytes.format == CFI_DEBUG_FRAME;
    if (version != 1 && version != 3 && !(version == 4 && is_debug))
        return false;
    const char *letters = (const char *)reader->bytes.data + reader->position;
    size_t room = reader->bytes.size - reader->position;
    const char *end = memchr(letters, '\0', room < AUGMENTATION_BYTES_MAX ? room : AUGMENTATION_BYTES_MAX);
    if (!end)
        return false;
    reader->position += (size_t)(end - letters) + 1;
    if (version == 4 && (cfi_read_number(reader, 1) != 8 || cfi_read_number(reader, 1) != 0))
        return false;
    *ret_letters = letters;
    *ret_version = version;
    return true;
}

bool cfi_cie_read(struct cfi_bytes bytes, const struct cfi_head *head, struct cfi_cie *ret_cie)
{
    bytes.size = head->end_off;
    struct cfi_reader reader = {.bytes = bytes, .position = head->content_off};
    struct cfi_cie cie = {.pointer_encoding = PE_ABSPTR};
    const char *letters;
    uint64_t version;
    if (!read_cie_start(&reader, &letters, &version))
        return false;
    cie.code_align = cfi_read_uleb(&reader);
    cie.data_align = cfi_read_sleb(&reader);
    uint64_t return_column = version == 1 ? cfi_read_number(&reader, 1) : cfi_read_uleb(&reader);
    if (reader.bad || return_column != 16)
        return false;
    if (*letters == 'z') {
        cie.sized = true;
        uint64_t size = cfi_read_uleb(&reader);
        if (reader.bad || size > bytes.size - reader.position)
            return false;
        cie.program_off = reader.position + (size_t)size;
        reader.bytes.size = cie.program_off;
        letters++;
    }
    if (!read_augmentation(&reader, letters, &cie))
        return false;
    if (!cie.sized)
        cie.program_off = reader.position;
    if (bytes.format == CFI_DEBUG_FRAME && (cie.pointer_encoding & 0xf0U) != PE_ABSPTR)
        return false;
    *ret_cie = cie;
    return true;
}

bool cfi_fde_read(struct cfi_bytes bytes, const struct cfi_head *head, const struct cfi_cie *cie,
                  struct cfi_fde *ret_fde)
{
    bytes.size = head->end_off;
    struct cfi_reader reader = {.bytes = bytes, .position = head->content_off};
    struct cfi_fde fde;
    fde.start_svma = cfi_read_pointer(&reader, cie->pointer_encoding, 0);
    uint64_t length = read_pointer_format(&reader, cie->pointer_encoding & 0x0fU);
    if (cie->sized) {
        uint64_t size = cfi_read_uleb(&reader);
        if (reader.bad || size > bytes.size - reader.position)
            return false;
        reader.position += (size_t)size;
    }
    fde.end_svma = fde.start_svma + length;
    if (reader.bad || fde.end_svma <= fde.start_svma)
        return false;
    fde.program_off = reader.position;
    *ret_fde = fde;
    return true;
}

enum { COLUMNS = 17, OP_DIV = 0x1b };

/* DWARF 5, table 7.29. The three instructions with an operand in their low bits are decoded apart. */
enum cfa_instruction {
    CFA_NOP = 0x00,
    CFA_ADVANCE_LOC1 = 0x02,
    CFA_ADVANCE_LOC2 = 0x03,
    CFA_ADVANCE_LOC4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED = 0x06,
    CFA_UNDEFINED = 0x07,
    CFA_SAME_VALUE = 0x08,
    CFA_REGISTER = 0x09,
    CFA_REMEMBER_STATE = 0x0a,
    CFA_RESTORE_STATE = 0x0b,
    CFA_DEF_CFA = 0x0c,
    CFA_DEF_CFA_REGISTER = 0x0d,
    CFA_DEF_CFA_OFFSET = 0x0e,
    CFA_DEF_CFA_EXPRESSION = 0x0f,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_EXTENDED_SF = 0x11,
    CFA_DEF_CFA_SF = 0x12,
    CFA_DEF_CFA_OFFSET_SF = 0x13,
    CFA_VAL_EXPRESSION = 0x16,
    CFA_GNU_ARGS_SIZE = 0x2e,
    CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f
};

/* The register that a rule is for: of no interest beyond our columns. */
static bool read_target(struct cfi_reader *reader)
{
    return cfi_read_uleb(reader) < COLUMNS;
}

/* A register that a value comes from. */
static void check_source(struct cfi_reader *reader)
{
    if (cfi_read_uleb(reader) >= COLUMNS)
        reader->bad = true;
}

static void check_expression(struct cfi_reader *reader)
{
    uint64_t size = cfi_read_uleb(reader);
    if (reader->bad || size == 0 || size > reader->bytes.size - reader->position) {
        reader->bad = true;
        return;
    }
    /* A jump may land inside an operand, so each byte counts as an operation. */
    if (memchr(reader->bytes.data + reader->position, OP_DIV, (size_t)size))
        reader->bad = true;
    reader->position += (size_t)size;
}

/* Checks the operands. false: the rule is for a register of no interest. */
static bool check_extended(struct cfi_reader *reader, unsigned instruction)
{
    bool interesting = true;
    switch ((enum cfa_instruction)instruction) {
    case CFA_NOP:
    case CFA_REMEMBER_STATE:
    case CFA_RESTORE_STATE:
        break;
    case CFA_ADVANCE_LOC1:
        cfi_read_number(reader, 1);
        break;
    case CFA_ADVANCE_LOC2:
        cfi_read_number(reader, 2);
        break;
    case CFA_ADVANCE_LOC4:
        cfi_read_number(reader, 4);
        break;
    case CFA_RESTORE_EXTENDED:
    case CFA_UNDEFINED:
    case CFA_SAME_VALUE:
        interesting = read_target(reader);
        break;
    case CFA_OFFSET_EXTENDED:
    case CFA_OFFSET_EXTENDED_SF:
    case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
        interesting = read_target(reader);
        cfi_read_uleb(reader);
        break;
    case CFA_REGISTER:
        interesting = read_target(reader);
        check_source(reader);
        break;
    case CFA_DEF_CFA:
    case CFA_DEF_CFA_SF:
        check_source(reader);
        cfi_read_uleb(reader);
        break;
    case CFA_DEF_CFA_REGISTER:
        check_source(reader);
        break;
    case CFA_DEF_CFA_OFFSET:
    case CFA_DEF_CFA_OFFSET_SF:
    case CFA_GNU_ARGS_SIZE:
        cfi_read_uleb(reader);
        break;
    case CFA_DEF_CFA_EXPRESSION:
        check_expression(reader);
        break;
    case CFA_EXPRESSION:
    case CFA_VAL_EXPRESSION:
        interesting = read_target(reader);
        check_expression(reader);
        break;
    default:
        /* Also DW_CFA_set_loc, whose operand's encoding the CIE decides and which nothing emits, and val_offset. */
        reader->bad = true;
        break;
    }
    return interesting;
}

/* Evaluators keep each remembered state, and libunwind makes two system calls for one. Real programs nest few. */
static void check_nesting(struct cfi_reader *reader, unsigned byte, unsigned *remembered)
{
    enum { REMEMBERED_MAX = 64 };
    if (byte == CFA_RESTORE_STATE && *remembered > 0)
        --*remembered;
    else if (byte == CFA_REMEMBER_STATE && ++*remembered > REMEMBERED_MAX)
        reader->bad = true;
}

bool cfi_program_normalise(uint8_t *program, size_t size)
{
    struct cfi_reader reader = {.bytes = {.data = program, .size = size}};
    unsigned remembered = 0;
    while (!reader.bad && reader.position < size) {
        size_t start = reader.position;
        unsigned byte = (unsigned)cfi_read_number(&reader, 1);
        unsigned primary = byte >> 6;
        bool interesting = true;
        if (primary == 0) {
            interesting = check_extended(&reader, byte);
            check_nesting(&reader, byte, &remembered);
        } else if (primary == 2) { /* offset */
            cfi_read_uleb(&reader);
        }
        /* advance_loc needs nothing more, and neither does restore. */
        if (primary >= 2)
            interesting = (byte & 0x3fU) < COLUMNS;
        if (!interesting && !reader.bad)
            memset(program + start, CFA_NOP, reader.position - start);
    }
    return !reader.bad;
}

/* Reads one instruction; by how much it advances the location, before alignment. */
static uint64_t read_advance(struct cfi_reader *reader)
{
    size_t start = reader->position;
    unsigned byte = (unsigned)cfi_read_number(reader, 1);
    switch (byte >> 6) {
    case 0:
        check_extended(reader, byte);
        break;
    case 1:
        return byte & 0x3fU;
    case 2:
        cfi_read_uleb(reader);
        return 0;
    default:
        return 0;
    }
    if (byte != CFA_ADVANCE_LOC1 && byte != CFA_ADVANCE_LOC2 && byte != CFA_ADVANCE_LOC4)
        return 0;
    reader->position = start + 1;
    return cfi_read_number(reader, byte == CFA_ADVANCE_LOC1 ? 1 : byte == CFA_ADVANCE_LOC2 ? 2 : 4);
}

void cfi_program_row(const uint8_t *program, size_t size, uint64_t code_align, uint64_t svma, uint64_t *ret_start,
                     uint64_t *ret_end)
{
    struct cfi_reader reader = {.bytes = {.data = program, .size = size}};
    while (!reader.bad && reader.position < size) {
        uint64_t next = *ret_start + read_advance(&reader) * code_align;
        bool wrapped = next < *ret_start;
        if (next > svma || wrapped) {
            if (next < *ret_end && !wrapped)
                *ret_end = next;
            return;
        }
        *ret_start = next;
    }
}
