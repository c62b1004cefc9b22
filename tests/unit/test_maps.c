#include "cmocka_all.h"

#include "common/fileio.h"
#include "guarded.h"
#include "sampler/maps.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

/* One line that is a mapping and ends the file. */
static struct mapping parse_good(const struct guarded *text, size_t size)
{
    const char *cursor = (const char *)text->bytes;
    struct mapping mapping;
    assert_true(mapping_parse(&cursor, (const char *)text->bytes + size, &mapping));
    assert_ptr_equal(cursor, text->bytes + size);
    return mapping;
}

static void expect_path(const char *line, const char *raw, const char *path, bool anonymous)
{
    struct guarded text = guarded_new(line, strlen(line));
    struct mapping mapping = parse_good(&text, strlen(line));
    assert_int_equal(mapping.path_size, strlen(raw));
    assert_memory_equal(mapping.path, raw, strlen(raw));
    struct guarded buffer = guarded_new(NULL, strlen(path) + 1);
    mapping_path(&mapping, (char *)buffer.bytes, strlen(path) + 1);
    assert_string_equal(buffer.bytes, path);
    assert_int_equal(mapping_is_anonymous(&mapping), anonymous);
    guarded_free(&buffer);
    guarded_free(&text);
}

static void test_fields(void **state)
{
    (void)state;
    static const char line[] = "7f12a000-7f12b000 r-xp 00001000 fe:01 1234                      /usr/lib/libc.so.6\n";
    struct guarded text = guarded_new(line, sizeof(line) - 1);
    struct mapping mapping = parse_good(&text, sizeof(line) - 1);
    assert_int_equal(mapping.start_avma, 0x7f12a000);
    assert_int_equal(mapping.end_avma, 0x7f12b000);
    assert_int_equal(mapping.off, 0x1000);
    assert_int_equal(mapping.dev, makedev(0xfe, 1));
    assert_int_equal(mapping.inode, 1234);
    assert_true(mapping.readable);
    assert_true(mapping.executable);
    assert_int_equal(mapping.path_size, 18);
    guarded_free(&text);
}

static void test_permissions(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool readable;
        bool executable;
    } cases[] = {
        {"1000-2000 rw-p 00000000 00:00 0 \n", true, false},
        {"1000-2000 ---p 00000000 00:00 0 \n", false, false},
        {"1000-2000 --xp 00000000 00:00 0 \n", false, true},
        {"1000-2000 rwxs 00000000 00:00 0 \n", true, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded text = guarded_new(cases[i].line, strlen(cases[i].line));
        struct mapping mapping = parse_good(&text, strlen(cases[i].line));
        assert_int_equal(mapping.readable, cases[i].readable);
        assert_int_equal(mapping.executable, cases[i].executable);
        guarded_free(&text);
    }
}

static void test_paths(void **state)
{
    (void)state;
    expect_path("1000-2000 rw-p 00000000 00:00 0 \n", "", "", true);
    expect_path("1000-2000 rw-p 00000000 00:00 0\n", "", "", true);
    expect_path("1000-2000 rw-p 00000000 00:00 0", "", "", true);
    expect_path("1000-2000 r-xp 00000000 00:00 0   [vdso]\n", "[vdso]", "[vdso]", true);
    expect_path("1000-2000 rw-p 00000000 00:00 0   [heap]\n", "[heap]", "[heap]", true);
    expect_path("1000-2000 rw-p 00000000 00:00 0   [anon:jit code]\n", "[anon:jit code]", "[anon:jit code]", true);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/a b/c  d.so\n", "/opt/a b/c  d.so", "/opt/a b/c  d.so", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/a\\012b\n", "/opt/a\\012b", "/opt/a\nb", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/\\012\\012\n", "/opt/\\012\\012", "/opt/\n\n", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/\\01", "/opt/\\01", "/opt/\\01", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/\\040\\0123", "/opt/\\040\\0123", "/opt/\\040\n3", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/x (deleted)\n", "/opt/x (deleted)", "/opt/x", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/x (deleted) y\n", "/opt/x (deleted) y", "/opt/x (deleted) y", false);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/x (deleted) (deleted)\n", "/opt/x (deleted) (deleted)",
                "/opt/x (deleted)", false);
    expect_path("1000-2000 r-xp 0 00:01 7    /memfd:code (deleted)\n", "/memfd:code (deleted)", "/memfd:code", false);
    expect_path("1000-2000 rw-s 0 00:01 7    /dev/zero (deleted)\n", "/dev/zero (deleted)", "/dev/zero", true);
    expect_path("1000-2000 rw-s 0 00:01 7    /SYSV00000000 (deleted)\n", "/SYSV00000000 (deleted)", "/SYSV00000000",
                true);
    expect_path("1000-2000 rw-p 0 00:0e 7    //anon\n", "//anon", "//anon", true);
    expect_path("1000-2000 r-xp 0 fe:00 7    /opt/\xff\xfe\n", "/opt/\xff\xfe", "/opt/\xff\xfe", false);
}

