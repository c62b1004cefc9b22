#include "cmocka_all.h"

#include "common/fileio.h"
#include "common/rng.h"
#include "symbolize/perfmap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The bytes at the end of a page, before one that cannot be read. */
static void add_guarded(struct perfmap *map, const char *bytes, size_t size)
{
    size_t room = (size + 4095) & ~(size_t)4095;
    char *pages = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + room, 4096, PROT_NONE), 0);
    memcpy(pages + room - size, bytes, size);
    assert_int_equal(perfmap_add(map, pages + room - size, size), 0);
    munmap(pages, room + 4096);
}

static struct perfmap *map_of(const char *text)
{
    struct perfmap *map = perfmap_new();
    assert_non_null(map);
    add_guarded(map, text, strlen(text));
    return map;
}

static void expect(struct perfmap *map, uint64_t avma, const char *name)
{
    struct perfmap_entry entry;
    bool found = perfmap_find(map, avma, &entry);
    if (!name) {
        if (found)
            fail_msg("0x%lx is %s, expected no name", (unsigned long)avma, entry.name);
        return;
    }
    if (!found)
        fail_msg("0x%lx has no name, expected %s", (unsigned long)avma, name);
    assert_string_equal(entry.name, name);
    assert_true(avma >= entry.start_avma && avma < entry.end_avma);
}

static void test_lines(void **state)
{
    (void)state;
    struct perfmap *map = map_of("3ef414c0 398 LazyCompile:~main app.js:12\n"
                                 "0x1000 0x10 with prefix\n"
                                 "FFFFFFFFFFFFFF00 ff top\n"
                                 "2000\t10\ttabs  and blanks \n"
                                 "3000 10 bytes \377\300\n");
    assert_int_equal(perfmap_lines(map), 5);
    assert_int_equal(perfmap_skipped(map), 0);
    expect(map, 0x3ef414c0, "LazyCompile:~main app.js:12");
    expect(map, 0x3ef414c0 + 0x397, "LazyCompile:~main app.js:12");
    expect(map, 0x3ef414c0 + 0x398, NULL);
    expect(map, 0x3ef414bf, NULL);
    expect(map, 0x100f, "with prefix");
    expect(map, UINT64_MAX - 1, "top");
    expect(map, UINT64_MAX, NULL);
    expect(map, 0x2000, "tabs  and blanks ");
    expect(map, 0x3000, "bytes \377\300");
    perfmap_free(map);
    perfmap_free(NULL);
}

static void test_bad_lines(void **state)
{
    (void)state;
    struct perfmap *map = map_of("\n"
                                 "hello\n"
                                 "1000\n"
                                 "1000 10\n"
                                 "1000 10 \n"
                                 "1000 0 empty\n"
                                 "1000 zz name\n"
                                 "0x 10 name\n"
                                 "-1000 10 name\n"
                                 "11112222333344445 10 name\n"
                                 "ffffffffffffff00 101 wraps\n"
                                 "1000 10name\n"
                                 "4000 10 good\n");
    assert_int_equal(perfmap_lines(map), 1);
    assert_int_equal(perfmap_skipped(map), 12);
    expect(map, 0x1000, NULL);
    expect(map, 0x4000, "good");
    perfmap_free(map);
}

static void test_later_line_wins(void **state)
{
    (void)state;
    struct perfmap *map = map_of("1000 100 old\n"
                                 "1040 20 middle\n"
                                 "10f0 20 tail\n"
                                 "1000 8 head\n");
    expect(map, 0x1007, "head");
    expect(map, 0x1008, "old");
    expect(map, 0x103f, "old");
    expect(map, 0x1040, "middle");
    expect(map, 0x105f, "middle");
    expect(map, 0x1060, "old");
    expect(map, 0x10f0, "tail");
    expect(map, 0x110f, "tail");
    expect(map, 0x1110, NULL);
    add_guarded(map, "0 2000 all\n", 11);
    expect(map, 0x1040, "all");
    expect(map, 0x1fff, "all");
    add_guarded(map, "1040 1 one\n", 11);
    expect(map, 0x103f, "all");
    expect(map, 0x1040, "one");
    expect(map, 0x1041, "all");
    perfmap_free(map);
}

