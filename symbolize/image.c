#include "symbolize/image.h"

#include "common/fileio.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    MAX_PROGRAM_HEADERS = 1 << 16, /* the kernel itself loads nothing with more than 64 KiB of them */
    MAX_SECTIONS = 1 << 17,
    MAX_NOTE_BYTES = 1 << 16,
    MAX_BUILD_ID_BYTES = 64,
    HEADERS_AT_ONCE = 32
};

struct image {
    int fd; /* owned; -1: in memory, or unreadable */
    uint8_t *memory;
    struct image_piece *pieces; /* owned; what of the memory is there; NULL: all */
    size_t piece_count;
    uint64_t size;
    char *path;
    enum image_kind kind;
    uint64_t entry_svma;

    struct image_segment *segments;
    size_t segment_count;
    struct image_section eh_frame_hdr; /* 0 bytes: none */
    struct image_section dynamic;      /* 0 bytes: none */

    uint64_t section_headers_off;
    uint32_t section_count; /* 0: none, or not wholly in the file */
    Elf64_Shdr section_names;

    uint8_t build_id[MAX_BUILD_ID_BYTES];
    size_t build_id_bytes;
};

static bool is_inside(const struct image *image, uint64_t off, uint64_t bytes)
{
    return off <= image->size && bytes <= image->size - off;
}

static bool is_there(const struct image *image, uint64_t off, uint64_t bytes)
{
    for (size_t i = 0; i < image->piece_count; i++) {
        const struct image_piece *piece = &image->pieces[i];
        if (off >= piece->off && off - piece->off <= piece->bytes && bytes <= piece->bytes - (off - piece->off))
            return true;
    }
    return !image->pieces;
}

int image_read_off(const struct image *image, uint64_t off, void *buffer, size_t size)
{
    if (!is_inside(image, off, size) || !is_there(image, off, size))
        return -ENODATA;
    if (size == 0)
        return 0;
    if (image->memory) {
        memcpy(buffer, image->memory + off, size);
        return 0;
    }
    ssize_t got = fileio_pread(image->fd, buffer, size, off);
    if (got < 0)
        return (int)got;
    return (size_t)got == size ? 0 : -ENODATA;
}

static void store_build_id(struct image *image, const uint8_t *desc, uint64_t bytes)
{
    if (bytes == 0 || bytes > MAX_BUILD_ID_BYTES)
        return;
    memcpy(image->build_id, desc, bytes);
    image->build_id_bytes = bytes;
}

/* `align` is 4, or 8 in the segments that hold .note.gnu.property: name and descriptor are padded to it. */
static void search_notes(struct image *image, const uint8_t *notes, uint64_t bytes, uint64_t align)
{
    uint64_t at = 0;
    while (bytes - at >= sizeof(Elf64_Nhdr) && image->build_id_bytes == 0) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof(note));
        uint64_t name_at = at + sizeof(note);
        uint64_t desc_at = (name_at + note.n_namesz + align - 1) & ~(align - 1);
        uint64_t next_at = (desc_at + note.n_descsz + align - 1) & ~(align - 1);
        if (desc_at > bytes || note.n_descsz > bytes - desc_at)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
            memcmp(notes + name_at, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0)
            store_build_id(image, notes + desc_at, note.n_descsz);
        if (next_at > bytes)
            return;
        at = next_at;
    }
}

static int read_notes(struct image *image, uint64_t off, uint64_t bytes, uint64_t align)
{
    if (image->build_id_bytes > 0 || bytes > MAX_NOTE_BYTES || !is_inside(image, off, bytes))
        return 0;
    uint8_t *notes = malloc(bytes + 1);
    if (!notes)
        return -ENOMEM;
    if (image_read_off(image, off, notes, bytes) == 0)
        search_notes(image, notes, bytes, align == 8 ? 8 : 4);
    free(notes);
    return 0;
}

/*
 * Section headers are read anew, some at a time, for each question: there are few questions per image, and this way a
 * table of any size costs no memory.
 */
