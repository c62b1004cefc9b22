/*
 * Collapsed stacks, the input of flamegraph.pl and most viewers: `thread;outermost;...;innermost COUNT`, one line per
 * distinct text, lines sorted bytewise. The same samples give the same bytes in whatever order they were added.
 */
#include "common/array.h"
#include "output/clean.h"
#include "output/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct line {
    size_t start; /* in the text buffer; offsets, because the buffer moves while it grows */
    size_t size;
    const char *text; /* set when the buffer is complete */
    uint64_t value;
};

struct lines {
    struct strbuf text;
    struct line *items;
    size_t count;
    size_t capacity;
    uint32_t *frames; /* of the stack in work, outermost first */
    size_t frame_capacity;
};

static void add_thread_name(struct strbuf *text, const struct profile *profile, const struct profile_sample *sample,
                            const struct output_options *options)
{
    clean_name(text, strings_get(&profile->strings, sample->thread_name), false);
    if (options->show_threads && profile->threads[sample->thread].tid > 0)
        strbuf_addf(text, " (%d)", (int)profile->threads[sample->thread].tid);
}

/* " (file.c:12)"; the separators of lines and frames may be in a file's name too. */
static void add_line_of(struct strbuf *text, const struct profile *profile, const struct name *name)
{
    const char *path = strings_get(&profile->strings, name->file);
    const char *slash = strrchr(path, '/');
    strbuf_adds(text, " (");
    clean_name(text, slash ? slash + 1 : path, false);
    strbuf_addf(text, ":%u)", name->line);
}

static void add_frame_names(struct strbuf *text, const struct profile *profile, uint32_t number, bool is_innermost,
                            const struct output_options *options)
{
    const struct profile_frame *frame = &profile->frames[number];
    if (frame->name_count == 0)
        strbuf_adds(text, ";[unknown]");
    for (size_t i = 0; i < frame->name_count; i++) {
        const struct name *name = &profile->names[frame->first_name + i];
        strbuf_add(text, ";", 1);
        bool has_line = options->show_lines && name->file && name->line;
        bool is_last = is_innermost && i + 1 == frame->name_count && !has_line;
        clean_name(text, strings_get(&profile->strings, name->text), is_last);
        if (has_line)
            add_line_of(text, profile, name);
        strbuf_adds(text, clean_suffix(name->kind));
    }
}

static int add_stack(struct lines *lines, const struct profile *profile, uint32_t stack,
                     const struct output_options *options)
{
    size_t depth = profile->stacks[stack].depth;
    int error = array_room(&lines->frames, &lines->frame_capacity, depth);
    if (error)
        return error;
    for (size_t i = depth; i-- > 0; stack = profile->stacks[stack].caller)
        lines->frames[i] = profile->stacks[stack].frame;
    for (size_t i = 0; i < depth; i++)
        add_frame_names(&lines->text, profile, lines->frames[i], i + 1 == depth, options);
    return 0;
}

static int add_line(struct lines *lines, const struct profile *profile, const struct profile_sample *sample,
                    const struct output_options *options)
{
    int error = array_room(&lines->items, &lines->capacity, lines->count + 1);
    if (error)
        return error;
    struct line *line = &lines->items[lines->count];
    *line = (struct line){.start = lines->text.size, .value = options->value_ns ? sample->ns : sample->count};
    if (line->value == 0)
        return 0;
    add_thread_name(&lines->text, profile, sample, options);
    switch (sample->kind) {
    case SAMPLE_TRUNCATED:
        strbuf_adds(&lines->text, ";[truncated]");
        error = add_stack(lines, profile, sample->stack, options);
        break;
    case SAMPLE_WHOLE:
        error = add_stack(lines, profile, sample->stack, options);
        break;
    case SAMPLE_FAILED:
        strbuf_adds(&lines->text, ";[failed]");
        break;
    case SAMPLE_NOT_SAMPLED:
        strbuf_adds(&lines->text, ";[not sampled]");
        break;
    }
    if (options->show_states && sample->state)
        strbuf_addf(&lines->text, ";[%s]", strings_get(&profile->strings, sample->state));
    if (error || strbuf_error(&lines->text))
        return error ? error : strbuf_error(&lines->text);
    line->size = lines->text.size - line->start;
    lines->count++;
    return 0;
}

static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a;
    const struct line *y = b;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order)
        return order;
    return (x->size > y->size) - (x->size < y->size);
}

static void sort_lines(struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        lines->items[i].text = lines->text.data + lines->items[i].start;
    if (lines->count)
        qsort(lines->items, lines->count, sizeof(*lines->items), compare_lines);
}

/* Equal texts become one line, with its number behind it. */
static int merge_lines(const struct lines *from, struct lines *to)
{
    for (size_t i = 0; i < from->count;) {
        uint64_t value = 0;
        size_t first = i;
        while (i < from->count && compare_lines(&from->items[first], &from->items[i]) == 0)
            value += from->items[i++].value;
        int error = array_room(&to->items, &to->capacity, to->count + 1);
        if (error)
            return error;
        struct line *line = &to->items[to->count++];
        *line = (struct line){.start = to->text.size};
        strbuf_add(&to->text, from->items[first].text, from->items[first].size);
        strbuf_addf(&to->text, " %llu\n", (unsigned long long)value);
        line->size = to->text.size - line->start;
    }
    return strbuf_error(&to->text);
}

static void lines_deinit(struct lines *lines)
{
    strbuf_deinit(&lines->text);
    free(lines->items);
    free(lines->frames);
}

void collapsed_write(const struct profile *profile, const struct output_options *options, struct sink *sink)
{
    struct lines raw = {0};
    struct lines merged = {0};
    int error = 0;
    for (size_t i = 0; i < profile->sample_count && !error; i++)
        error = add_line(&raw, profile, &profile->samples[i], options);
    if (!error) {
        sort_lines(&raw);
        error = merge_lines(&raw, &merged);
    }
    if (!error) {
        sort_lines(&merged); /* again: a name with a blank may sort on either side of a shorter one's number */
        for (size_t i = 0; i < merged.count; i++)
            sink_add(sink, merged.items[i].text, merged.items[i].size);
    } else if (!sink->error) {
        sink->error = error;
    }
    lines_deinit(&raw);
    lines_deinit(&merged);
}
