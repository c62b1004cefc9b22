#include "cmocka_all.h"

#include "guarded.h"
#include "output/output.h"

#include <string.h>

static void test_by_name(void **state)
{
    (void)state;
    static const char *const reserved[] = {"pprof", "speedscope", "firefox", "trace", "html", "recording"};
    static const char *const unknown[] = {"", "Collapsed", "collapse", "collapsed ", ".collapsed", "folded", "json"};
    const struct output_format *format = output_find_format("collapsed");
    assert_non_null(format);
    assert_ptr_equal(format->write, collapsed_write);
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        format = output_find_format(reserved[i]);
        assert_non_null(format);
        assert_string_equal(format->name, reserved[i]);
    }
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_null(output_find_format(unknown[i]));
}

static void test_by_suffix(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *name; /* NULL: none */
    } cases[] = {
        {"out.collapsed", "collapsed"},
        {"/tmp/a.b/out.folded", "collapsed"},
        {"profile.pb.gz", "pprof"},
        {"x.speedscope.json", "speedscope"},
        {"x.firefox.json", "firefox"},
        {"x.trace.json", "trace"},
        {"x.html", "html"},
        {"x.sampler", "recording"},
        {"x.html.folded", "collapsed"},
        {"", NULL},
        {"-", NULL},
        {"x", NULL},
        {"x.json", NULL},
        {"x.gz", NULL},
        {"folded", NULL},
        {"x.folded.txt", NULL},
        {"x.folded/", NULL},
        {"x.FOLDED", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct guarded file = guarded_new(cases[i].file, strlen(cases[i].file) + 1);
        const struct output_format *format = output_find_suffix((const char *)file.bytes);
        if (cases[i].name) {
            assert_non_null(format);
            assert_string_equal(format->name, cases[i].name);
        } else {
            assert_null(format);
        }
        guarded_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_by_suffix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