struct section_cursor {
    const struct image *image;
    uint32_t next;
    uint32_t held_from;
    uint32_t held_count;
    Elf64_Shdr held[HEADERS_AT_ONCE];
};

static const Elf64_Shdr *section_cursor_next(struct section_cursor *cursor)
{
    const struct image *image = cursor->image;
    if (cursor->next >= image->section_count)
        return NULL;
    if (cursor->next >= cursor->held_from + cursor->held_count) {
        uint32_t left = image->section_count - cursor->next;
        cursor->held_from = cursor->next;
        cursor->held_count = left < HEADERS_AT_ONCE ? left : HEADERS_AT_ONCE;
        uint64_t off = image->section_headers_off + (uint64_t)cursor->next * sizeof(Elf64_Shdr);
        if (image_read_off(image, off, cursor->held, cursor->held_count * sizeof(Elf64_Shdr)))
            return NULL;
    }
    return &cursor->held[cursor->next++ - cursor->held_from];
}

static bool section_has_name(const struct image *image, const Elf64_Shdr *header, const char *name, size_t name_bytes)
{
    char found[64];
    if (name_bytes > sizeof(found) || header->sh_name > image->section_names.sh_size ||
        name_bytes > image->section_names.sh_size - header->sh_name)
        return false;
    return image_read_off(image, image->section_names.sh_offset + header->sh_name, found, name_bytes) == 0 &&
           memcmp(found, name, name_bytes) == 0;
}

static enum image_compression section_compression(const Elf64_Shdr *header, const char *name)
{
    if (header->sh_flags & SHF_COMPRESSED)
        return IMAGE_COMPRESSED;
    return strncmp(name, ".zdebug_", strlen(".zdebug_")) == 0 ? IMAGE_COMPRESSED_GNU : IMAGE_STORED;
}

bool image_find_section(const struct image *image, const char *name, struct image_section *ret_section)
{
    struct section_cursor cursor = {.image = image};
    const Elf64_Shdr *header;
    while ((header = section_cursor_next(&cursor))) {
        if (header->sh_type == SHT_NULL || header->sh_type == SHT_NOBITS || header->sh_size == 0)
            continue;
        if (!section_has_name(image, header, name, strlen(name) + 1))
            continue;
        if (!is_inside(image, header->sh_offset, header->sh_size) || header->sh_addr > UINT64_MAX - header->sh_size)
            return false;
        *ret_section = (struct image_section){.off = header->sh_offset,
                                              .svma = header->sh_addr,
                                              .bytes = header->sh_size,
                                              .compression = section_compression(header, name)};
        return true;
    }
    return false;
}

bool image_code_start(const struct image *image, uint64_t *ret_svma)
{
    struct section_cursor cursor = {.image = image};
    const Elf64_Shdr *header;
    bool is_found = false;
    while ((header = section_cursor_next(&cursor))) {
        if (!(header->sh_flags & SHF_ALLOC) || !(header->sh_flags & SHF_EXECINSTR) || header->sh_size == 0 ||
            (is_found && header->sh_addr >= *ret_svma))
            continue;
        *ret_svma = header->sh_addr;
        is_found = true;
    }
    return is_found;
}

/* Where the section headers are. What is wrong here leaves the image without sections, and nothing else. */
static void locate_sections(struct image *image, const Elf64_Ehdr *elf, const Elf64_Shdr *first)
{
    if (elf->e_shoff == 0 || elf->e_shentsize != sizeof(Elf64_Shdr))
        return;
    /* Numbers too large for the ELF header stand in section header 0. */
    uint64_t count = elf->e_shnum ? elf->e_shnum : first->sh_size;
    uint64_t names = elf->e_shstrndx == SHN_XINDEX ? first->sh_link : elf->e_shstrndx;
    if (count > MAX_SECTIONS || !is_inside(image, elf->e_shoff, count * sizeof(Elf64_Shdr)))
        return;
    image->section_headers_off = elf->e_shoff;
    image->section_count = (uint32_t)count;
    Elf64_Shdr header;
    if (names < count && names != SHN_UNDEF &&
        image_read_off(image, elf->e_shoff + names * sizeof(header), &header, sizeof(header)) == 0 &&
        header.sh_type != SHT_NOBITS && is_inside(image, header.sh_offset, header.sh_size))
        image->section_names = header;
}

