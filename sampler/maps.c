#include "sampler/maps.h"

#include "common/parse.h"

#include <string.h>
#include <sys/sysmacros.h>

static bool skip_char(const char **cursor, const char *end, char wanted)
{
    if (*cursor >= end || **cursor != wanted)
        return false;
    (*cursor)++;
    return true;
}

static bool parse_line(const char *cursor, const char *end, struct mapping *mapping)
{
    uint64_t major;
    uint64_t minor;
    if (!parse_hex(&cursor, end, &mapping->start_avma) || !skip_char(&cursor, end, '-') ||
        !parse_hex(&cursor, end, &mapping->end_avma) || mapping->end_avma <= mapping->start_avma ||
        !parse_blanks(&cursor, end) || end - cursor < 5)
        return false;
    mapping->readable = cursor[0] == 'r';
    mapping->executable = cursor[2] == 'x';
    cursor += 4;
    if (!parse_blanks(&cursor, end) || !parse_hex(&cursor, end, &mapping->off) || !parse_blanks(&cursor, end) ||
        !parse_hex(&cursor, end, &major) || !skip_char(&cursor, end, ':') || !parse_hex(&cursor, end, &minor) ||
        !parse_blanks(&cursor, end) || !parse_u64(&cursor, end, &mapping->inode))
        return false;
    mapping->dev = makedev((unsigned)major, (unsigned)minor);
    parse_blanks(&cursor, end);
    mapping->path = cursor;
    mapping->path_size = (size_t)(end - cursor);
    return true;
}

bool mapping_parse(const char **cursor, const char *end, struct mapping *ret)
{
    const char *line = *cursor;
    if (line >= end)
        return false;
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    *cursor = stop ? stop + 1 : end;
    struct mapping mapping = {0};
    if (!parse_line(line, stop ? stop : end, &mapping))
        return false;
    *ret = mapping;
    return true;
}

static bool ends_with(const char *text, size_t size, const char *tail)
{
    size_t length = strlen(tail);
    return size >= length && memcmp(text + size - length, tail, length) == 0;
}

void mapping_path(const struct mapping *mapping, char *buffer, size_t size)
{
    static const char deleted[] = " (deleted)";
    size_t length = mapping->path_size;
    if (ends_with(mapping->path, length, deleted))
        length -= sizeof(deleted) - 1;
    size_t to = 0;
    for (size_t from = 0; from < length && to + 1 < size; from++) {
        if (length - from >= 4 && memcmp(mapping->path + from, "\\012", 4) == 0) {
            buffer[to++] = '\n';
            from += 3;
        } else {
            buffer[to++] = mapping->path[from];
        }
    }
    buffer[to] = '\0';
}

bool mapping_is_anonymous(const struct mapping *mapping)
{
    static const char *const prefixes[] = {"[", "//anon", "/dev/zero", "/SYSV", "/anon_hugepage", "anon_inode:"};
    if (mapping->path_size == 0)
        return true;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t length = strlen(prefixes[i]);
        if (mapping->path_size >= length && memcmp(mapping->path, prefixes[i], length) == 0)
            return true;
    }
    return mapping->inode == 0;
}
