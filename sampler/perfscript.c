#include "sampler/perfscript.h"

#include "common/parse.h"
#include "output/clean.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { FRAMES_MAX = 1024, NAME_MAX_BYTES = 4096 };

/* Addresses of the kernel have their top bit set. */
#define KERNEL_START (UINT64_C(1) << 63)

struct piece {
    const char *text;
    size_t size;
};

struct frame {
    struct piece name;
    struct piece file;
};

struct sample {
    bool begun;
    struct piece thread;
    struct frame frames[FRAMES_MAX]; /* innermost first */
    size_t count;
};

static void trim(struct piece *piece)
{
    while (piece->size && (piece->text[0] == ' ' || piece->text[0] == '\t'))
        piece->text++, piece->size--;
    while (piece->size && (piece->text[piece->size - 1] == ' ' || piece->text[piece->size - 1] == '\t'))
        piece->size--;
}

/* "name of the thread  8281": false when there is no number at the end. */
static bool parse_header(struct piece line, struct piece *ret_thread)
{
    trim(&line);
    const char *blank = memrchr(line.text, ' ', line.size);
    const char *end = line.text + line.size;
    if (!blank)
        return false;
    const char *cursor = blank + 1;
    uint64_t tid;
    if (!parse_u64(&cursor, end, &tid) || cursor != end)
        return false;
    *ret_thread = (struct piece){line.text, (size_t)(blank - line.text)};
    trim(ret_thread);
    return true;
}

/* "7f00000015ed function (file)": the file's brackets are the last ones, a function's name may have its own. */
static bool parse_frame(struct piece line, struct frame *ret_frame, bool *ret_is_kernel)
{
    trim(&line);
    const char *end = line.text + line.size;
    const char *cursor = line.text;
    uint64_t address;
    if (!parse_hex(&cursor, end, &address) || (cursor < end && *cursor != ' '))
        return false;
    struct piece rest = {cursor, (size_t)(end - cursor)};
    trim(&rest);
    struct piece file = {0};
    if (rest.size && rest.text[rest.size - 1] == ')') {
        size_t at = rest.size - 1;
        for (size_t depth = 1; at > 0 && depth > 0;) {
            at--;
            depth += rest.text[at] == ')';
            depth -= rest.text[at] == '(';
        }
        file = (struct piece){rest.text + at + 1, rest.size - at - 2};
        rest.size = at;
        trim(&rest);
    }
    *ret_frame = (struct frame){.name = rest, .file = file};
    *ret_is_kernel = address >= KERNEL_START;
    return true;
}

static void add_piece(struct strbuf *to, struct piece piece, bool is_last)
{
    char name[NAME_MAX_BYTES];
    size_t size = piece.size < sizeof(name) - 1 ? piece.size : sizeof(name) - 1;
    if (size)
        memcpy(name, piece.text, size);
    name[size] = '\0';
    clean_name(to, name, is_last);
}

static bool is_word(struct piece piece, const char *word)
{
    return piece.size == strlen(word) && memcmp(piece.text, word, piece.size) == 0;
}

/* Code without a name goes by its file, as ours does. */
static void add_frame(struct strbuf *to, const struct frame *frame, bool is_last)
{
    struct piece file = frame->file;
    if (frame->name.size && !is_word(frame->name, "[unknown]")) {
        add_piece(to, frame->name, is_last);
        return;
    }
    const char *slash = file.size ? memrchr(file.text, '/', file.size) : NULL;
    if (!slash) {
        strbuf_adds(to, is_word(file, "[vdso]") ? "[vdso]" : "[unknown]");
        return;
    }
    file.size -= (size_t)(slash + 1 - file.text);
    file.text = slash + 1;
    strbuf_add(to, "[", 1);
    add_piece(to, file, false);
    strbuf_add(to, "]", 1);
}

static int finish_sample(struct sample *sample, struct stackcounts *counts, struct strings *stacks, uint64_t *failed)
{
    struct strbuf text = {0};
    if (!sample->begun)
        return 0;
    add_piece(&text, sample->thread, false);
    for (size_t i = sample->count; i-- > 0;) {
        strbuf_add(&text, ";", 1);
        add_frame(&text, &sample->frames[i], i == 0);
    }
    if (sample->count == 0) {
        strbuf_adds(&text, ";[failed]");
        ++*failed;
    }
    sample->begun = false;
    int error = strbuf_error(&text);
    if (!error)
        error = stackcounts_add(counts, stacks, text.data, 1);
    strbuf_deinit(&text);
    return error;
}

static int take_line(struct sample *sample, struct piece line, struct stackcounts *counts, struct strings *stacks,
                     uint64_t *failed)
{
    struct frame frame;
    bool is_kernel;
    if (line.size == 0)
        return finish_sample(sample, counts, stacks, failed);
    if (line.text[0] == '\t' || (line.text[0] == ' ' && sample->begun)) {
        if (!sample->begun || !parse_frame(line, &frame, &is_kernel))
            counts->left_out++;
        else if (!is_kernel && sample->count < FRAMES_MAX)
            sample->frames[sample->count++] = frame;
        return 0;
    }
    int error = finish_sample(sample, counts, stacks, failed);
    sample->count = 0;
    sample->begun = parse_header(line, &sample->thread);
    counts->left_out += !sample->begun;
    return error;
}

int perfscript_read(struct stackcounts *counts, struct strings *stacks, const char *text, size_t size,
                    uint64_t *ret_failed)
{
    struct sample sample = {0};
    const char *end = text + size;
    uint64_t failed = 0;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        int error = take_line(&sample, (struct piece){text, (size_t)(line_end - text)}, counts, stacks, &failed);
        if (error)
            return error;
        text = newline ? newline + 1 : end;
    }
    int error = finish_sample(&sample, counts, stacks, &failed);
    if (!error)
        *ret_failed = failed;
    return error;
}

static bool ends_with(struct piece piece, const char *suffix)
{
    size_t size = strlen(suffix);
    return piece.size >= size && memcmp(piece.text + piece.size - size, suffix, size) == 0;
}

void perfscript_likewise(const char *stack, struct strbuf *to)
{
    size_t thread = strcspn(stack, ";");
    strbuf_add(to, stack, thread);
    for (const char *at = stack + thread; *at == ';';) {
        struct piece frame = {at + 1, strcspn(at + 1, ";")};
        at = frame.text + frame.size;
        if (is_word(frame, "[truncated]") || ends_with(frame, "_[i]") || ends_with(frame, "_[k]"))
            continue;
        if (ends_with(frame, "_[j]"))
            frame.size -= 4;
        const char *clone = memmem(frame.text, frame.size, " [clone ", 8);
        if (clone && ends_with(frame, "]"))
            frame.size = (size_t)(clone - frame.text);
        strbuf_add(to, ";", 1);
        strbuf_add(to, frame.text, frame.size);
    }
}