static int read_section_notes(struct image *image)
{
    struct section_cursor cursor = {.image = image};
    const Elf64_Shdr *header;
    while (image->build_id_bytes == 0 && (header = section_cursor_next(&cursor))) {
        if (header->sh_type != SHT_NOTE)
            continue;
        int error = read_notes(image, header->sh_offset, header->sh_size, header->sh_addralign);
        if (error)
            return error;
    }
    return 0;
}

static void add_segment(struct image *image, const Elf64_Phdr *header)
{
    if (header->p_filesz == 0 || header->p_offset >= image->size)
        return;
    uint64_t in_file = image->size - header->p_offset;
    uint64_t bytes = header->p_filesz < in_file ? header->p_filesz : in_file;
    if (header->p_vaddr > UINT64_MAX - bytes)
        return;
    image->segments[image->segment_count++] = (struct image_segment){
        .off = header->p_offset, .svma = header->p_vaddr, .file_bytes = bytes, .executable = header->p_flags & PF_X};
}

/* A program header of which at most one counts, the last that lies wholly in the file. */
static void note_part(const struct image *image, const Elf64_Phdr *header, struct image_section *part)
{
    if (is_inside(image, header->p_offset, header->p_filesz) && header->p_vaddr <= UINT64_MAX - header->p_filesz)
        *part = (struct image_section){.off = header->p_offset, .svma = header->p_vaddr, .bytes = header->p_filesz};
}

/* Returns 0 or -ENOMEM; headers that do not fit the file make the image a damaged one. */
static int read_program_headers(struct image *image, const Elf64_Ehdr *elf, const Elf64_Shdr *first)
{
    uint64_t count = elf->e_phnum == PN_XNUM && first->sh_info ? first->sh_info : elf->e_phnum;
    if (count == 0)
        return 0;
    if (elf->e_phentsize != sizeof(Elf64_Phdr) || count > MAX_PROGRAM_HEADERS ||
        !is_inside(image, elf->e_phoff, count * sizeof(Elf64_Phdr))) {
        image->kind = IMAGE_DAMAGED;
        return 0;
    }
    int error = -ENOMEM;
    Elf64_Phdr *headers = malloc(count * sizeof(*headers));
    image->segments = malloc(count * sizeof(*image->segments));
    if (!headers || !image->segments)
        goto done;
    error = 0;
    if (image_read_off(image, elf->e_phoff, headers, count * sizeof(*headers))) {
        image->kind = IMAGE_DAMAGED;
        goto done;
    }
    for (uint64_t i = 0; i < count && !error; i++) {
        const Elf64_Phdr *header = &headers[i];
        if (header->p_type == PT_LOAD)
            add_segment(image, header);
        else if (header->p_type == PT_NOTE)
            error = read_notes(image, header->p_offset, header->p_filesz, header->p_align);
        else if (header->p_type == PT_GNU_EH_FRAME)
            note_part(image, header, &image->eh_frame_hdr);
        else if (header->p_type == PT_DYNAMIC)
            note_part(image, header, &image->dynamic);
    }
done:
    free(headers);
    return error;
}

static bool is_ours(const Elf64_Ehdr *elf)
{
    return elf->e_ident[EI_CLASS] == ELFCLASS64 && elf->e_ident[EI_DATA] == ELFDATA2LSB && elf->e_machine == EM_X86_64;
}

