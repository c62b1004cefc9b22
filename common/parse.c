#include "common/parse.h"

#include <string.h>

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

static bool parse_base(const char **cursor, const char *end, unsigned base, uint64_t *ret)
{
    const char *p = *cursor;
    uint64_t value = 0;
    for (; p < end; p++) {
        unsigned digit = (unsigned)digit_of(*p);
        if (digit >= base)
            break;
        if (value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    if (p == *cursor)
        return false;
    *cursor = p;
    *ret = value;
    return true;
}

bool parse_u64(const char **cursor, const char *end, uint64_t *ret)
{
    return parse_base(cursor, end, 10, ret);
}

bool parse_hex(const char **cursor, const char *end, uint64_t *ret)
{
    return parse_base(cursor, end, 16, ret);
}

bool parse_number(const char *text, uint64_t *ret)
{
    const char *end = text + strlen(text);
    uint64_t value;
    if (!parse_u64(&text, end, &value) || text != end)
        return false;
    *ret = value;
    return true;
}

bool parse_blanks(const char **cursor, const char *end)
{
    const char *p = *cursor;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    bool any = p != *cursor;
    *cursor = p;
    return any;
}
