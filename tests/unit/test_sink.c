#include "cmocka_all.h"

#include "common/fileio.h"
#include "output/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void test_bytes_arrive(void **state)
{
    (void)state;
    int fd = memfd_create("sink", MFD_CLOEXEC);
    struct sink sink = {.fd = fd};
    struct strbuf wanted = {0};
    for (unsigned i = 0; i < 30000; i++) {
        sink_addf(&sink, "line %u\n", i);
        sink_add(&sink, "\0x", 2);
        strbuf_addf(&wanted, "line %u\n", i);
        strbuf_add(&wanted, "\0x", 2);
    }
    assert_int_equal(sink_finish(&sink), 0);
    assert_null(sink.buffer.data);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    char *text;
    size_t size;
    assert_int_equal(fileio_read_all(fd, 1 << 24, &text, &size), 0);
    assert_int_equal(size, wanted.size);
    assert_memory_equal(text, wanted.data, size);
    free(text);
    strbuf_deinit(&wanted);
    close(fd);
}

static void test_nothing(void **state)
{
    (void)state;
    int fd = memfd_create("sink", MFD_CLOEXEC);
    struct sink sink = {.fd = fd};
    assert_int_equal(sink_finish(&sink), 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
}

static void test_full_disk(void **state)
{
    (void)state;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct sink sink = {.fd = fd};
    sink_add(&sink, "x", 1);
    assert_int_equal(sink_finish(&sink), -ENOSPC);
    sink = (struct sink){.fd = fd};
    for (size_t i = 0; i < 100000; i++)
        sink_add(&sink, "many bytes, so that the error comes in the middle", 20);
    assert_int_equal(sink.error, -ENOSPC);
    /* The first error stays, though writing would work again. */
    sink.fd = memfd_create("sink", MFD_CLOEXEC);
    sink_add(&sink, "later", 5);
    assert_int_equal(sink_finish(&sink), -ENOSPC);
    assert_int_equal(lseek(sink.fd, 0, SEEK_END), 0);
    close(sink.fd);
    close(fd);
}

static void test_closed_pipe(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    struct sink sink = {.fd = fds[1]};
    sink_addf(&sink, "%s", "x");
    assert_int_equal(sink_finish(&sink), -EPIPE);
    close(fds[1]);
    sink = (struct sink){.fd = fds[1]};
    sink_add(&sink, "x", 1);
    assert_int_equal(sink_finish(&sink), -EBADF);
}

static bool is_set(void *context)
{
    return *(atomic_bool *)context;
}

static void test_cancelled_before(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    atomic_bool cancelled = true;
    int fd = memfd_create("sink", MFD_CLOEXEC);
    struct sink sink = {.fd = fd, .is_cancelled = is_set, .context = &cancelled, .cancel_fd = fds[0]};
    sink_add(&sink, "x", 1);
    assert_int_equal(sink_finish(&sink), -ECANCELED);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

static void test_cancel_unset(void **state)
{
    (void)state;
    int cancel[2];
    int fds[2];
    assert_int_equal(pipe2(cancel, O_CLOEXEC), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    atomic_bool cancelled = false;
    struct sink sink = {.fd = fds[1], .is_cancelled = is_set, .context = &cancelled, .cancel_fd = cancel[0]};
    char bytes[10000];
    memset(bytes, 'x', sizeof(bytes));
    sink_add(&sink, bytes, sizeof(bytes));
    assert_int_equal(sink_finish(&sink), 0);
    close(fds[1]);
    char *text;
    size_t size;
    assert_int_equal(fileio_read_all(fds[0], 1 << 20, &text, &size), 0);
    assert_int_equal(size, sizeof(bytes));
    free(text);
    /* Nobody reads at the other end: an error, not a wait. */
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    sink = (struct sink){.fd = fds[1], .is_cancelled = is_set, .context = &cancelled, .cancel_fd = cancel[0]};
    sink_add(&sink, bytes, sizeof(bytes));
    assert_int_equal(sink_finish(&sink), -EPIPE);
    close(fds[1]);
    close(cancel[0]);
    close(cancel[1]);
}

struct canceller {
    int full_fd;
    int cancel_fd;
    atomic_bool *cancelled;
};

/* Waits until the writer has filled the pipe, so that it is about to wait for its reader. */
static void *cancel_when_full(void *argument)
{
    const struct canceller *canceller = argument;
    struct pollfd full = {.fd = canceller->full_fd, .events = POLLOUT};
    while (poll(&full, 1, 0) == 1)
        sched_yield();
    *canceller->cancelled = true;
    fileio_write(canceller->cancel_fd, "x", 1);
    return NULL;
}

static void test_cancel_while_nobody_reads(void **state)
{
    (void)state;
    int cancel[2];
    int fds[2];
    assert_int_equal(pipe2(cancel, O_CLOEXEC), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    atomic_bool cancelled = false;
    struct canceller canceller = {.full_fd = fds[1], .cancel_fd = cancel[1], .cancelled = &cancelled};
    struct sink sink = {.fd = fds[1], .is_cancelled = is_set, .context = &cancelled, .cancel_fd = cancel[0]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_when_full, &canceller), 0);
    char *bytes = calloc(1, 1 << 20);
    sink_add(&sink, bytes, 1 << 20);
    assert_int_equal(sink_finish(&sink), -ECANCELED);
    pthread_join(thread, NULL);
    free(bytes);
    close(fds[0]);
    close(fds[1]);
    close(cancel[0]);
    close(cancel[1]);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_arrive),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(test_cancelled_before),
        cmocka_unit_test(test_cancel_unset),
        cmocka_unit_test(test_cancel_while_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