static int read_image(struct image *image)
{
    Elf64_Ehdr elf = {0};
    size_t bytes = image->size < sizeof(elf) ? (size_t)image->size : sizeof(elf);
    int error = image_read_off(image, 0, &elf, bytes);
    if (error) {
        image->kind = error == -ENODATA ? IMAGE_NOT_ELF : IMAGE_UNREADABLE;
        return 0;
    }
    /* A 32-bit header is the shorter one; where the machine stands is the same in both. */
    if (bytes < sizeof(Elf32_Ehdr) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) {
        image->kind = IMAGE_NOT_ELF;
        return 0;
    }
    if (!is_ours(&elf)) {
        image->kind = IMAGE_FOREIGN;
        return 0;
    }
    if (bytes < sizeof(elf)) {
        image->kind = IMAGE_NOT_ELF;
        return 0;
    }
    image->kind = IMAGE_ELF;
    Elf64_Shdr first = {0};
    if (elf.e_shoff == 0 || image_read_off(image, elf.e_shoff, &first, sizeof(first)))
        memset(&first, 0, sizeof(first));
    error = read_program_headers(image, &elf, &first);
    if (error || image->kind == IMAGE_DAMAGED) {
        image->segment_count = 0;
        return error;
    }
    image->entry_svma = elf.e_entry;
    locate_sections(image, &elf, &first);
    return image->build_id_bytes ? 0 : read_section_notes(image);
}

static int open_file(struct image *image)
{
    struct stat status;
    if (image->fd < 0 || fstat(image->fd, &status) < 0) {
        image->kind = IMAGE_UNREADABLE;
        return 0;
    }
    /* A read from a FIFO or a terminal could wait for ever, or take what is somebody else's. */
    if (!S_ISREG(status.st_mode)) {
        image->kind = IMAGE_NOT_ELF;
        close(image->fd);
        image->fd = -1;
        return 0;
    }
    image->size = (uint64_t)status.st_size;
    return read_image(image);
}

static int finish_open(struct image *image, int error, struct image **ret_image)
{
    if (error) {
        image_free(image);
        return error;
    }
    *ret_image = image;
    return 0;
}

int image_open(int fd, const char *path, struct image **ret_image)
{
    struct image *image = calloc(1, sizeof(*image));
    if (!image) {
        if (fd >= 0)
            close(fd);
        return -ENOMEM;
    }
    image->fd = fd;
    image->path = strdup(path);
    return finish_open(image, image->path ? open_file(image) : -ENOMEM, ret_image);
}

int image_open_memory(void *bytes, size_t size, const char *path, struct image **ret_image)
{
    return image_open_pieces(bytes, size, NULL, 0, path, ret_image);
}

int image_open_pieces(void *bytes, size_t size, const struct image_piece *pieces, size_t count, const char *path,
                      struct image **ret_image)
{
    assert(count <= IMAGE_PIECES_MAX);
    struct image *image = calloc(1, sizeof(*image));
    if (!image) {
        free(bytes);
        return -ENOMEM;
    }
    image->fd = -1;
    image->memory = bytes;
    image->size = size;
    image->path = strdup(path);
    if (pieces) {
        image->pieces = calloc(count + 1, sizeof(*pieces));
        if (!image->pieces)
            return finish_open(image, -ENOMEM, ret_image);
        memcpy(image->pieces, pieces, count * sizeof(*pieces));
        image->piece_count = count;
    }
    return finish_open(image, image->path ? read_image(image) : -ENOMEM, ret_image);
}

void image_free(struct image *image)
{
    if (!image)
        return;
    if (image->fd >= 0)
        close(image->fd);
    free(image->memory);
    free(image->pieces);
    free(image->segments);
    free(image->path);
    free(image);
}

enum image_kind image_kind(const struct image *image)
{
    return image->kind;
}

const char *image_path(const struct image *image)
{
    return image->path;
}

uint64_t image_size(const struct image *image)
{
    return image->size;
}

int image_fd(const struct image *image)
{
    return image->fd;
}

const void *image_memory(const struct image *image, size_t *ret_size)
{
    const void *memory = image->pieces ? NULL : image->memory;
    *ret_size = memory ? (size_t)image->size : 0;
    return memory;
}

