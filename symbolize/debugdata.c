#include "symbolize/debugdata.h"

#include "common/array.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>

enum {
    COMPRESSED_BYTES_MAX = 64 << 20,
    DATA_BYTES_MAX = 256 << 20,
    GROW_BYTES = 1 << 16,
    DECODER_BYTES_MAX = 128 << 20
};

struct data {
    uint8_t *bytes;
    size_t capacity;
};

/* Room for more output. */
static int grow(struct data *data, lzma_stream *stream)
{
    size_t used = (size_t)stream->total_out;
    if (used >= DATA_BYTES_MAX)
        return -ENODATA;
    int error = array_room(&data->bytes, &data->capacity, used + GROW_BYTES);
    if (error)
        return error;
    stream->next_out = data->bytes + used;
    stream->avail_out = data->capacity - used;
    return 0;
}

static int decode(lzma_stream *stream, struct data *data)
{
    for (;;) {
        int error = stream->avail_out ? 0 : grow(data, stream);
        if (error)
            return error;
        lzma_ret result = lzma_code(stream, LZMA_FINISH);
        if (result == LZMA_STREAM_END)
            return stream->total_out ? 0 : -ENODATA;
        if (result == LZMA_MEM_ERROR)
            return -ENOMEM;
        if (result != LZMA_OK)
            return -ENODATA;
    }
}

static int decompress(const uint8_t *compressed, size_t bytes, struct data *ret_data, size_t *ret_bytes)
{
    lzma_stream stream = LZMA_STREAM_INIT;
    struct data data = {0};
    if (lzma_stream_decoder(&stream, DECODER_BYTES_MAX, 0) != LZMA_OK)
        return -ENOMEM;
    stream.next_in = compressed;
    stream.avail_in = bytes;
    int error = decode(&stream, &data);
    *ret_bytes = (size_t)stream.total_out;
    lzma_end(&stream);
    if (error)
        free(data.bytes);
    else
        *ret_data = data;
    return error;
}

int debugdata_open(const struct image *image, struct image **ret_debug)
{
    struct image_section section;
    uint8_t *compressed;
    struct data data;
    size_t bytes;
    *ret_debug = NULL;
    if (!image_find_section(image, ".gnu_debugdata", &section))
        return 0;
    int error = image_load_section(image, &section, COMPRESSED_BYTES_MAX, &compressed, &bytes);
    if (!error) {
        error = decompress(compressed, bytes, &data, &bytes);
        free(compressed);
    }
    if (!error)
        error = image_open_memory(data.bytes, bytes, image_path(image), ret_debug);
    return error == -ENODATA ? 0 : error;
}