static void test_path_is_cut(void **state)
{
    (void)state;
    static const char line[] = "1000-2000 r-xp 0 fe:00 7 /ab\\012cd (deleted)";
    static const char whole[] = "/ab\ncd";
    struct guarded text = guarded_new(line, sizeof(line) - 1);
    struct mapping mapping = parse_good(&text, sizeof(line) - 1);
    for (size_t size = 1; size <= sizeof(whole); size++) {
        struct guarded buffer = guarded_new(NULL, size);
        mapping_path(&mapping, (char *)buffer.bytes, size);
        assert_int_equal(strlen((char *)buffer.bytes), size - 1);
        assert_memory_equal(buffer.bytes, whole, size - 1);
        guarded_free(&buffer);
    }
    guarded_free(&text);
}

static void test_huge_numbers(void **state)
{
    (void)state;
    static const char line[] = "0-ffffffffffffffff r-xp fffffffffffffffe ffffffff:ffffffff 18446744073709551615 /x\n";
    struct guarded text = guarded_new(line, sizeof(line) - 1);
    struct mapping mapping = parse_good(&text, sizeof(line) - 1);
    assert_int_equal(mapping.start_avma, 0);
    assert_true(mapping.end_avma == UINT64_MAX);
    assert_true(mapping.off == UINT64_MAX - 1);
    assert_true(mapping.inode == UINT64_MAX);
    guarded_free(&text);
    /* vsyscall, at the end of the address space */
    expect_path("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n", "[vsyscall]", "[vsyscall]",
                true);
}

static void test_garbage_is_skipped(void **state)
{
    (void)state;
    static const char lines[] = "\n"
                                "garbage\n"
                                "1000-2000\n"
                                "1000 2000 r-xp 0 fe:00 7 /x\n"
                                "2000-1000 r-xp 0 fe:00 7 /x\n"
                                "1000-1000 r-xp 0 fe:00 7 /x\n"
                                "-1000 r-xp 0 fe:00 7 /x\n"
                                "10000000000000000-20000000000000000 r-xp 0 fe:00 7 /x\n"
                                "1000-2000 r-xp 10000000000000000 fe:00 7 /x\n"
                                "1000-2000 r-xp 0 fe:00 18446744073709551616 /x\n"
                                "1000-2000 r-xp 0 fe00 7 /x\n"
                                "1000-2000 r-xp 0 fe:00 x /x\n"
                                "1000-2000 r-x\n"
                                "1000-2000 r-xp0 fe:00 7 /x\n"
                                "3000-4000 r-xp 0 fe:00 7 /good\n"
                                "5000-6000 r-xp 0 fe:00 8 /last";
    struct guarded text = guarded_new(lines, sizeof(lines) - 1);
    const char *cursor = (const char *)text.bytes;
    const char *end = cursor + sizeof(lines) - 1;
    size_t good = 0;
    size_t bad = 0;
    while (cursor < end) {
        const char *before = cursor;
        struct mapping mapping = {.inode = 4711};
        if (mapping_parse(&cursor, end, &mapping)) {
            good++;
            assert_int_equal(mapping.start_avma, good == 1 ? 0x3000 : 0x5000);
            assert_int_equal(mapping.path_size, 5);
        } else {
            bad++;
            assert_int_equal(mapping.inode, 4711);
        }
        assert_true(cursor > before);
    }
    assert_int_equal(good, 2);
    assert_int_equal(bad, 14);
    struct mapping mapping;
    assert_false(mapping_parse(&cursor, end, &mapping));
    assert_ptr_equal(cursor, end);
    guarded_free(&text);
}

