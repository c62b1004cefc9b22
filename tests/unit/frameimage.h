/*
 * ELF images in memory around the bytes of an .eh_frame or .debug_frame, which may be as damaged as they like. File
 * offset and linker address are the same.
 */
#ifndef TESTS_UNIT_FRAMEIMAGE_H
#define TESTS_UNIT_FRAMEIMAGE_H

#include "symbolize/image.h"

enum {
    FRAMEIMAGE_TEXT = 0x1000, /* up to the search table */
    FRAMEIMAGE_SEARCH = 0x2000,
    FRAMEIMAGE_FRAMES = 0x3000
};

struct frameimage {
    const void *text;
    size_t text_bytes; /* up to 0x1000; what does not fit is left out */
    const void *search;
    size_t search_bytes; /* PT_GNU_EH_FRAME, up to 0x1000; 0: none */
    const void *frames;
    size_t frame_bytes;
    uint64_t entry_svma;
    bool stripped; /* no section headers */
    bool debug;    /* the frames are .debug_frame, not .eh_frame */
};

/* All is copied. NULL: no memory. */
struct image *frameimage_open(const struct frameimage *parts);

/* One function's unwind information, to be assembled. The CIE says that CFA = rsp + 8, return address at CFA - 8. */
struct frameprogram {
    uint64_t start_svma;
    uint64_t bytes; /* of code */
    uint8_t code_align;
    int8_t data_align; /* fits one byte of LEB128 */
    bool signal;
    const uint8_t *program; /* the FDE's */
    size_t program_bytes;
};

/*
 * Writes CIE and FDE at `off`, where 4 zero bytes are an end of all entries. Returns the offset behind them, 0 when
 * there is no room.
 */
size_t frameprogram_write(const struct frameprogram *function, uint8_t *frames, size_t size, size_t off);

#endif
