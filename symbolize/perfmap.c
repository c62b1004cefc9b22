#include "symbolize/perfmap.h"

#include "common/array.h"
#include "common/fileio.h"
#include "common/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_NAME_BYTES = 4 << 10,
    MAX_LINE_BYTES = MAX_NAME_BYTES + 256, /* two numbers with leading zeros and blanks, and a name */
    CHUNK_BYTES = 256 << 10
};

static const uint64_t MAX_FILE_BYTES = UINT64_C(4) << 30;

struct line {
    uint64_t start;
    uint64_t end;
    size_t name_at; /* in names */
};

/* What is left of a line where no later one lies above it. */
struct piece {
    uint64_t start;
    uint64_t end;
    uint32_t line;
};

struct perfmap {
    struct line *lines; /* in the order of the file */
    size_t count;
    size_t capacity;
    size_t skipped;

    char *names; /* each ends with NUL */
    size_t names_bytes;
    size_t names_capacity;

    /* The last line, while its newline has not come; what exceeds MAX_LINE_BYTES is dropped. NULL: there was none. */
    char *partial;
    size_t partial_bytes;

    struct piece *pieces; /* sorted, disjoint */
    size_t piece_count;
    size_t piece_capacity;
    bool sorted; /* pieces are those of all lines */

    uint64_t file_off; /* perfmap_read goes on here */
};

struct perfmap *perfmap_new(void)
{
    struct perfmap *map = calloc(1, sizeof(*map));
    if (!map)
        return NULL;
    map->sorted = true;
    return map;
}

void perfmap_free(struct perfmap *map)
{
    if (!map)
        return;
    free(map->lines);
    free(map->names);
    free(map->partial);
    free(map->pieces);
    free(map);
}

static bool parse_address(const char **cursor, const char *end, uint64_t *ret)
{
    const char *digits = *cursor;
    if (end - digits > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        digits += 2;
    if (!parse_hex(&digits, end, ret))
        return false;
    *cursor = digits;
    return true;
}

/* "3ef414c0 398 LazyCompile:~main app.js:12", without the newline. */
static bool parse_line(const char *text, const char *end, struct line *ret_line, const char **ret_name)
{
    uint64_t start;
    uint64_t bytes;
    parse_blanks(&text, end);
    if (!parse_address(&text, end, &start) || !parse_blanks(&text, end) || !parse_address(&text, end, &bytes) ||
        !parse_blanks(&text, end))
        return false;
    if (text == end || *text == '\0' || bytes == 0 || bytes > UINT64_MAX - start)
        return false;
    *ret_line = (struct line){.start = start, .end = start + bytes};
    *ret_name = text;
    return true;
}

static int add_line(struct perfmap *map, const char *text, const char *end)
{
    struct line line;
    const char *name;
    /* Piece indices are 32 bits wide. */
    if (!parse_line(text, end, &line, &name) || map->count >= UINT32_MAX) {
        map->skipped++;
        return 0;
    }
    size_t name_bytes = (size_t)(end - name);
    if (name_bytes > MAX_NAME_BYTES)
        name_bytes = MAX_NAME_BYTES;
    int error = array_room(&map->names, &map->names_capacity, map->names_bytes + name_bytes + 1);
    if (!error)
        error = array_room(&map->lines, &map->capacity, map->count + 1);
    if (error)
        return error;
    line.name_at = map->names_bytes;
    memcpy(map->names + map->names_bytes, name, name_bytes);
    map->names[map->names_bytes + name_bytes] = '\0';
    map->names_bytes += name_bytes + 1;
    map->lines[map->count++] = line;
    map->sorted = false;
    return 0;
}

static int keep_partial(struct perfmap *map, const char *bytes, size_t size)
{
    if (!map->partial)
        map->partial = malloc(MAX_LINE_BYTES);
    if (!map->partial)
        return -ENOMEM;
    size_t room = MAX_LINE_BYTES - map->partial_bytes;
    size_t kept = size < room ? size : room;
    memcpy(map->partial + map->partial_bytes, bytes, kept);
    map->partial_bytes += kept;
    return 0;
}

int perfmap_add(struct perfmap *map, const char *bytes, size_t size)
{
    const char *end = bytes + size;
    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        if (!newline)
            return keep_partial(map, bytes, (size_t)(end - bytes));
        int error;
        if (map->partial_bytes > 0) {
            error = keep_partial(map, bytes, (size_t)(newline - bytes));
            error = error ? error : add_line(map, map->partial, map->partial + map->partial_bytes);
            map->partial_bytes = 0;
        } else {
            error = add_line(map, bytes, newline);
        }
        if (error)
            return error;
        bytes = newline + 1;
    }
    return 0;
}

