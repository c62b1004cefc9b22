#include "sampler/maps.h"

#include "common/array.h"
#include "common/parse.h"

#include <errno.h>
#include <stdlib.h>
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

static const char DELETED[] = " (deleted)";

static void copy_path(const char *path, size_t length, bool is_escaped, char *buffer, size_t size)
{
    size_t to = 0;
    for (size_t from = 0; from < length && to + 1 < size; from++) {
        if (is_escaped && length - from >= 4 && memcmp(path + from, "\\012", 4) == 0) {
            buffer[to++] = '\n';
            from += 3;
        } else {
            buffer[to++] = path[from];
        }
    }
    buffer[to] = '\0';
}

void mapping_path(const struct mapping *mapping, char *buffer, size_t size)
{
    size_t length = mapping->path_size;
    if (ends_with(mapping->path, length, DELETED))
        length -= sizeof(DELETED) - 1;
    copy_path(mapping->path, length, true, buffer, size);
}

bool mapping_path_reading(const struct mapping *mapping, unsigned reading, char *buffer, size_t size)
{
    size_t length = mapping->path_size;
    bool may_be_deleted = ends_with(mapping->path, length, DELETED);
    bool may_be_escaped = memmem(mapping->path, length, "\\012", 4);
    unsigned tails = may_be_deleted ? 2 : 1;
    if (reading >= tails * (may_be_escaped ? 2U : 1U))
        return false;
    if (reading % tails == 1)
        length -= sizeof(DELETED) - 1;
    copy_path(mapping->path, length, reading < tails, buffer, size);
    return true;
}

int mappings_parse(const char *text, size_t size, struct mapping **ret_list, size_t *ret_count)
{
    struct mapping *list = NULL;
    size_t count = 0;
    size_t capacity = 0;
    const char *end = text + size;
    while (text < end) {
        struct mapping mapping;
        if (!mapping_parse(&text, end, &mapping))
            continue;
        if (array_room(&list, &capacity, count + 1)) {
            free(list);
            return -ENOMEM;
        }
        list[count++] = mapping;
    }
    *ret_list = list;
    *ret_count = count;
    return 0;
}

bool mapping_is_same_file(const struct mapping *a, const struct mapping *b)
{
    return a->inode == b->inode && a->dev == b->dev;
}

const struct mapping *mappings_base(const struct mapping *list, size_t index)
{
    enum { LOOK_BACK = 64 };
    for (size_t back = 0; back <= index && back < LOOK_BACK; back++) {
        const struct mapping *mapping = &list[index - back];
        if (mapping_is_same_file(mapping, &list[index]) && mapping->off == 0 && mapping->readable)
            return mapping;
    }
    return NULL;
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
