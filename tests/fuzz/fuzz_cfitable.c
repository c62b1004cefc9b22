/* Hostile .eh_frame and search tables: what the index and the entries of them say is consistent, and inside the bytes.
 */
#include "frameimage.h"
#include "fuzz.h"
#include "unwind/cfientry.h"
#include "unwind/cfitable.h"

#include <errno.h>

/* Input: flags (1 byte), search table (a part), the rest is .eh_frame or .debug_frame. */
enum { FUNCTIONS_MAX = 256, FLAG_STRIPPED = 1, FLAG_DEBUG = 2, STEP_BYTES = 0x40 };

static void check_function(struct cfitable *table, uint64_t svma)
{
    struct cfi_function function;
    int err = cfitable_find(table, svma, &function);
    FUZZ_CHECK(err == 0 || err == -ENOENT || err == -EINVAL);
    if (err)
        return;
    FUZZ_CHECK(function.start_svma <= svma && svma < function.end_svma);
    size_t bytes;
    const uint8_t *entries = cfitable_bytes(table, &bytes);
    FUZZ_CHECK(bytes % 8 == 0 && function.end_off <= bytes);
    FUZZ_CHECK(function.cie_off < function.fde_off && function.fde_off < function.program_off &&
               function.program_off <= function.end_off);
    /* Our own reader finds in it what the table says. */
    struct cfi_bytes whole = {.data = entries, .size = function.end_off};
    struct cfi_head head;
    struct cfi_cie cie;
    struct cfi_fde fde;
    FUZZ_CHECK(cfi_head_read(whole, function.cie_off, &head) == CFI_HEAD_ENTRY && cfi_cie_read(whole, &head, &cie));
    FUZZ_CHECK(cie.code_align == function.code_align);
    FUZZ_CHECK(cfi_head_read(whole, function.fde_off, &head) == CFI_HEAD_ENTRY);
    FUZZ_CHECK(head.id_off - head.cie_distance == function.cie_off);
    FUZZ_CHECK(cfi_fde_read(whole, &head, &cie, &fde));
    FUZZ_CHECK(fde.start_svma == function.start_svma && fde.end_svma == function.end_svma &&
               fde.program_off == function.program_off);
    uint64_t start = function.start_svma, end = function.end_svma;
    cfi_program_row(entries + function.program_off, function.end_off - function.program_off, function.code_align, svma,
                    &start, &end);
    FUZZ_CHECK(function.start_svma <= start && start <= svma && svma < end && end <= function.end_svma);
}

static void check_table(struct cfitable *table)
{
    size_t count = cfitable_count(table);
    for (size_t i = 0; i < count && i < FUNCTIONS_MAX; i++) {
        uint64_t start = cfitable_start(table, i);
        /* Modulo 2^64: a table may speak of addresses below 0. */
        FUZZ_CHECK(i == 0 || (int64_t)start >= (int64_t)cfitable_start(table, i - 1));
        check_function(table, start);
        check_function(table, start + 5);
        check_function(table, start - 1);
    }
    check_function(table, 0);
    /* Not all that there is counts as .eh_frame's. */
    for (uint64_t svma = FRAMEIMAGE_TEXT; svma < FRAMEIMAGE_SEARCH; svma += STEP_BYTES)
        check_function(table, svma);
    check_function(table, UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.data = data, .size = size};
    uint8_t flags = (uint8_t)fuzz_take_number(&input, 1);
    struct fuzz_input search = fuzz_take_part(&input);
    struct frameimage parts = {.search = search.data,
                               .search_bytes = search.size,
                               .frames = input.data,
                               .frame_bytes = input.size,
                               .stripped = flags & FLAG_STRIPPED,
                               .debug = flags & FLAG_DEBUG};
    struct image *image = frameimage_open(&parts);
    FUZZ_CHECK(image && image_kind(image) == IMAGE_ELF);
    struct cfitable *table;
    FUZZ_CHECK(cfitable_new(image, &table) == 0);
    check_table(table);
    cfitable_free(table);
    FUZZ_CHECK(cfitable_new_linear(image, &table) == 0);
    check_table(table);
    cfitable_free(table);
    image_free(image);
    return 0;
}