static void test_half_lines(void **state)
{
    (void)state;
    static const char text[] = "1000 10 jit_one\n2000 10 jit_two\n3000 10 jit_three";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        struct perfmap *map = perfmap_new();
        add_guarded(map, text, cut);
        expect(map, 0x1000, cut >= 16 ? "jit_one" : NULL);
        expect(map, 0x2000, cut >= 32 ? "jit_two" : NULL);
        add_guarded(map, text + cut, sizeof(text) - 1 - cut);
        expect(map, 0x1000, "jit_one");
        expect(map, 0x2000, "jit_two");
        expect(map, 0x3000, NULL);
        add_guarded(map, "\n", 1);
        expect(map, 0x3000, "jit_three");
        assert_int_equal(perfmap_skipped(map), 0);
        perfmap_free(map);
    }
    struct perfmap *map = perfmap_new();
    for (const char *p = text; *p; p++)
        add_guarded(map, p, 1);
    assert_int_equal(perfmap_lines(map), 2);
    perfmap_free(map);
}

static void test_long_names(void **state)
{
    (void)state;
    char *text = malloc(100000);
    memset(text, 'n', 100000);
    memcpy(text, "1000 10 ", 8);
    text[99999] = '\n';
    for (size_t piece = 1000; piece <= 100000; piece *= 10) {
        struct perfmap *map = perfmap_new();
        for (size_t at = 0; at < 100000; at += piece)
            add_guarded(map, text + at, piece);
        struct perfmap_entry entry;
        assert_true(perfmap_find(map, 0x1000, &entry));
        assert_int_equal(strlen(entry.name), 4096);
        perfmap_free(map);
    }
    free(text);
}

static void test_random_against_bytes(void **state)
{
    (void)state;
    enum { SPACE = 256, LINES = 60 };
    struct rng rng = {.state = 3};
    for (size_t turn = 0; turn < 100; turn++) {
        int owner[SPACE + 64];
        for (size_t i = 0; i < SPACE + 64; i++)
            owner[i] = -1;
        struct perfmap *map = perfmap_new();
        for (int line = 0; line < LINES; line++) {
            uint64_t start = rng_below(&rng, SPACE);
            uint64_t bytes = 1 + rng_below(&rng, 64);
            for (uint64_t i = start; i < start + bytes; i++)
                owner[i] = line;
            char text[64];
            int size = snprintf(text, sizeof(text), "%lx %lx f%d\n", (unsigned long)start, (unsigned long)bytes, line);
            add_guarded(map, text, (size_t)size);
            if (line % 20 != 19)
                continue;
            for (uint64_t i = 0; i < SPACE + 64; i++) {
                snprintf(text, sizeof(text), "f%d", owner[i]);
                expect(map, i, owner[i] < 0 ? NULL : text);
            }
        }
        perfmap_free(map);
    }
}

static void test_read_grows(void **state)
{
    (void)state;
    int fd = memfd_create("map", MFD_CLOEXEC);
    struct perfmap *map = perfmap_new();
    assert_int_equal(perfmap_read(map, fd), 0);
    expect(map, 0x1000, NULL);
    assert_int_equal(fileio_write(fd, "10", 2), 0);
    assert_int_equal(perfmap_read(map, fd), 0);
    expect(map, 0x1000, NULL);
    assert_int_equal(fileio_write(fd, "00 10 jit_one\n2000 10 jit", 25), 0);
    assert_int_equal(perfmap_read(map, fd), 0);
    expect(map, 0x1000, "jit_one");
    expect(map, 0x2000, NULL);
    assert_int_equal(ftruncate(fd, 5), 0);
    assert_int_equal(perfmap_read(map, fd), 0);
    expect(map, 0x1000, "jit_one");
    assert_int_equal(perfmap_lines(map), 1);
    close(fd);
    assert_int_equal(perfmap_read(map, fd), -EBADF);
    perfmap_free(map);
}

