/* The formats, all behind one small interface. A writer reads a named profile and knows nothing of where it came from.
 */
#ifndef OUTPUT_OUTPUT_H
#define OUTPUT_OUTPUT_H

#include "output/sink.h"
#include "profile/profile.h"

#include <stdbool.h>

struct output_options {
    bool value_ns;     /* the number is nanoseconds, not samples */
    bool show_threads; /* the root frame is "name (tid)" */
    bool show_lines;   /* frames are "function (file:line)", where known; of the file its name without directories */
    bool show_states;  /* the innermost frame is what the thread was doing: "[epoll_wait]" */
};

struct output_format {
    const char *name;   /* as -f takes it */
    const char *suffix; /* of a file name that chooses it without -f (".pb.gz"), or NULL */
    /* NULL: a name that is reserved for a format which this version does not write. Errors are kept in the sink. */
    void (*write)(const struct profile *profile, const struct output_options *options, struct sink *sink);
};

/* By name, or by the suffix of a file name (longest first); NULL when there is none. */
const struct output_format *output_find_format(const char *name);
const struct output_format *output_find_suffix(const char *file_name);

void collapsed_write(const struct profile *profile, const struct output_options *options, struct sink *sink);

#endif
