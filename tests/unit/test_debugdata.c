#include "cmocka_all.h"

#include "symbolize/debugdata.h"
#include "symbolize/symtab.h"

#include <fcntl.h>
#include <string.h>

#include "shell.h"

/* `mini.xz` is what a program's symbols become, `prog` the program without them. */
static int make_files(void **state)
{
    int error = make_directory(state);
    alarm(100);
    shell("strip -s -o prog %s/debugged; objcopy -S --keep-symbol=static_hot %s/debugged mini; xz mini", FIXTURES,
          FIXTURES);
    return error;
}

/* The content of the program's section, made by the command; NULL: none. */
static struct image *open_with(const char *command)
{
    struct image *image = NULL;
    struct image *debug = NULL;
    shell("{ %s; } >data; objcopy --add-section .gnu_debugdata=data prog with", command);
    assert_int_equal(image_open(open("with", O_RDONLY | O_CLOEXEC), "/with", &image), 0);
    assert_int_equal(debugdata_open(image, &debug), 0);
    image_free(image);
    return debug;
}

static void test_symbols(void **state)
{
    (void)state;
    struct image *debug = open_with("cat mini.xz");
    struct symtab *table = NULL;
    assert_non_null(debug);
    assert_int_equal(symtab_new(debug, &table), 0);
    assert_int_equal(symtab_count(table), 1);
    assert_true(symtab_has_locals(table));
    symtab_free(table);
    image_free(debug);
}

static void test_none(void **state)
{
    (void)state;
    struct image *image = NULL;
    struct image *debug = NULL;
    assert_int_equal(image_open(open("prog", O_RDONLY | O_CLOEXEC), "/prog", &image), 0);
    assert_int_equal(debugdata_open(image, &debug), 0);
    assert_null(debug);
    image_free(image);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "head -c 1 mini.xz",
        "head -c 20 mini.xz",
        "head -c 600 mini.xz",
        "head -c -1 mini.xz",
        "tail -c +2 mini.xz",
        "echo no xz",
        "head -c 300 mini.xz; echo wrong; tail -c +306 mini.xz",
        "xz </dev/null",
        "xz -dc mini.xz",
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct image *debug = open_with(commands[i]);
        if (debug)
            fail_msg("%s", commands[i]);
    }
}

static void test_content_is_no_elf(void **state)
{
    (void)state;
    struct image *debug = open_with("echo no ELF file | xz");
    assert_non_null(debug);
    assert_int_equal(image_kind(debug), IMAGE_NOT_ELF);
    image_free(debug);
}

/* 40 KiB that become 300 MiB. */
static void test_bomb(void **state)
{
    (void)state;
    assert_null(open_with("head -c 300M /dev/zero | xz -1"));
}

/* A dictionary that wants more memory than there is for one. */
static void test_large_dictionary(void **state)
{
    (void)state;
    assert_null(open_with("echo x | xz --lzma2=dict=1GiB,mode=fast,mf=hc3,nice=4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symbols),           cmocka_unit_test(test_none), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_content_is_no_elf), cmocka_unit_test(test_bomb), cmocka_unit_test(test_large_dictionary),
    };
    return cmocka_run_group_tests(tests, make_files, remove_directory) ? 1 : 0;
}
