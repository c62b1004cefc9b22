#include "common/strbuf.h"

#include "common/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_deinit(struct strbuf *buf)
{
    free(buf->data);
    *buf = (struct strbuf){0};
}

void strbuf_clear(struct strbuf *buf)
{
    buf->size = 0;
    buf->error = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

static char *room_for(struct strbuf *buf, size_t size)
{
    if (!buf->error)
        buf->error = array_room(&buf->data, &buf->capacity, buf->size + size + 1);
    return buf->error ? NULL : buf->data + buf->size;
}

void strbuf_add(struct strbuf *buf, const char *text, size_t size)
{
    char *to = room_for(buf, size);
    if (!to)
        return;
    memcpy(to, text, size);
    to[size] = '\0';
    buf->size += size;
}

void strbuf_adds(struct strbuf *buf, const char *text)
{
    strbuf_add(buf, text, strlen(text));
}

void strbuf_vaddf(struct strbuf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    char *to = size < 0 ? NULL : room_for(buf, (size_t)size);
    if (to) {
        vsnprintf(to, (size_t)size + 1, format, again);
        buf->size += (size_t)size;
    } else if (!buf->error) {
        buf->error = -EINVAL;
    }
    va_end(again);
}

void strbuf_addf(struct strbuf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    strbuf_vaddf(buf, format, args);
    va_end(args);
}

int strbuf_error(const struct strbuf *buf)
{
    return buf->error;
}

void strbuf_make_line(struct strbuf *buf)
{
    for (size_t i = 0; i < buf->size; i++)
        if ((unsigned char)buf->data[i] < ' ' || buf->data[i] == 0x7f)
            buf->data[i] = '?';
}
