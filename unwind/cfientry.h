/*
 * Parsing of the entries of .eh_frame and .debug_frame: CIEs, FDEs, and the pointers and programs in them. Works on
 * bytes from a file that may be damaged or hostile: every length is checked against the bytes at hand, and nothing is
 * read outside them.
 *
 * Format: Linux Standard Base Core 5.0, chapter 10.6 (Exception Frames); DWARF 5, section 6.4.
 */
#ifndef UNWIND_CFIENTRY_H
#define UNWIND_CFIENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The two sections differ in how a CIE is known (id 0, or all ones), in what an FDE's CIE pointer counts from (itself,
 * or the section's start) and in how addresses are written (as the CIE says, or as they are).
 */
enum cfi_format { CFI_EH_FRAME, CFI_DEBUG_FRAME };

/* Bytes of an image and where the first one is: its linker address, or in .debug_frame its offset in the section. */
struct cfi_bytes {
    const uint8_t *data; /* borrowed */
    size_t size;
    uint64_t svma;
    enum cfi_format format;
};

/* A reading position. After a read beyond the end `bad` stays set, and every further read gives 0. */
struct cfi_reader {
    struct cfi_bytes bytes;
    size_t position;
    bool bad;
};

/* Little-endian number of 1, 2, 4 or 8 bytes. */
uint64_t cfi_read_number(struct cfi_reader *reader, size_t size);
/* LEB128 of at most 10 bytes, of which 64 bits count. */
uint64_t cfi_read_uleb(struct cfi_reader *reader);
int64_t cfi_read_sleb(struct cfi_reader *reader);

/* DW_EH_PE: a format in the low four bits, what it is relative to in the high ones. */
enum { PE_ABSPTR = 0x00, PE_UDATA4 = 0x03, PE_UDATA8 = 0x04, PE_SDATA4 = 0x0b, PE_PCREL = 0x10, PE_DATAREL = 0x30 };

/*
 * A pointer in one of the DW_EH_PE encodings; `data_svma` is the base of data-relative ones. Indirect, text-,
 * function-relative and aligned pointers do not occur for code in ELF files and are bad.
 */
uint64_t cfi_read_pointer(struct cfi_reader *reader, uint8_t encoding, uint64_t data_svma);

/* The beginning that all entries share. Offsets are into the bytes. */
struct cfi_head {
    size_t id_off;         /* where the CIE id or CIE pointer stands; an FDE's CIE starts at id_off - cie_distance */
    size_t content_off;    /* behind it */
    size_t end_off;        /* where the next entry starts */
    uint64_t cie_distance; /* 0: this is a CIE. Modulo 2^64: in .debug_frame a CIE may stand behind its FDEs */
};

enum cfi_head_answer { CFI_HEAD_ENTRY, CFI_HEAD_TERMINATOR, CFI_HEAD_BAD };
enum cfi_head_answer cfi_head_read(struct cfi_bytes bytes, size_t off, struct cfi_head *ret_head);

struct cfi_cie {
    uint64_t code_align;
    int64_t data_align;
    uint8_t pointer_encoding; /* of the FDE's addresses; in .debug_frame never relative to anything */
    bool sized;               /* augmentation 'z' */
    bool signal;              /* augmentation 'S': the frame that it calls back into was interrupted */
    size_t program_off;       /* up to the entry's end */
};

struct cfi_fde {
    uint64_t start_svma;
    uint64_t end_svma;
    size_t program_off;
};

/*
 * false: damaged, of an unknown version or augmentation (or with a string of 16 letters or more: nobody's), its return
 * address is not in column 16, or its addresses do not have 8 bytes.
 */
bool cfi_cie_read(struct cfi_bytes bytes, const struct cfi_head *head, struct cfi_cie *ret_cie);
bool cfi_fde_read(struct cfi_bytes bytes, const struct cfi_head *head, const struct cfi_cie *cie,
                  struct cfi_fde *ret_fde);

/*
 * Makes a program one that an evaluator can be trusted with. Instructions for columns beyond the 17 (vector registers,
 * which functions of the Windows ABI save) become DW_CFA_nop. false: an instruction that is not known, operands beyond
 * the bytes, a CFA or a value in such a column, more than 64 states remembered at a time, or an expression that could
 * divide (INT64_MIN / -1 traps in an evaluator that divides). Whether loops end is for the evaluator's budget to say.
 */
bool cfi_program_normalise(uint8_t *program, size_t size);

/*
 * The row of a normalised FDE's program that holds `svma`: from the last advance of the location at or before it to the
 * next one. `ret_start` and `ret_end` come in as the function's range.
 */
void cfi_program_row(const uint8_t *program, size_t size, uint64_t code_align, uint64_t svma, uint64_t *ret_start,
                     uint64_t *ret_end);

#endif
