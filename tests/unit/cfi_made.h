/* Images with unwind tables for tests: real files opened, and ELF files made in memory. Failures fail the test. */
#ifndef TESTS_UNIT_CFI_MADE_H
#define TESTS_UNIT_CFI_MADE_H

#include "unwind/cfitable.h"

#include <stddef.h>
#include <stdint.h>

struct image *open_file(const char *path);

/* The C library that this program runs with. */
const char *libc_path(void);

/* A made file is one executable segment, with addresses that are offsets into the file. */
enum { TEXT_SVMA = 0x1000, SEARCH_SVMA = 0x2000, FRAME_SVMA = 0x3000 };

struct made {
    const uint8_t *frame; /* .eh_frame; NULL: none */
    size_t frame_bytes;
    const uint8_t *search; /* PT_GNU_EH_FRAME; NULL: none */
    size_t search_bytes;
    uint64_t frame_svma_error; /* its section header says so much more than is true */
    bool stripped;             /* no section headers */
    const uint8_t *debug;      /* .debug_frame; NULL: none */
    size_t debug_bytes;
    bool debug_is_z;      /* it has the name .zdebug_frame */
    uint64_t debug_flags; /* of its section header */
};

struct image *make_image(const struct made *made);

/* Bytes in the making. */
struct writer {
    uint8_t data[1024];
    size_t size;
};

void write_number(struct writer *writer, uint64_t value, size_t size);
void write_bytes(struct writer *writer, const void *data, size_t size);

/* Pads the entry that starts there to a multiple of 8 bytes and sets its length. */
void end_entry(struct writer *writer, size_t start);

/* Of .eh_frame: version 1, augmentation "zR" or "zRS", CFA = rsp + 8, return address at CFA - 8. */
size_t write_cie(struct writer *writer, uint8_t encoding, bool signal);
size_t write_fde(struct writer *writer, size_t cie, uint64_t start_svma, uint64_t length, uint8_t encoding);

/* The contents of PT_GNU_EH_FRAME for three functions, 0x100 bytes apart; `order`: in which order they stand there. */
struct writer make_search(const size_t *fdes, const size_t *order, uint32_t count);

struct cfitable *make_table(const struct writer *frame, const struct writer *search, bool stripped,
                            struct image **ret_image);

#endif
