#include "sampler/memimage.h"

#include "common/fileio.h"
#include "symbolize/dynamic.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
    HEAD_BYTES = 16 << 10,
    HEADERS_MAX = 128, /* all program headers */
    SIZE_MAX_BYTES = 256 << 20,
    WHOLE_MAX_BYTES = 1 << 20,
    NEEDED_MAX_BYTES = 16 << 20,
    NOTES_MAX_BYTES = 64 << 10
};

/* An image in the making. */
struct making {
    int mem_fd;
    uint64_t bias; /* avma - svma */
    uint8_t *bytes;
    uint64_t size;
    uint64_t left_bytes; /* that may still be read */
    bool whole;          /* all segments are there */
    const Elf64_Phdr *headers;
    unsigned header_count;
    struct image_piece pieces[IMAGE_PIECES_MAX];
    size_t piece_count;
};

static bool read_memory(int mem_fd, uint64_t avma, void *buffer, size_t size)
{
    return fileio_pread(mem_fd, buffer, size, avma) == (ssize_t)size;
}

static size_t head_size(const struct mapping *base)
{
    uint64_t bytes = base->end_avma - base->start_avma;
    return bytes < HEAD_BYTES ? (size_t)bytes : HEAD_BYTES;
}

int memimage_open_head(int mem_fd, const struct mapping *base, struct image **ret_image)
{
    size_t size = head_size(base);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    if (!read_memory(mem_fd, base->start_avma, bytes, size)) {
        free(bytes);
        return -ENODATA;
    }
    return image_open_memory(bytes, size, "", ret_image);
}

/* The PT_LOAD whose part in the file holds [svma, svma + bytes). */
static const Elf64_Phdr *segment_of(const struct making *making, uint64_t svma, uint64_t bytes)
{
    for (unsigned i = 0; i < making->header_count; i++) {
        const Elf64_Phdr *header = &making->headers[i];
        if (header->p_type == PT_LOAD && svma >= header->p_vaddr && svma - header->p_vaddr <= header->p_filesz &&
            bytes <= header->p_filesz - (svma - header->p_vaddr))
            return header;
    }
    return NULL;
}

/* Reads such bytes of a segment to where they are in the file. */
static bool add_piece(struct making *making, uint64_t svma, uint64_t bytes)
{
    const Elf64_Phdr *header = segment_of(making, svma, bytes);
    if (!header || bytes == 0 || bytes > making->left_bytes || making->piece_count == IMAGE_PIECES_MAX)
        return false;
    uint64_t off = header->p_offset + (svma - header->p_vaddr);
    if (!read_memory(making->mem_fd, svma + making->bias, making->bytes + off, bytes))
        return false;
    making->left_bytes -= bytes;
    making->pieces[making->piece_count++] = (struct image_piece){.off = off, .bytes = bytes};
    return true;
}

static const Elf64_Phdr *header_of_type(const struct making *making, uint32_t type)
{
    for (unsigned i = 0; i < making->header_count; i++)
        if (making->headers[i].p_type == type)
            return &making->headers[i];
    return NULL;
}

/* A loader may have made addresses of the process of these (glibc does): in the image they are the file's again. */
static void undo_relocation(const struct making *making, uint8_t *entries, size_t size)
{
    for (size_t at = 0; size - at >= sizeof(Elf64_Dyn); at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        memcpy(&entry, entries + at, sizeof(entry));
        if (entry.d_tag == DT_NULL)
            return;
        if (!dynamic_is_address(entry.d_tag) || segment_of(making, entry.d_un.d_ptr, 1) ||
            !segment_of(making, entry.d_un.d_ptr - making->bias, 1))
            continue;
        entry.d_un.d_ptr -= making->bias;
        memcpy(entries + at, &entry, sizeof(entry));
    }
}

static int read_svma(void *context, uint64_t svma, void *buffer, size_t size)
{
    const struct making *making = context;
    return segment_of(making, svma, size) && read_memory(making->mem_fd, svma + making->bias, buffer, size) ? 0
                                                                                                            : -ENODATA;
}

static void add_symbols(struct making *making, const uint8_t *entries, size_t size)
{
    struct dynamic dynamic;
    struct svma_reader reader = {.read = read_svma, .context = making};
    uint64_t count;
    uint64_t hash_bytes;
    if (!dynamic_parse(entries, size, &dynamic) || !dynamic_count(&dynamic, &reader, &count, &hash_bytes))
        return;
    if (dynamic.gnu_hash_svma)
        add_piece(making, dynamic.gnu_hash_svma, hash_bytes);
    else
        add_piece(making, dynamic.hash_svma, hash_bytes);
    add_piece(making, dynamic.symbols_svma, count * sizeof(Elf64_Sym));
    add_piece(making, dynamic.strings_svma, dynamic.strings_bytes);
}

/* The search table, and from .eh_frame on the rest of its segment: where it ends, no program header says. */
static void add_frames(struct making *making, const Elf64_Phdr *table)
{
    enum { PCREL_SDATA4 = 0x1b };
    uint8_t head[8];
    int32_t distance;
    if (table->p_filesz < sizeof(head) || !add_piece(making, table->p_vaddr, table->p_filesz) ||
        read_svma(making, table->p_vaddr, head, sizeof(head)) || head[1] != PCREL_SDATA4)
        return;
    memcpy(&distance, head + 4, sizeof(distance));
    uint64_t svma = table->p_vaddr + 4 + (uint64_t)(int64_t)distance;
    const Elf64_Phdr *segment = segment_of(making, svma, 1);
    if (segment)
        add_piece(making, svma, segment->p_filesz - (svma - segment->p_vaddr));
}

