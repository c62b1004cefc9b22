#include "cmocka_all.h"

#include "common/fileio.h"
#include "guarded.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const void *bytes, size_t size)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, bytes, size), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void test_pread(void **state)
{
    (void)state;
    autoclose int fd = file_of("0123456789", 10);
    struct guarded buffer = guarded_new(NULL, 6);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 6, 0), 6);
    assert_memory_equal(buffer.bytes, "012345", 6);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 6, 7), 3);
    assert_memory_equal(buffer.bytes, "789345", 6);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 6, 10), 0);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 6, 1000000), 0);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 0, 0), 0);
    assert_int_equal(fileio_pread(-1, buffer.bytes, 6, 0), -EBADF);
    assert_int_equal(fileio_pread(fd, buffer.bytes, 6, UINT64_MAX / 2 + 1), -EINVAL);
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(fileio_pread(pipe_fds[0], buffer.bytes, 6, 0), -ESPIPE);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    guarded_free(&buffer);
}

static void test_read_text(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_fileio.XXXXXX";
    assert_non_null(mkdtemp(dir));
    autoclose int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dirfd >= 0);
    int made = openat(dirfd, "text", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(fileio_write(made, "hello\n", 6), 0);
    close(made);
    for (size_t size = 1; size <= 9; size++) {
        struct guarded buffer = guarded_new(NULL, size);
        memset(buffer.bytes, '#', size);
        size_t length = size - 1 < 6 ? size - 1 : 6;
        assert_int_equal(fileio_read_text(dirfd, "text", (char *)buffer.bytes, size), length);
        assert_memory_equal(buffer.bytes, "hello\n", length);
        assert_int_equal(buffer.bytes[length], 0);
        guarded_free(&buffer);
    }
    char buffer[16];
    assert_int_equal(fileio_read_text(dirfd, "missing", buffer, sizeof(buffer)), -ENOENT);
    assert_int_equal(fileio_read_text(dirfd, ".", buffer, sizeof(buffer)), -EISDIR);
    assert_int_equal(fileio_read_text(dirfd, "/dev/null", buffer, sizeof(buffer)), 0);
    assert_string_equal(buffer, "");
    assert_int_equal(unlinkat(dirfd, "text", 0), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_read_all(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 16383, 16384, 16385, 100000, 1000000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t size = sizes[i];
        char *bytes = malloc(size + 1);
        for (size_t at = 0; at < size; at++)
            bytes[at] = (char)(at * 31 % 251);
        autoclose int fd = file_of(bytes, size);
        char *data = NULL;
        size_t got = 1;
        assert_int_equal(fileio_read_all(fd, size, &data, &got), 0);
        assert_int_equal(got, size);
        assert_memory_equal(data, bytes, size);
        assert_int_equal(data[size], 0);
        free(data);
        if (size) {
            char *untouched = bytes;
            got = 77;
            assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
            assert_int_equal(fileio_read_all(fd, size - 1, &untouched, &got), -EFBIG);
            assert_ptr_equal(untouched, bytes);
            assert_int_equal(got, 77);
        }
        free(bytes);
    }
    char *data = NULL;
    size_t got = 0;
    assert_int_equal(fileio_read_all(-1, 10, &data, &got), -EBADF);
    autoclose int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fileio_read_all(zero, 1 << 20, &data, &got), -EFBIG);
    assert_null(data);
}

struct feed {
    int fd;
    const char *bytes;
    size_t size;
};

/* Gives the bytes in pieces of every size, so that the reader sees short counts. */
static void *feed_slowly(void *argument)
{
    const struct feed *feed = argument;
    for (size_t at = 0, piece = 1; at < feed->size; at += piece, piece = piece % 97 + 1) {
        size_t left = feed->size - at;
        if (piece > left)
            piece = left;
        if (write(feed->fd, feed->bytes + at, piece) != (ssize_t)piece)
            break;
    }
    close(feed->fd);
    return NULL;
}

static void test_pieces(void **state)
{
    (void)state;
    enum { SIZE = 50000 };
    char *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)('a' + i % 26);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct feed feed = {.fd = fds[1], .bytes = bytes, .size = SIZE};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, feed_slowly, &feed), 0);
    char *data;
    size_t size;
    assert_int_equal(fileio_read_all(fds[0], SIZE, &data, &size), 0);
    pthread_join(thread, NULL);
    assert_int_equal(size, SIZE);
    assert_memory_equal(data, bytes, SIZE);
    free(data);
    free(bytes);
    close(fds[0]);
}

struct drain {
    int fd;
    size_t size;
};

static void *drain_all(void *argument)
{
    struct drain *drain = argument;
    char buffer[1000];
    ssize_t got;
    while ((got = read(drain->fd, buffer, sizeof(buffer))) > 0)
        drain->size += (size_t)got;
    return NULL;
}

static void test_write(void **state)
{
    (void)state;
    /* Much more than a pipe holds. */
    enum { SIZE = 1 << 20 };
    char *bytes = calloc(1, SIZE);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct drain drain = {.fd = fds[0]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain_all, &drain), 0);
    assert_int_equal(fileio_write(fds[1], bytes, SIZE), 0);
    close(fds[1]);
    pthread_join(thread, NULL);
    assert_int_equal(drain.size, SIZE);
    close(fds[0]);
    free(bytes);
}

static void test_write_errors(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    assert_int_equal(fileio_write(fds[1], "x", 1), -EPIPE);
    close(fds[1]);
    assert_int_equal(fileio_write(fds[1], "x", 1), -EBADF);
    autoclose int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(fileio_write(full, "x", 1), -ENOSPC);
    assert_int_equal(fileio_write(full, "x", 0), 0);
}

static void test_autoclose(void **state)
{
    (void)state;
    int seen;
    {
        autoclose int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        autoclose int none = -1;
        (void)none;
        seen = fd;
        assert_true(fcntl(seen, F_GETFD) >= 0);
    }
    assert_int_equal(fcntl(seen, F_GETFD), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pread),     cmocka_unit_test(test_read_text), cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_pieces),    cmocka_unit_test(test_write),     cmocka_unit_test(test_write_errors),
        cmocka_unit_test(test_autoclose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