static void test_truncated(void **state)
{
    (void)state;
    static const char line[] = "7f12a000-7f12b000 r-xp 00001000 fe:01 1234 /usr/lib/libc.so.6";
    size_t inode = (size_t)(strstr(line, "1234") - line);
    for (size_t size = 0; size < sizeof(line); size++) {
        struct guarded text = guarded_new(line, size);
        const char *cursor = (const char *)text.bytes;
        const char *end = cursor + size;
        struct mapping mapping;
        assert_int_equal(mapping_parse(&cursor, end, &mapping), size > inode);
        assert_ptr_equal(cursor, end);
        if (size > inode)
            assert_true(mapping.path + mapping.path_size == end);
        guarded_free(&text);
    }
}

static void test_own_maps(void **state)
{
    (void)state;
    autoclose int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char *text;
    size_t size;
    assert_int_equal(fileio_read_all(fd, 1 << 24, &text, &size), 0);
    const char *cursor = text;
    uint64_t before = 0;
    bool found = false;
    while (cursor < text + size) {
        struct mapping mapping;
        assert_true(mapping_parse(&cursor, text + size, &mapping));
        assert_true(mapping.start_avma >= before);
        before = mapping.end_avma;
        uint64_t here = (uint64_t)(uintptr_t)test_own_maps;
        if (mapping.start_avma <= here && here < mapping.end_avma) {
            found = true;
            assert_true(mapping.readable && mapping.executable);
            char path[4096];
            mapping_path(&mapping, path, sizeof(path));
            assert_non_null(strstr(path, "test_maps"));
            assert_false(mapping_is_anonymous(&mapping));
        }
    }
    assert_true(found);
    free(text);
}

static void expect_readings(const char *raw, const char *const *readings, unsigned count)
{
    struct guarded text = guarded_new(raw, strlen(raw));
    struct mapping mapping = {.path = (const char *)text.bytes, .path_size = strlen(raw)};
    char buffer[64];
    for (unsigned i = 0; i < count; i++) {
        assert_true(mapping_path_reading(&mapping, i, buffer, sizeof(buffer)));
        assert_string_equal(buffer, readings[i]);
    }
    assert_false(mapping_path_reading(&mapping, count, buffer, sizeof(buffer)));
    guarded_free(&text);
}

static void test_readings_of_a_path(void **state)
{
    (void)state;
    expect_readings("/a b", (const char *const[]){"/a b"}, 1);
    expect_readings("", (const char *const[]){""}, 1);
    expect_readings("/a (deleted)", (const char *const[]){"/a (deleted)", "/a"}, 2);
    expect_readings("/a\\012b", (const char *const[]){"/a\nb", "/a\\012b"}, 2);
    expect_readings("/\\012 (deleted)", (const char *const[]){"/\n (deleted)", "/\n", "/\\012 (deleted)", "/\\012"}, 4);
}

static void test_base(void **state)
{
    (void)state;
    static const char text[] = "1000-2000 r--p 00000000 fe:01 7 /a\n"
                               "nonsense\n"
                               "2000-3000 r-xp 00000000 00:00 0\n"
                               "3000-4000 r-xp 00002000 fe:01 7 /a\n"
                               "4000-5000 r--p 00000000 fe:02 7 /b\n"
                               "5000-6000 r-xp 00002000 fe:01 8 /c\n"
                               "6000-7000 r--p 00000000 fe:01 7 /a\n"
                               "7000-8000 r-xp 00001000 fe:01 7 /a";
    struct guarded bytes = guarded_new(text, sizeof(text) - 1);
    struct mapping *list;
    size_t count;
    assert_int_equal(mappings_parse((const char *)bytes.bytes, sizeof(text) - 1, &list, &count), 0);
    assert_int_equal(count, 7);
    assert_ptr_equal(mappings_base(list, 0), &list[0]);
    assert_ptr_equal(mappings_base(list, 2), &list[0]);
    assert_ptr_equal(mappings_base(list, 3), &list[3]);
    assert_null(mappings_base(list, 4));
    assert_ptr_equal(mappings_base(list, 6), &list[5]);
    assert_false(mapping_is_same_file(&list[2], &list[3]));
    free(list);
    guarded_free(&bytes);
    assert_int_equal(mappings_parse("", 0, &list, &count), 0);
    assert_int_equal(count, 0);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_path_is_cut),
        cmocka_unit_test(test_huge_numbers),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_own_maps),
        cmocka_unit_test(test_garbage_is_skipped),
        cmocka_unit_test(test_readings_of_a_path),
        cmocka_unit_test(test_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