static void test_open_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_perfmap.XXXXXX";
    assert_non_null(mkdtemp(dir));
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dirfd >= 0);
    int made = openat(dirfd, "map", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(made >= 0);
    close(made);
    assert_int_equal(symlinkat("map", dirfd, "link"), 0);
    assert_int_equal(symlinkat("/dev/zero", dirfd, "device"), 0);
    assert_int_equal(mkfifoat(dirfd, "fifo", 0600), 0);

    int fd = perfmap_open_file(dirfd, "map", getuid());
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(perfmap_open_file(dirfd, "missing", getuid()), -ENOENT);
    assert_int_equal(perfmap_open_file(dirfd, "link", getuid()), -ELOOP);
    assert_int_equal(perfmap_open_file(dirfd, "device", getuid()), -ELOOP);
    assert_int_equal(perfmap_open_file(dirfd, "fifo", getuid()), -EINVAL);
    assert_int_equal(perfmap_open_file(dirfd, ".", getuid()), -EINVAL);
    assert_int_equal(perfmap_open_file(AT_FDCWD, "/dev/null", getuid()), -EINVAL);
    if (getuid() == 0) {
        /* Owned by root: good for everybody. Owned by somebody else: for nobody but him. */
        fd = perfmap_open_file(dirfd, "map", 12345);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(fchownat(dirfd, "map", 54321, (gid_t)-1, 0), 0);
        assert_int_equal(perfmap_open_file(dirfd, "map", 12345), -EPERM);
        fd = perfmap_open_file(dirfd, "map", 54321);
        assert_true(fd >= 0);
        close(fd);
    } else {
        assert_int_equal(perfmap_open_file(dirfd, "map", getuid() + 1), -EPERM);
    }
    static const char *const names[] = {"map", "link", "device", "fifo"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(unlinkat(dirfd, names[i], 0), 0);
    close(dirfd);
    assert_int_equal(rmdir(dir), 0);
}

static double cpu_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The map of a long-lived runtime: 3,000,000 lines, 150 MB, a third of them in memory that was used before. */
static void test_huge(void **state)
{
    (void)state;
    enum { LINES = 3000000 };
    int fd = memfd_create("huge", MFD_CLOEXEC);
    char *text = malloc(64 * 1000);
    assert_non_null(text);
    struct rng rng = {.state = 5};
    for (size_t line = 0; line < LINES;) {
        size_t size = 0;
        for (size_t i = 0; i < 1000; i++, line++) {
            uint64_t slot = line % 3 == 2 ? rng_below(&rng, line) : line;
            size += (size_t)sprintf(text + size, "%lx %x Lpackage/Class%07zu;::method%06zu\n",
                                    0x7f0000000000 + (unsigned long)slot * 0x80, 0x70, line, line % 1000000);
        }
        assert_int_equal(fileio_write(fd, text, size), 0);
    }
    free(text);
    double start = cpu_now_s();
    struct perfmap *map = perfmap_new();
    assert_int_equal(perfmap_read(map, fd), 0);
    double read = cpu_now_s();
    struct perfmap_entry entry;
    assert_true(perfmap_find(map, 0x7f0000000000 + (LINES - 2) * 0x80UL, &entry));
    assert_string_equal(entry.name, "Lpackage/Class2999998;::method999998");
    double sorted = cpu_now_s();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    print_message("%zu lines: read %.2f s, sort %.2f s, peak %ld MB\n", perfmap_lines(map), read - start, sorted - read,
                  usage.ru_maxrss / 1024);
    assert_int_equal(perfmap_lines(map), LINES);
    assert_int_equal(perfmap_skipped(map), 0);
    perfmap_free(map);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_later_line_wins),
        cmocka_unit_test(test_half_lines),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_random_against_bytes),
        cmocka_unit_test(test_read_grows),
        cmocka_unit_test(test_open_file),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
