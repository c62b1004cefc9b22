/*
 * An ELF image: one file (or one piece of target memory, the vDSO) that code was mapped from.
 *
 * An image knows its bytes, its segments and its sections. It knows nothing of processes: where it is mapped is said by
 * the caller. Addresses inside an image are file offsets (`_off`, what a frame is recorded as) or addresses as the
 * linker gave them (`_svma`, what symbols and unwind tables speak of); addresses in a target are `_avma`.
 *
 * Every number of the file is checked against the file's size before it is used: a truncated or hostile file gives an
 * image without segments or without that section, never a fault, a hang or an allocation larger than the file (but for
 * what image_load_section inflates). The file is read with pread and never mapped, because a file that shrinks under a
 * mapping would kill the sampler by SIGBUS.
 *
 * Immutable after opening; any thread may read it. Format: System V ABI and its AMD64 supplement (ELF-64, little
 * endian).
 */
#ifndef SYMBOLIZE_IMAGE_H
#define SYMBOLIZE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image;

/* The part of a PT_LOAD that is in the file (not its .bss), in the order of the program headers. */
struct image_segment {
    uint64_t off;
    uint64_t svma;
    uint64_t file_bytes;
    bool executable;
};

/* How the bytes of a section are stored. */
enum image_compression {
    IMAGE_STORED,
    IMAGE_COMPRESSED,    /* SHF_COMPRESSED: an Elf64_Chdr, then the stream */
    IMAGE_COMPRESSED_GNU /* the older form, named .zdebug_*: "ZLIB", the size as a big-endian number, the stream */
};

/* A piece of the image that lies wholly inside the file. */
struct image_section {
    uint64_t off;
    uint64_t svma;
    uint64_t bytes; /* in the file */
    enum image_compression compression;
};

/* What the bytes are. Anything but IMAGE_ELF has no segments and no sections: only the file can name its frames. */
enum image_kind {
    IMAGE_ELF,
    IMAGE_NOT_ELF,   /* no ELF magic, too short to have a header, or no regular file */
    IMAGE_FOREIGN,   /* ELF, but not 64-bit little-endian x86-64 */
    IMAGE_DAMAGED,   /* ELF header or program headers do not fit the file */
    IMAGE_UNREADABLE /* nothing could be opened: only the name is known */
};

/*
 * Opens an image on a file. `fd` is consumed, also on failure, and stays open in the image: the file may be deleted or
 * replaced afterwards. -1 gives an IMAGE_UNREADABLE. `path` (copied) is the name to show, as the target's maps give it.
 * Returns 0 or -ENOMEM; a file that is no good ELF is a kind, not an error.
 */
int image_open(int fd, const char *path, struct image **ret_image);

/* The same on bytes from memory; `bytes` (from malloc) is consumed, also on failure. Used for the vDSO. */
int image_open_memory(void *bytes, size_t size, const char *path, struct image **ret_image);

/* Bytes of an image in memory that are there: [off, off + bytes). */
struct image_piece {
    uint64_t off;
    uint64_t bytes;
};

/*
 * The same, of which only these pieces (copied) are there: to read anything else is -ENODATA. image_memory has none of
 * it. At most IMAGE_PIECES_MAX pieces; they may overlap.
 */
enum { IMAGE_PIECES_MAX = 64 };
int image_open_pieces(void *bytes, size_t size, const struct image_piece *pieces, size_t count, const char *path,
                      struct image **ret_image);

void image_free(struct image *image);

enum image_kind image_kind(const struct image *image);
const char *image_path(const struct image *image); /* borrowed */
uint64_t image_size(const struct image *image);    /* bytes in the file when it was opened */

/* Borrowed, for libelf and libdw handles of one thread's own; -1: in memory, unreadable, no regular file. */
int image_fd(const struct image *image);

/* Bytes of an image in memory, NULL for a file and for pieces. Borrowed. */
const void *image_memory(const struct image *image, size_t *ret_size);

/* Build-id note (NT_GNU_BUILD_ID) of at most 64 bytes, borrowed; 0 bytes when there is none. */
const uint8_t *image_build_id(const struct image *image, size_t *ret_size);

const struct image_segment *image_segments(const struct image *image, size_t *ret_count); /* borrowed */

/*
 * Reads exactly `size` bytes. Returns 0, -ENODATA when they are not all in the file (any more), or another negative
 * errno. The buffer is undefined on failure.
 */
int image_read_off(const struct image *image, uint64_t off, void *buffer, size_t size);
int image_read_svma(const struct image *image, uint64_t svma, void *buffer, size_t size);

/*
 * File offset to linker address and back, by the segments. Of two that hold the offset, the executable one counts.
 * false: no segment holds it.
 */
bool image_off_to_svma(const struct image *image, uint64_t off, uint64_t *ret_svma);
bool image_svma_to_off(const struct image *image, uint64_t svma, uint64_t *ret_off);

/*
 * Load bias (avma - svma) of a mapping that starts at `start_avma` with file offset `map_off`. Mappings start at page
 * boundaries, segments need not: the segment is the one whose page-rounded file range holds map_off. Of several first
 * one that is executable as the mapping is (`executable`), then one that starts on that page. The bias is modulo 2^64.
 * (Two data segments on one page of the file cannot be told apart: ask with code mappings.)
 * Returns false when no segment fits.
 */
bool image_bias(const struct image *image, uint64_t start_avma, uint64_t map_off, bool executable, uint64_t *ret_bias);

/* Whether some segment explains that mapping with just this bias: where image_bias has to choose, what is known of
 * another mapping of the same load decides. */
bool image_bias_fits(const struct image *image, uint64_t start_avma, uint64_t map_off, uint64_t bias);

/* A section by name (".eh_frame"), through the section headers. false: none, empty, SHT_NOBITS or outside the file. */
bool image_find_section(const struct image *image, const char *name, struct image_section *ret_section);

/*
 * The section's content, decompressed (zlib only), in memory from malloc for the caller to free. Returns 0; -ENODATA
 * when it is empty, larger than `max_bytes`, damaged, or compressed in another way; -ENOMEM. A compressed section that
 * claims more than 256 times its bytes in the file is taken for damaged, and no more than what it claims is ever
 * written.
 */
int image_load_section(const struct image *image, const struct image_section *section, size_t max_bytes,
                       uint8_t **ret_data, size_t *ret_bytes);

/*
 * Section headers that lie wholly in the file; 0 when they do not, or are more than 131,072. Libraries that read the
 * sections themselves are not to be let at an image that has none here.
 */
size_t image_section_count(const struct image *image);

/*
 * The lowest address of an executable section, whether or not its bytes are in the file: the same in an image and in
 * its debug file, unless one of them was moved. false: there is none.
 */
bool image_code_start(const struct image *image, uint64_t *ret_svma);

/* PT_GNU_EH_FRAME, which is there also when section headers are stripped. */
bool image_find_eh_frame_hdr(const struct image *image, struct image_section *ret_section);

/* PT_DYNAMIC, which what is linked dynamically or position-independent has. */
bool image_find_dynamic(const struct image *image, struct image_section *ret_section);

/* e_entry as a linker address; 0 for none. */
uint64_t image_entry_svma(const struct image *image);

#endif
