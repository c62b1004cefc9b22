#include "common/wire.h"

static void put(struct strbuf *to, uint64_t value, size_t bytes)
{
    char text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (char)(value >> 8 * i & 0xff);
    strbuf_add(to, text, bytes);
}

void wire_put_u32(struct strbuf *to, uint32_t value)
{
    put(to, value, 4);
}

void wire_put_u64(struct strbuf *to, uint64_t value)
{
    put(to, value, 8);
}

void wire_put_sized(struct strbuf *to, const void *bytes, size_t size)
{
    wire_put_u32(to, (uint32_t)size);
    if (size)
        strbuf_add(to, bytes, size);
}

size_t wire_left(const struct wire *wire)
{
    return (size_t)(wire->end - wire->at);
}

const uint8_t *wire_get_bytes(struct wire *wire, size_t size)
{
    if (wire->failed || size > wire_left(wire)) {
        wire->failed = true;
        return NULL;
    }
    const uint8_t *bytes = wire->at;
    wire->at += size;
    return bytes;
}

static uint64_t get(struct wire *wire, size_t size)
{
    const uint8_t *bytes = wire_get_bytes(wire, size);
    uint64_t value = 0;
    for (size_t i = 0; bytes && i < size; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

uint32_t wire_get_u32(struct wire *wire)
{
    return (uint32_t)get(wire, 4);
}

uint64_t wire_get_u64(struct wire *wire)
{
    return get(wire, 8);
}

const uint8_t *wire_get_sized(struct wire *wire, size_t limit, size_t *ret_size)
{
    size_t size = wire_get_u32(wire);
    if (size > limit)
        wire->failed = true;
    const uint8_t *bytes = wire_get_bytes(wire, size);
    if (bytes)
        *ret_size = size;
    return bytes;
}
