#include "cmocka_all.h"

#include "symbolize/symbolize.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "shell.h"

/*
 * `prog` is plain.c, stripped and with a link to prog.debug; `own.debug` its debug file. `wrong.debug` is that of
 * another build, in which the same code has other names.
 */
static int make_files(void **state)
{
    (void)state;
    alarm(60); /* nothing hangs */
    shell("rm -rf * .debug");
    shell("objcopy --only-keep-debug %s/debugged own.debug", FIXTURES);
    shell("objcopy --only-keep-debug %s/debugged_wrong wrong.debug", FIXTURES);
    shell("cp own.debug prog.debug; strip -s -o prog %s/debugged; objcopy --add-gnu-debuglink=prog.debug prog; "
          "rm prog.debug",
          FIXTURES);
    return 0;
}

static void count_warning(void *context, const char *text)
{
    assert_non_null(strstr(text, "another build"));
    assert_null(strchr(text, '\n'));
    ++*(size_t *)context;
}

struct names {
    bool right;
    bool wrong;
};

static int look_at_name(void *context, size_t index, const struct called *called, size_t count)
{
    struct names *names = context;
    (void)index;
    names->right = names->right || (count && strcmp(called[0].function, "static_hot") == 0);
    names->wrong = names->wrong || (count && strcmp(called[0].function, "wrong_name") == 0);
    return 0;
}

/* Has `prog` the names of its debug file? Those of another are never there. */
static bool is_named(const char *debug_directory, size_t warnings)
{
    char path[128];
    size_t warned = 0;
    struct names names = {0};
    struct image *image = NULL;
    struct image_section text;
    struct symbolizer_options options = {
        .inlines = true, .debug_directory = debug_directory, .warn = count_warning, .context = &warned};
    struct symbolizer *symbolizer = symbolizer_new(&options);
    snprintf(path, sizeof(path), "%s/prog", directory);
    assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image), 0);
    assert_true(image_find_section(image, ".text", &text));
    uint64_t *offs = calloc(text.bytes, sizeof(*offs));
    assert_non_null(offs);
    for (size_t i = 0; i < text.bytes; i++)
        offs[i] = text.off + i;
    assert_int_equal(symbolizer_resolve(symbolizer, image, offs, text.bytes, look_at_name, &names), 0);
    free(offs);
    symbolizer_free(symbolizer);
    image_free(image);
    assert_false(names.wrong);
    assert_int_equal(warned, warnings);
    return names.right;
}

static void test_places(void **state)
{
    (void)state;
    char debug[80];
    snprintf(debug, sizeof(debug), "%s/debug", directory);
    assert_false(is_named(NULL, 0));
    shell("cp own.debug prog.debug");
    assert_true(is_named(NULL, 0));
    shell("mkdir .debug; mv prog.debug .debug");
    assert_true(is_named(NULL, 0));
    shell("mkdir -p debug%s; mv .debug/prog.debug debug%s", directory, directory);
    assert_false(is_named(NULL, 0));
    assert_true(is_named(debug, 0));
    /* A program outside /usr, whose debug files were packaged for /usr, and the other way round. */
    shell("mkdir -p debug/usr/tmp; mv debug%s debug/usr/tmp", directory);
    assert_true(is_named(debug, 0));
}

/* Puts a file where the build-id of `prog` says. */
static void put_by_build_id(const char *file)
{
    shell("id=$(readelf -nW prog | sed -n 's/.*Build ID: //p'); to=debug/.build-id/$(echo $id | cut -c1-2); mkdir -p "
          "$to; "
          "cp %s $to/$(echo $id | cut -c3-).debug",
          file);
}

static void test_build_id(void **state)
{
    (void)state;
    char debug[80];
    snprintf(debug, sizeof(debug), "%s/debug", directory);
    put_by_build_id("own.debug");
    assert_true(is_named(debug, 0));
    put_by_build_id("wrong.debug");
    assert_false(is_named(debug, 1));
    /* The next place may have the right one. */
    shell("cp own.debug prog.debug");
    assert_true(is_named(debug, 1));
    /* The program itself is no debug file. */
    put_by_build_id("prog");
    shell("rm prog.debug; cd debug/.build-id/*; ln -f ../../../prog *");
    assert_false(is_named(debug, 0));
}

static void test_another_build(void **state)
{
    (void)state;
    shell("cp wrong.debug prog.debug");
    assert_false(is_named(NULL, 1));
}

/* The right build-id is not enough: the file has been changed since. */
static void test_wrong_crc(void **state)
{
    (void)state;
    shell("cp own.debug prog.debug; echo >>prog.debug");
    assert_false(is_named(NULL, 1));
}

/* The right CRC is not either: a link to the file of another build. */
static void test_wrong_link(void **state)
{
    (void)state;
    shell("cp wrong.debug prog.debug; objcopy --remove-section=.gnu_debuglink prog; "
          "objcopy --add-gnu-debuglink=prog.debug prog");
    assert_false(is_named(NULL, 1));
}

/* Then the CRC alone decides. */
static void test_no_build_id(void **state)
{
    (void)state;
    shell("strip -s -o prog %s/debugged_no_build_id; objcopy --only-keep-debug %s/debugged_no_build_id prog.debug; "
          "objcopy --add-gnu-debuglink=prog.debug prog",
          FIXTURES, FIXTURES);
    assert_true(is_named(NULL, 0));
    shell("objcopy --remove-section=.note.gnu.build-id wrong.debug prog.debug");
    assert_false(is_named(NULL, 1));
}

static void test_link_to_itself(void **state)
{
    (void)state;
    shell("mkdir sub; cp own.debug sub/prog; objcopy --remove-section=.gnu_debuglink prog; "
          "objcopy --add-gnu-debuglink=sub/prog prog");
    assert_false(is_named(NULL, 0));
    shell("mkdir .debug; cp sub/prog .debug/prog");
    assert_true(is_named(NULL, 0));
}

/* A name with a directory in it is none. */
static void test_link_with_a_slash(void **state)
{
    (void)state;
    shell("mkdir sub; cp own.debug sub/g.debug; cp own.debug prog.debug; sed -i 's|prog[.]debug|sub/.debug|' prog; "
          "cp own.debug sub/.debug");
    shell("grep -q sub/[.]debug prog");
    assert_false(is_named(NULL, 0));
}

static void test_no_regular_file(void **state)
{
    (void)state;
    shell("mkfifo prog.debug");
    assert_false(is_named(NULL, 0));
    shell("rm prog.debug; mkdir prog.debug");
    assert_false(is_named(NULL, 0));
    shell("rmdir prog.debug; ln -s /dev/zero prog.debug");
    assert_false(is_named(NULL, 0));
    shell("rm prog.debug; ln -s prog.debug prog.debug");
    assert_false(is_named(NULL, 0));
    shell("rm prog.debug; echo no ELF file >prog.debug");
    assert_false(is_named(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_places, make_files),
        cmocka_unit_test_setup(test_build_id, make_files),
        cmocka_unit_test_setup(test_another_build, make_files),
        cmocka_unit_test_setup(test_wrong_crc, make_files),
        cmocka_unit_test_setup(test_wrong_link, make_files),
        cmocka_unit_test_setup(test_no_build_id, make_files),
        cmocka_unit_test_setup(test_link_to_itself, make_files),
        cmocka_unit_test_setup(test_link_with_a_slash, make_files),
        cmocka_unit_test_setup(test_no_regular_file, make_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory) ? 1 : 0;
}
