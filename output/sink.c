#include "output/sink.h"

#include "common/fileio.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/stat.h>

enum {
    SINK_BUFFER_BYTES = 1 << 16,
    /* A pipe that poll(2) calls writable takes this much without blocking: PIPE_BUF. */
    SINK_CHUNK_BYTES = 4096
};

static bool is_cancelled(const struct sink *sink)
{
    return sink->is_cancelled && sink->is_cancelled(sink->context);
}

/* Returns 0 when the descriptor takes a chunk, or a negative errno. */
static int wait_writable(const struct sink *sink)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = sink->fd, .events = POLLOUT}, {.fd = sink->cancel_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return -errno;
        if (fds[1].revents && is_cancelled(sink))
            return -ECANCELED;
        if (fds[0].revents)
            return 0; /* an error condition too: the write will tell */
    }
}

static int write_chunks(const struct sink *sink, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t chunk = size - done < SINK_CHUNK_BYTES ? size - done : SINK_CHUNK_BYTES;
        int error = wait_writable(sink);
        if (!error)
            error = fileio_write(sink->fd, bytes + done, chunk);
        if (error)
            return error;
        done += chunk;
    }
    return 0;
}

static void sink_flush(struct sink *sink)
{
    struct stat st;
    if (!sink->error)
        sink->error = strbuf_error(&sink->buffer);
    if (!sink->error && is_cancelled(sink))
        sink->error = -ECANCELED;
    if (!sink->error) {
        bool waits = sink->is_cancelled && fstat(sink->fd, &st) == 0 && !S_ISREG(st.st_mode);
        sink->error = waits ? write_chunks(sink, sink->buffer.data, sink->buffer.size)
                            : fileio_write(sink->fd, sink->buffer.data, sink->buffer.size);
    }
    strbuf_clear(&sink->buffer);
}

void sink_add(struct sink *sink, const char *bytes, size_t size)
{
    strbuf_add(&sink->buffer, bytes, size);
    if (sink->buffer.size >= SINK_BUFFER_BYTES)
        sink_flush(sink);
}

void sink_addf(struct sink *sink, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    strbuf_vaddf(&sink->buffer, format, args);
    va_end(args);
    if (sink->buffer.size >= SINK_BUFFER_BYTES)
        sink_flush(sink);
}

int sink_finish(struct sink *sink)
{
    sink_flush(sink);
    strbuf_deinit(&sink->buffer);
    return sink->error;
}
