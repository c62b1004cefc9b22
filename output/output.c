#include "output/output.h"

#include <string.h>

static const struct output_format formats[] = {
    {.name = "collapsed", .suffix = ".collapsed", .write = collapsed_write},
    {.name = "collapsed", .suffix = ".folded", .write = collapsed_write},
    {.name = "pprof", .suffix = ".pb.gz"},
    {.name = "pprof", .suffix = ".pprof"},
    {.name = "speedscope", .suffix = ".speedscope.json"},
    {.name = "firefox", .suffix = ".firefox.json"},
    {.name = "trace", .suffix = ".trace.json"},
    {.name = "html", .suffix = ".html"},
    {.name = "recording", .suffix = ".sampler"},
};

enum { FORMAT_COUNT = sizeof(formats) / sizeof(formats[0]) };

const struct output_format *output_find_format(const char *name)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct output_format *output_find_suffix(const char *file_name)
{
    const struct output_format *best = NULL;
    size_t size = strlen(file_name);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        size_t suffix = strlen(formats[i].suffix);
        if (suffix > size || strcmp(file_name + size - suffix, formats[i].suffix) != 0)
            continue;
        if (!best || suffix > strlen(best->suffix))
            best = &formats[i];
    }
    return best;
}
