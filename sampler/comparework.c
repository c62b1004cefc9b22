#include "sampler/comparework.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "common/parse.h"
#include "sampler/comparespawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 4096 };

#define ASK_NS_MAX (5 * NS_PER_SEC)

bool comparework_parse(const char *text, size_t size, double *ret_value)
{
    const char *end = text + size;
    uint64_t whole;
    double value;
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\n'))
        text++;
    if (!parse_u64(&text, end, &whole))
        return false;
    value = (double)whole;
    if (text < end && *text == '.') {
        double unit = 0.1;
        for (text++; text < end && *text >= '0' && *text <= '9'; text++, unit /= 10)
            value += unit * (*text - '0');
    }
    if (text < end && *text && !strchr(" \t\r\n", *text))
        return false;
    *ret_value = value;
    return true;
}

/* All that comes until the end of the file or the deadline; what does not fit is read and dropped. */
static int read_output(int fd, uint64_t deadline_ns, char *text, size_t *ret_size)
{
    size_t size = 0;
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        if (now_ns >= deadline_ns)
            return -ETIME;
        if (poll(&pollfd, 1, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1) <= 0)
            continue;
        char dropped[OUTPUT_BYTES];
        bool is_full = size == OUTPUT_BYTES;
        ssize_t got = read(fd, is_full ? dropped : text + size, is_full ? sizeof(dropped) : OUTPUT_BYTES - size);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0) {
            *ret_size = size;
            return 0;
        }
        if (got > 0 && !is_full)
            size += (size_t)got;
    }
}

int comparework_ask(const char *command, const sigset_t *mask, double *ret_value, uint64_t *ret_ns)
{
    int fds[2];
    char text[OUTPUT_BYTES];
    size_t size = 0;
    int status = 0;
    pid_t pid;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    uint64_t begin_ns = clock_now_ns();
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    int error = comparespawn_start(argv, mask, fds[1], STDERR_FILENO, &pid);
    close(fds[1]);
    if (error) {
        close(fds[0]);
        return error;
    }
    error = read_output(fds[0], begin_ns + ASK_NS_MAX, text, &size);
    close(fds[0]);
    /* It has closed its output, or it is late: what is left of it has nothing more to tell. */
    if (error)
        kill(-pid, SIGKILL);
    int waited = comparespawn_wait(pid, begin_ns + ASK_NS_MAX, &status, NULL);
    uint64_t end_ns = clock_now_ns();
    if (error || waited)
        return error ? error : waited;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return -ECHILD;
    if (!comparework_parse(text, size, ret_value))
        return -EINVAL;
    *ret_ns = begin_ns + (end_ns - begin_ns) / 2;
    return 0;
}

/* "syscr: 12\n" */
static bool find_field(const char *text, const char *name, uint64_t *ret_value)
{
    const char *at = strstr(text, name);
    if (!at)
        return false;
    at += strlen(name);
    const char *end = at + strlen(at);
    parse_blanks(&at, end);
    return parse_u64(&at, end, ret_value);
}

int comparework_calls(int proc_fd, double *ret_calls)
{
    char text[1024];
    uint64_t reads;
    uint64_t writes;
    ssize_t got = fileio_read_text(proc_fd, "io", text, sizeof(text));
    if (got < 0)
        return (int)got;
    if (!find_field(text, "syscr:", &reads) || !find_field(text, "syscw:", &writes))
        return -EPROTO;
    *ret_calls = (double)reads + (double)writes;
    return 0;
}