int perfmap_open_file(int dirfd, const char *path, uid_t owner)
{
    int fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    struct stat status;
    int error = 0;
    if (fstat(fd, &status) < 0)
        error = -errno;
    else if (!S_ISREG(status.st_mode))
        error = -EINVAL;
    else if (status.st_uid != owner && status.st_uid != 0)
        error = -EPERM;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

int perfmap_read(struct perfmap *map, int fd)
{
    char *chunk = malloc(CHUNK_BYTES);
    if (!chunk)
        return -ENOMEM;
    int error = 0;
    while (!error && map->file_off < MAX_FILE_BYTES) {
        ssize_t got = fileio_pread(fd, chunk, CHUNK_BYTES, map->file_off);
        if (got <= 0) {
            error = (int)got;
            break;
        }
        map->file_off += (uint64_t)got;
        error = perfmap_add(map, chunk, (size_t)got);
        if (got < CHUNK_BYTES)
            break;
    }
    free(chunk);
    return error;
}

/* A line's start with its number: all that sorting needs. */
struct start {
    uint64_t at;
    uint32_t line;
};

static int compare_start(const void *left, const void *right)
{
    const struct start *a = left;
    const struct start *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* Numbers of lines, the largest on top: of the lines that began so far. Those that have ended leave when they come up.
 */
struct heap {
    uint32_t *items;
    size_t count;
};

static void heap_add(struct heap *heap, uint32_t item)
{
    size_t at = heap->count++;
    while (at > 0 && heap->items[(at - 1) / 2] < item) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static void heap_drop_first(struct heap *heap)
{
    uint32_t moved = heap->items[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->items[child + 1] > heap->items[child])
            child++;
        if (moved >= heap->items[child])
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = moved;
}

static int emit(struct perfmap *map, uint64_t start, uint64_t end, uint32_t line)
{
    if (map->piece_count > 0) {
        struct piece *last = &map->pieces[map->piece_count - 1];
        if (last->end == start && last->line == line) {
            last->end = end;
            return 0;
        }
    }
    int error = array_room(&map->pieces, &map->piece_capacity, map->piece_count + 1);
    if (error)
        return error;
    map->pieces[map->piece_count++] = (struct piece){.start = start, .end = end, .line = line};
    return 0;
}

/* The pieces of [at, until), in which no line starts. */
static int cut_pieces(struct perfmap *map, struct heap *heap, uint64_t at, uint64_t until)
{
    while (at < until && heap->count > 0) {
        uint32_t line = heap->items[0];
        uint64_t line_end = map->lines[line].end;
        if (line_end <= at) {
            heap_drop_first(heap);
            continue;
        }
        uint64_t end = line_end < until ? line_end : until;
        int error = emit(map, at, end, line);
        if (error)
            return error;
        at = end;
    }
    return 0;
}

static int sort_lines(struct perfmap *map)
{
    struct start *starts = malloc(map->count * sizeof(*starts));
    struct heap heap = {.items = malloc(map->count * sizeof(*heap.items))};
    int error = starts && heap.items ? 0 : -ENOMEM;
    map->piece_count = 0;
    bool in_order = true;
    for (size_t i = 0; i < map->count && !error; i++) {
        starts[i] = (struct start){.at = map->lines[i].start, .line = (uint32_t)i};
        in_order = in_order && (i == 0 || starts[i - 1].at <= starts[i].at);
    }
    if (!error && !in_order)
        qsort(starts, map->count, sizeof(*starts), compare_start);
    for (size_t i = 0; i < map->count && !error; i++) {
        heap_add(&heap, starts[i].line);
        uint64_t until = i + 1 < map->count ? starts[i + 1].at : UINT64_MAX;
        error = cut_pieces(map, &heap, starts[i].at, until);
    }
    free(starts);
    free(heap.items);
    map->sorted = !error;
    return error;
}

bool perfmap_find(struct perfmap *map, uint64_t avma, struct perfmap_entry *ret_entry)
{
    if (!map->sorted && sort_lines(map))
        return false;
    size_t low = 0;
    size_t high = map->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->pieces[middle].start <= avma)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || avma >= map->pieces[low - 1].end)
        return false;
    const struct piece *piece = &map->pieces[low - 1];
    *ret_entry = (struct perfmap_entry){
        .start_avma = piece->start, .end_avma = piece->end, .name = map->names + map->lines[piece->line].name_at};
    return true;
}

size_t perfmap_lines(const struct perfmap *map)
{
    return map->count;
}

void perfmap_get_line(const struct perfmap *map, size_t index, struct perfmap_entry *ret_entry)
{
    const struct line *line = &map->lines[index];
    *ret_entry =
        (struct perfmap_entry){.start_avma = line->start, .end_avma = line->end, .name = map->names + line->name_at};
}

size_t perfmap_skipped(const struct perfmap *map)
{
    return map->skipped;
}