const uint8_t *image_build_id(const struct image *image, size_t *ret_size)
{
    *ret_size = image->build_id_bytes;
    return image->build_id;
}

const struct image_segment *image_segments(const struct image *image, size_t *ret_count)
{
    *ret_count = image->segment_count;
    return image->segments;
}

int image_read_svma(const struct image *image, uint64_t svma, void *buffer, size_t size)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct image_segment *segment = &image->segments[i];
        uint64_t into = svma - segment->svma;
        if (svma >= segment->svma && into <= segment->file_bytes && size <= segment->file_bytes - into)
            return image_read_off(image, segment->off + into, buffer, size);
    }
    return -ENODATA;
}

/* Where two segments hold the offset, the executable one: what is asked for is mostly code. */
bool image_off_to_svma(const struct image *image, uint64_t off, uint64_t *ret_svma)
{
    const struct image_segment *best = NULL;
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct image_segment *segment = &image->segments[i];
        if (off < segment->off || off - segment->off >= segment->file_bytes)
            continue;
        if (!best || (segment->executable && !best->executable))
            best = segment;
    }
    if (!best)
        return false;
    *ret_svma = best->svma + (off - best->off);
    return true;
}

bool image_svma_to_off(const struct image *image, uint64_t svma, uint64_t *ret_off)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct image_segment *segment = &image->segments[i];
        if (svma >= segment->svma && svma - segment->svma < segment->file_bytes) {
            *ret_off = segment->off + (svma - segment->svma);
            return true;
        }
    }
    return false;
}

/* Whether the pages of the file that the segment lies in hold map_off. off and file_bytes lie inside the file, so
 * nothing here can wrap. */
static bool segment_holds(const struct image_segment *segment, uint64_t map_off, uint64_t *ret_start)
{
    const uint64_t in_page = PAGE_BYTES - 1;
    *ret_start = segment->off & ~in_page;
    return map_off >= *ret_start && map_off < ((segment->off + segment->file_bytes + in_page) & ~in_page);
}

/* Modulo 2^64: the segment may begin behind map_off, and the bias of a prelinked image may be "negative". */
static uint64_t segment_bias(const struct image_segment *segment, uint64_t start_avma, uint64_t map_off)
{
    return start_avma - (segment->svma + (map_off - segment->off));
}

bool image_bias_fits(const struct image *image, uint64_t start_avma, uint64_t map_off, uint64_t bias)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct image_segment *segment = &image->segments[i];
        uint64_t start;
        if (segment_holds(segment, map_off, &start) && segment_bias(segment, start_avma, map_off) == bias)
            return true;
    }
    return false;
}

bool image_bias(const struct image *image, uint64_t start_avma, uint64_t map_off, bool executable, uint64_t *ret_bias)
{
    const struct image_segment *best = NULL;
    int best_rank = -1;
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct image_segment *segment = &image->segments[i];
        uint64_t start;
        if (!segment_holds(segment, map_off, &start))
            continue;
        int rank = (segment->executable == executable ? 2 : 0) + (map_off == start ? 1 : 0);
        if (rank > best_rank) {
            best = segment;
            best_rank = rank;
        }
    }
    if (!best)
        return false;
    *ret_bias = segment_bias(best, start_avma, map_off);
    return true;
}

bool image_find_eh_frame_hdr(const struct image *image, struct image_section *ret_section)
{
    if (image->eh_frame_hdr.bytes == 0)
        return false;
    *ret_section = image->eh_frame_hdr;
    return true;
}

bool image_find_dynamic(const struct image *image, struct image_section *ret_section)
{
    if (image->dynamic.bytes == 0)
        return false;
    *ret_section = image->dynamic;
    return true;
}

size_t image_section_count(const struct image *image)
{
    return image->section_count;
}

uint64_t image_entry_svma(const struct image *image)
{
    return image->entry_svma;
}
