/* Where a writer's bytes go: a descriptor, with a buffer before it. The first error is kept; later bytes are dropped.
 */
#ifndef OUTPUT_SINK_H
#define OUTPUT_SINK_H

#include "common/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

struct sink {
    int fd; /* borrowed */
    struct strbuf buffer;
    int error;
    /*
     * Asked while writing: true gives up with -ECANCELED. May be NULL. A reader that does not read would hold us for
     * ever; so for what is no regular file, writing waits for `cancel_fd` to become readable too and then asks.
     */
    bool (*is_cancelled)(void *context);
    void *context;
    int cancel_fd;
};

void sink_add(struct sink *sink, const char *bytes, size_t size);
void sink_addf(struct sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes what is left and frees the buffer. Returns 0 or the first error as a negative errno. */
int sink_finish(struct sink *sink);

#endif
