/* image_load_section: the content of a section, inflated where it is compressed. */
#include "symbolize/image.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    CHUNK_BYTES = 1 << 14,
    /* deflate itself cannot do more than 1032. Unwind tables shrink to a fourth, and regular ones to a twentieth. */
    RATIO_MAX = 256
};

/* A compressed stream in the file, and what its header says that it holds. */
struct stream {
    uint64_t off;
    uint64_t bytes;
    uint64_t claimed_bytes;
};

static bool read_elf_header(const struct image *image, const struct image_section *section, struct stream *ret_stream)
{
    Elf64_Chdr header;
    if (section->bytes < sizeof(header) || image_read_off(image, section->off, &header, sizeof(header)) < 0 ||
        header.ch_type != ELFCOMPRESS_ZLIB)
        return false;
    *ret_stream = (struct stream){.off = section->off + sizeof(header),
                                  .bytes = section->bytes - sizeof(header),
                                  .claimed_bytes = header.ch_size};
    return true;
}

static bool read_gnu_header(const struct image *image, const struct image_section *section, struct stream *ret_stream)
{
    uint8_t header[12];
    if (section->bytes < sizeof(header) || image_read_off(image, section->off, header, sizeof(header)) < 0 ||
        memcmp(header, "ZLIB", 4) != 0)
        return false;
    uint64_t claimed = 0;
    for (size_t i = 4; i < sizeof(header); i++)
        claimed = claimed << 8 | header[i];
    *ret_stream = (struct stream){
        .off = section->off + sizeof(header), .bytes = section->bytes - sizeof(header), .claimed_bytes = claimed};
    return true;
}

/* Feeds the stream to zlib, a chunk at a time. true: it ended by itself, with the output full. */
static bool inflate_all(const struct image *image, const struct stream *stream, z_stream *state)
{
    uint8_t chunk[CHUNK_BYTES];
    for (uint64_t done = 0; done < stream->bytes;) {
        uint64_t left = stream->bytes - done;
        size_t size = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);
        if (image_read_off(image, stream->off + done, chunk, size) < 0)
            return false;
        done += size;
        state->next_in = chunk;
        state->avail_in = (uInt)size;
        /* One call takes the whole chunk, or stops where the output is full, which ends the stream or is an error. */
        int result = inflate(state, Z_NO_FLUSH);
        if (result == Z_STREAM_END)
            return state->avail_out == 0;
        if (result != Z_OK || state->avail_in > 0)
            return false;
    }
    return false;
}

static int load_compressed(const struct image *image, const struct stream *stream, size_t max_bytes, uint8_t **ret_data,
                           size_t *ret_bytes)
{
    uint64_t claimed = stream->claimed_bytes;
    if (claimed == 0 || claimed > max_bytes || claimed > UINT32_MAX || claimed / RATIO_MAX > stream->bytes)
        return -ENODATA;
    uint8_t *data = malloc((size_t)claimed);
    if (!data)
        return -ENOMEM;
    z_stream state = {.next_out = data, .avail_out = (uInt)claimed};
    int err = inflateInit(&state) == Z_OK ? 0 : -ENOMEM;
    if (!err) {
        err = inflate_all(image, stream, &state) ? 0 : -ENODATA;
        inflateEnd(&state);
    }
    if (err) {
        free(data);
        return err;
    }
    *ret_data = data;
    *ret_bytes = (size_t)claimed;
    return 0;
}

int image_load_section(const struct image *image, const struct image_section *section, size_t max_bytes,
                       uint8_t **ret_data, size_t *ret_bytes)
{
    struct stream stream;
    if (section->compression == IMAGE_COMPRESSED)
        return read_elf_header(image, section, &stream)
                   ? load_compressed(image, &stream, max_bytes, ret_data, ret_bytes)
                   : -ENODATA;
    if (section->compression == IMAGE_COMPRESSED_GNU)
        return read_gnu_header(image, section, &stream)
                   ? load_compressed(image, &stream, max_bytes, ret_data, ret_bytes)
                   : -ENODATA;
    if (section->bytes == 0 || section->bytes > max_bytes)
        return -ENODATA;
    uint8_t *data = malloc((size_t)section->bytes);
    if (!data)
        return -ENOMEM;
    if (image_read_off(image, section->off, data, (size_t)section->bytes) < 0) {
        free(data);
        return -ENODATA;
    }
    *ret_data = data;
    *ret_bytes = (size_t)section->bytes;
    return 0;
}
