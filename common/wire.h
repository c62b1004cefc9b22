/* Little-endian numbers of fixed width in binary formats: appended to a buffer, and taken from bounded bytes. */
#ifndef COMMON_WIRE_H
#define COMMON_WIRE_H

#include "common/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void wire_put_u32(struct strbuf *to, uint32_t value);
void wire_put_u64(struct strbuf *to, uint64_t value);

/* Bytes behind their length (u32). */
void wire_put_sized(struct strbuf *to, const void *bytes, size_t size);

/*
 * A cursor that never leaves its bytes. What is not there is 0 or NULL and sets `failed`, which stays: a reader may
 * take all fields first and ask once.
 */
struct wire {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

uint32_t wire_get_u32(struct wire *wire);
uint64_t wire_get_u64(struct wire *wire);
const uint8_t *wire_get_bytes(struct wire *wire, size_t size); /* borrowed; NULL: fewer are left */

/* Bytes behind their length; a length above `limit` is a failure. Never NULL on success. */
const uint8_t *wire_get_sized(struct wire *wire, size_t limit, size_t *ret_size);

size_t wire_left(const struct wire *wire);

#endif
