/* A mapped file that shrinks is read as zeros; other bus errors kill as ever. */
#include "cmocka_all.h"

#include "symbolize/mapguard.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static int file_of(size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    uint8_t page[PAGE];
    memset(page, 'x', sizeof(page));
    for (size_t done = 0; done < size; done += PAGE)
        assert_int_equal(write(fd, page, PAGE), PAGE);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static const uint8_t *map_of(int fd, size_t size)
{
    const uint8_t *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    return bytes;
}

static void unmap(const uint8_t *bytes, size_t size)
{
    munmap((void *)(uintptr_t)bytes, size);
}

static void test_shrunk(void **state)
{
    (void)state;
    int fd = file_of(4 * PAGE);
    const uint8_t *bytes = map_of(fd, 4 * PAGE - 10);
    assert_int_equal(mapguard_add(bytes, 4 * PAGE - 10), 0);
    assert_int_equal(bytes[0], 'x');
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (size_t i = 1; i < 4; i++)
        assert_int_equal(((const volatile uint8_t *)bytes)[i * PAGE + 5], 0);
    assert_int_equal(bytes[PAGE - 1], 'x');
    mapguard_remove(bytes);
    unmap(bytes, 4 * PAGE);
    mapguard_remove(bytes);
    mapguard_remove(NULL);
    close(fd);
}

static void test_many(void **state)
{
    (void)state;
    static const uint8_t *maps[4097];
    int fd = file_of(PAGE);
    for (size_t i = 0; i < 4097; i++) {
        maps[i] = map_of(fd, PAGE);
        assert_int_equal(mapguard_add(maps[i], PAGE), i < 4096 ? 0 : -EMFILE);
    }
    mapguard_remove(maps[3]);
    assert_int_equal(mapguard_add(maps[4096], PAGE), 0);
    for (size_t i = 0; i < 4097; i++) {
        mapguard_remove(maps[i]);
        unmap(maps[i], PAGE);
    }
    close(fd);
}

/* The program's end when it reads what is gone, by SIGBUS. */
static bool kills(const uint8_t *bytes)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        uint8_t byte = *(const volatile uint8_t *)bytes;
        _exit(byte);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

/* Of a mapping that is none of ours, or not any more. */
static void test_others(void **state)
{
    (void)state;
    signal(SIGBUS, SIG_DFL); /* cmocka has its own handler */
    int fd = file_of(PAGE);
    const uint8_t *bytes = map_of(fd, PAGE);
    const uint8_t *other = map_of(fd, PAGE);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(mapguard_add(bytes, PAGE), 0);
    assert_false(kills(bytes));
    assert_true(kills(other));
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGBUS); /* nobody's mapping */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    mapguard_remove(bytes);
    assert_true(kills(bytes));
    unmap(bytes, PAGE);
    unmap(other, PAGE);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shrunk),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