static void add_needed(struct making *making)
{
    const Elf64_Phdr *table = header_of_type(making, PT_GNU_EH_FRAME);
    if (table)
        add_frames(making, table);
    for (unsigned i = 0; i < making->header_count; i++)
        if (making->headers[i].p_type == PT_NOTE && making->headers[i].p_filesz <= NOTES_MAX_BYTES)
            add_piece(making, making->headers[i].p_vaddr, making->headers[i].p_filesz);
}

static void add_all(struct making *making)
{
    for (unsigned i = 0; i < making->header_count; i++) {
        const Elf64_Phdr *header = &making->headers[i];
        if (header->p_type == PT_LOAD && header->p_filesz > 0 && !add_piece(making, header->p_vaddr, header->p_filesz))
            making->whole = false;
    }
}

/* The entries of PT_DYNAMIC, put right, and what they lead to. */
static void add_dynamic(struct making *making)
{
    const Elf64_Phdr *dynamic = header_of_type(making, PT_DYNAMIC);
    uint64_t bytes = dynamic && dynamic->p_filesz < DYNAMIC_BYTES_MAX ? dynamic->p_filesz : DYNAMIC_BYTES_MAX;
    const Elf64_Phdr *segment = dynamic ? segment_of(making, dynamic->p_vaddr, bytes) : NULL;
    if (!segment || (!making->whole && !add_piece(making, dynamic->p_vaddr, bytes)))
        return;
    uint8_t *entries = making->bytes + segment->p_offset + (dynamic->p_vaddr - segment->p_vaddr);
    undo_relocation(making, entries, bytes);
    if (!making->whole)
        add_symbols(making, entries, bytes);
}

/* Where the segments end in the file, and how much they have in it; 0 when something does not fit. */
static uint64_t measure(struct making *making, uint64_t *ret_loaded)
{
    uint64_t end = 0;
    uint64_t loaded = 0;
    for (unsigned i = 0; i < making->header_count; i++) {
        const Elf64_Phdr *header = &making->headers[i];
        if (header->p_type != PT_LOAD)
            continue;
        if (header->p_offset > SIZE_MAX_BYTES || header->p_filesz > SIZE_MAX_BYTES ||
            header->p_offset + header->p_filesz > SIZE_MAX_BYTES || header->p_vaddr > UINT64_MAX - header->p_filesz)
            return 0;
        loaded += header->p_filesz;
        if (end < header->p_offset + header->p_filesz)
            end = header->p_offset + header->p_filesz;
    }
    *ret_loaded = loaded;
    return end;
}

/* The bias by the segment that the file's offset 0 belongs to. */
static bool find_bias(struct making *making, const struct mapping *base)
{
    for (unsigned i = 0; i < making->header_count; i++) {
        const Elf64_Phdr *header = &making->headers[i];
        if (header->p_type == PT_LOAD && header->p_offset < PAGE_BYTES && header->p_filesz > 0) {
            making->bias = base->start_avma - (header->p_vaddr - header->p_offset);
            return true;
        }
    }
    return false;
}

/* The head is there whatever the segments say, without the section headers, which are not. */
static void put_head(struct making *making, const uint8_t *head, size_t size)
{
    size_t bytes = size < making->size ? size : making->size;
    memcpy(making->bytes, head, bytes);
    Elf64_Ehdr elf;
    memcpy(&elf, making->bytes, sizeof(elf));
    elf.e_shoff = 0;
    elf.e_shnum = 0;
    elf.e_shentsize = 0;
    elf.e_shstrndx = 0;
    memcpy(making->bytes, &elf, sizeof(elf));
}

static int make(struct making *making, const uint8_t *head, size_t head_bytes, const char *path,
                struct image **ret_image)
{
    uint64_t loaded = 0;
    making->size = measure(making, &loaded);
    if (making->size < sizeof(Elf64_Ehdr))
        return -ENODATA;
    making->bytes = calloc(1, making->size); /* what is not written takes no memory */
    if (!making->bytes)
        return -ENOMEM;
    making->whole = loaded <= WHOLE_MAX_BYTES;
    making->left_bytes = NEEDED_MAX_BYTES;
    size_t bytes = head_bytes < making->size ? head_bytes : (size_t)making->size;
    making->pieces[making->piece_count++] = (struct image_piece){.off = 0, .bytes = bytes};
    if (making->whole)
        add_all(making);
    else
        add_needed(making);
    put_head(making, head, head_bytes);
    add_dynamic(making); /* which may lie in the head, and is put right */
    if (making->whole)
        return image_open_memory(making->bytes, making->size, path, ret_image);
    return image_open_pieces(making->bytes, making->size, making->pieces, making->piece_count, path, ret_image);
}

int memimage_open(int mem_fd, const struct mapping *base, const char *path, struct image **ret_image)
{
    uint8_t head[HEAD_BYTES];
    size_t head_bytes = head_size(base);
    Elf64_Ehdr elf;
    if (!read_memory(mem_fd, base->start_avma, head, head_bytes))
        return -ENODATA;
    memcpy(&elf, head, sizeof(elf));
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_phentsize != sizeof(Elf64_Phdr) || elf.e_phnum > HEADERS_MAX || elf.e_phoff > head_bytes ||
        elf.e_phnum * sizeof(Elf64_Phdr) > head_bytes - elf.e_phoff)
        return -ENODATA;
    Elf64_Phdr headers[HEADERS_MAX];
    memcpy(headers, head + elf.e_phoff, elf.e_phnum * sizeof(Elf64_Phdr));
    struct making making = {.mem_fd = mem_fd, .headers = headers, .header_count = elf.e_phnum};
    if (!find_bias(&making, base))
        return -ENODATA;
    return make(&making, head, head_bytes, path, ret_image);
}
