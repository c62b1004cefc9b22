#include "trace.h"

#include <errno.h>
#include <stdlib.h>

int trace_init(struct trace *trace)
{
    *trace = (struct trace){.frames = calloc(TRACE_DEPTH, sizeof(*trace->frames))};
    return trace->frames ? 0 : -ENOMEM;
}

void trace_deinit(struct trace *trace)
{
    free(trace->frames);
    *trace = (struct trace){0};
}

void trace_clear(struct trace *trace)
{
    trace->count = 0;
    trace->at_root = false;
    trace->end[0] = '\0';
}

bool trace_add(struct trace *trace, struct trace_frame frame)
{
    if (trace->count == TRACE_DEPTH)
        return false;
    trace->frames[trace->count++] = frame;
    return true;
}

size_t trace_common(const struct trace *a, size_t a_count, const struct trace *b, size_t b_count)
{
    size_t n = 0;
    while (n < a_count && n < b_count && a->frames[n].avma == b->frames[n].avma)
        n++;
    return n;
}
