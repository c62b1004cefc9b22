/* A growing string. Appending never fails visibly in the middle: the first failure is kept and told by strbuf_error. */
#ifndef COMMON_STRBUF_H
#define COMMON_STRBUF_H

#include <stdarg.h>
#include <stddef.h>

/* All zero is an empty string. `data` is NUL-ended once anything was appended, and NULL before. */
struct strbuf {
    char *data;
    size_t size;
    size_t capacity;
    int error;
};

void strbuf_deinit(struct strbuf *buf);
void strbuf_clear(struct strbuf *buf); /* keeps the memory, forgets the error */
void strbuf_add(struct strbuf *buf, const char *text, size_t size);
void strbuf_adds(struct strbuf *buf, const char *text);
void strbuf_addf(struct strbuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void strbuf_vaddf(struct strbuf *buf, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* Control bytes become '?': names out of files may hold anything, and what is told of them stays one line. */
void strbuf_make_line(struct strbuf *buf);

/* 0 or -ENOMEM: something that was appended is missing. */
int strbuf_error(const struct strbuf *buf);

#endif
