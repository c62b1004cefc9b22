#include "cmocka_all.h"

#include "common/fileio.h"
#include "sampler/outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each test has an empty directory as its working directory. */
static char base[] = "/tmp/test_outfile.XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdir("work", 0700) || chdir("work");
}

static int leave(void **state)
{
    (void)state;
    if (chdir(base))
        return -1;
    DIR *directory = opendir("work");
    struct dirent *entry;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(directory), entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
    closedir(directory);
    return rmdir("work");
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, text, strlen(text)), 0);
    close(fd);
}

static void expect_text(const char *path, const char *wanted)
{
    char text[100];
    assert_true(fileio_read_text(AT_FDCWD, path, text, sizeof(text)) >= 0);
    assert_string_equal(text, wanted);
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *directory = opendir(".");
    struct dirent *entry;
    while ((entry = readdir(directory)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

static void test_new_file(void **state)
{
    (void)state;
    umask(027);
    struct outfile file;
    assert_int_equal(outfile_open("out", &file), 0);
    assert_true(file.fd > 2);
    assert_int_equal(fcntl(file.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(access("out", F_OK), -1);
    assert_int_equal(count_files(), 1);
    assert_int_equal(fileio_write(file.fd, "text", 4), 0);
    assert_int_equal(access("out", F_OK), -1);
    assert_int_equal(outfile_commit(&file), 0);
    assert_int_equal(file.fd, -1);
    expect_text("out", "text");
    assert_int_equal(count_files(), 1);
    struct stat st;
    assert_int_equal(stat("out", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    /* The mask was put back. */
    assert_int_equal(umask(022), 027);
    outfile_deinit(&file);
    expect_text("out", "text");
}

static void test_given_up(void **state)
{
    (void)state;
    struct outfile file;
    assert_int_equal(outfile_open("out", &file), 0);
    int fd = file.fd;
    assert_int_equal(fileio_write(file.fd, "half", 4), 0);
    outfile_deinit(&file);
    assert_int_equal(count_files(), 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    outfile_deinit(&file);
    struct outfile none = {.fd = -1};
    outfile_deinit(&none);
}

static void test_existing_file(void **state)
{
    (void)state;
    put("out", "old and longer");
    struct outfile file;
    assert_int_equal(outfile_open("out", &file), 0);
    assert_int_equal(fileio_write(file.fd, "half", 4), 0);
    expect_text("out", "old and longer");
    outfile_deinit(&file);
    expect_text("out", "old and longer");
    assert_int_equal(count_files(), 1);

    assert_int_equal(outfile_open("out", &file), 0);
    assert_int_equal(fileio_write(file.fd, "new", 3), 0);
    expect_text("out", "old and longer");
    assert_int_equal(outfile_commit(&file), 0);
    expect_text("out", "new");
    assert_int_equal(count_files(), 1);
}

static void test_symlink(void **state)
{
    (void)state;
    assert_int_equal(mkdir("real", 0700), 0);
    put("real/file", "old");
    assert_int_equal(symlink("real/file", "link"), 0);
    struct outfile file;
    assert_int_equal(outfile_open("link", &file), 0);
    assert_int_equal(fileio_write(file.fd, "new", 3), 0);
    expect_text("link", "old");
    assert_int_equal(outfile_commit(&file), 0);
    expect_text("real/file", "new");
    struct stat st;
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink("real/file"), 0);
    assert_int_equal(count_files(), 2);
    assert_int_equal(rmdir("real"), 0); /* nothing else was left there */
}

static void test_failed_commit(void **state)
{
    (void)state;
    struct outfile file;
    assert_int_equal(outfile_open("out", &file), 0);
    assert_int_equal(mkdir("out", 0700), 0); /* somebody was faster, with a directory */
    assert_int_equal(outfile_commit(&file), -EISDIR);
    assert_int_equal(file.fd, -1);
    assert_int_equal(count_files(), 1);
}

static void test_errors(void **state)
{
    (void)state;
    struct outfile file;
    assert_int_equal(outfile_open("missing/out", &file), -ENOENT);
    assert_int_equal(file.fd, -1);
    outfile_deinit(&file);
    assert_int_equal(outfile_open(".", &file), -EISDIR);
    put("plain", "x");
    assert_int_equal(outfile_open("plain/out", &file), -ENOTDIR);
    assert_int_equal(symlink("loop", "loop"), 0);
    char name[300];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(outfile_open(name, &file), -ENAMETOOLONG);
    assert_int_equal(count_files(), 2);
    expect_text("plain", "x");
}

static void test_devices(void **state)
{
    (void)state;
    struct outfile file;
    assert_int_equal(outfile_open("/dev/null", &file), 0);
    assert_null(file.temporary_path);
    assert_int_equal(fileio_write(file.fd, "x", 1), 0);
    assert_int_equal(outfile_commit(&file), 0);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(outfile_open("/dev/full", &file), 0);
    assert_int_equal(fileio_write(file.fd, "x", 1), -ENOSPC);
    outfile_deinit(&file);
    assert_int_equal(access("/dev/full", F_OK), 0);
}

static void test_fifo(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    struct outfile file;
    assert_int_equal(outfile_open("fifo", &file), 0);
    assert_int_equal(fileio_write(file.fd, "through", 7), 0);
    assert_int_equal(outfile_commit(&file), 0);
    char text[8] = {0};
    assert_int_equal(read(reader, text, sizeof(text)), 7);
    assert_string_equal(text, "through");
    close(reader);
    struct stat st;
    assert_int_equal(stat("fifo", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(count_files(), 1);
}

static void test_standard_output(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "-"};
    for (size_t i = 0; i < 2; i++) {
        struct outfile file;
        assert_int_equal(outfile_open(names[i], &file), 0);
        assert_int_equal(file.fd, STDOUT_FILENO);
        if (i)
            outfile_deinit(&file);
        else
            assert_int_equal(outfile_commit(&file), 0);
        assert_true(fcntl(STDOUT_FILENO, F_GETFD) >= 0);
    }
    int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    close(STDOUT_FILENO);
    struct outfile file;
    int error = outfile_open("-", &file);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(error, -EBADF);
    assert_int_equal(count_files(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new_file, enter, leave),
        cmocka_unit_test_setup_teardown(test_given_up, enter, leave),
        cmocka_unit_test_setup_teardown(test_existing_file, enter, leave),
        cmocka_unit_test_setup_teardown(test_symlink, enter, leave),
        cmocka_unit_test_setup_teardown(test_failed_commit, enter, leave),
        cmocka_unit_test_setup_teardown(test_errors, enter, leave),
        cmocka_unit_test_setup_teardown(test_devices, enter, leave),
        cmocka_unit_test_setup_teardown(test_fifo, enter, leave),
        cmocka_unit_test_setup_teardown(test_standard_output, enter, leave),
    };
    if (!mkdtemp(base) || chdir(base))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (chdir("/") || rmdir(base))
        return 1;
    return failed ? 1 : 0;
}
