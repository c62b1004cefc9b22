#include "output/clean.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Length of the valid UTF-8 sequence at `s` (NUL-ended), 0 when there is none. Table 3-7 of the Unicode standard. */
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t length;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        length = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        length = 3;
        if (s[0] == 0xe0)
            low = 0xa0;
        if (s[0] == 0xed)
            high = 0x9f; /* no surrogates */
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        length = 4;
        if (s[0] == 0xf0)
            low = 0x90;
        if (s[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return length;
}

static bool is_blank(char c)
{
    return c == ' ';
}

/* Where the number that ends the name begins, or the end: "f 12" and "f 12.5" would be read as counts. */
static size_t number_start(const char *name, size_t size)
{
    size_t at = size;
    size_t dots = 0;
    while (at > 0 && (isdigit((unsigned char)name[at - 1]) || name[at - 1] == '.')) {
        at--;
        dots += name[at] == '.';
    }
    return at < size && dots <= 1 && isdigit((unsigned char)name[at]) ? at : size;
}

void clean_name(struct strbuf *to, const char *name, bool is_last)
{
    size_t start = to->size;
    const unsigned char *s = (const unsigned char *)name;
    while (*s) {
        size_t length = utf8_length(s);
        if (length == 0) {
            strbuf_add(to, "?", 1);
            s++;
            continue;
        }
        if (*s == ';')
            strbuf_add(to, ":", 1);
        else if (*s < 0x20 || *s == 0x7f || *s == ' ')
            strbuf_add(to, " ", to->size > start ? 1 : 0); /* none at the beginning */
        else
            strbuf_add(to, (const char *)s, length);
        s += length;
    }
    if (strbuf_error(to))
        return;
    while (to->size > start && is_blank(to->data[to->size - 1]))
        to->size--;
    if (to->size == start) {
        strbuf_adds(to, "[unknown]");
        return;
    }
    to->data[to->size] = '\0';
    if (is_last) {
        size_t number = start + number_start(to->data + start, to->size - start);
        if (number < to->size && number > start && is_blank(to->data[number - 1]))
            to->data[number - 1] = '_';
    }
}

const char *clean_suffix(enum name_kind kind)
{
    switch (kind) {
    case NAME_INLINED:
        return "_[i]";
    case NAME_JIT:
        return "_[j]";
    case NAME_KERNEL:
        return "_[k]";
    case NAME_FUNCTION:
    case NAME_NONE:
        break;
    }
    return "";
}
