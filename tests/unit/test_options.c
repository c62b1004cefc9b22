#include "cmocka_all.h"

#include "common/clock.h"
#include "sampler/options.h"
#include "sampler/pinning.h"

#include <string.h>

enum { MAX_ARGS = 40 };

/* `argv` has room for MAX_ARGS + 1, and is what a program behind -- is borrowed from. */
static enum options_result parse(const char *const *words, struct options *options, struct strbuf *error, char **argv)
{
    int argc = 1;
    static char program[] = "sampler";
    argv[0] = program;
    while (words[argc - 1] && argc < MAX_ARGS) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    argv[argc] = NULL;
    return options_parse(argc, argv, options, error);
}

#define WORDS(...) ((const char *const[MAX_ARGS]){__VA_ARGS__, NULL})

/* Parses what has to be good; deinit it. */
static struct options good(const char *const *words, char **argv)
{
    struct options options;
    struct strbuf error = {0};
    if (parse(words, &options, &error, argv) != OPTIONS_RUN)
        fail_msg("%s %s: %s", words[0], words[1] ? words[1] : "", error.data ? error.data : "no message");
    assert_int_equal(error.size, 0);
    strbuf_deinit(&error);
    return options;
}

static void test_defaults(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("-p", "42"), argv);
    assert_int_equal(options.pid_count, 1);
    assert_int_equal(options.pids[0], 42);
    assert_null(options.program);
    assert_int_equal(options.thread_count, 0);
    assert_int_equal(options.rate_hz, 99);
    assert_int_equal(options.duration_ns, 0);
    assert_int_equal(options.mode, MODE_CPU);
    assert_int_equal(options.unwind, UNWIND_AUTO);
    assert_int_equal(options.max_depth, 4096);
    assert_true(options.jitter);
    assert_int_equal(options.events, EVENTS_AUTO);
    assert_int_equal(options.pin, PIN_AUTO);
    assert_null(options.stop_log_path);
    assert_false(options.children);
    assert_string_equal(options.format->name, "collapsed");
    assert_null(options.output_path);
    assert_false(options.output.value_ns);
    assert_false(options.output.show_threads);
    assert_false(options.output.show_states);
    assert_false(options.output.show_lines);
    assert_false(options.no_inlines);
    assert_false(options.debuginfod);
    assert_int_equal(options.max_stops, 100);
    assert_true(options.overhead == 0);
    assert_null(options.stats_path);
    assert_int_equal(options.verbosity, 0);
    options_deinit(&options);

    options = good(WORDS("--", "program"), argv);
    assert_int_equal(options.pid_count, 0);
    assert_ptr_equal(options.program, argv + 2);
    assert_true(options.children);
    options_deinit(&options);
}

static void expect_everything(const char *const *words)
{
    char *argv[MAX_ARGS + 1];
    struct options options = good(words, argv);
    assert_int_equal(options.pid_count, 1);
    assert_int_equal(options.pids[0], 2147483647);
    assert_int_equal(options.thread_count, 1);
    assert_string_equal(options.threads[0], "work*");
    assert_int_equal(options.rate_hz, 10000);
    assert_true(options.duration_ns == 500 * NS_PER_MS);
    assert_int_equal(options.mode, MODE_WALL);
    assert_int_equal(options.unwind, UNWIND_FP);
    assert_int_equal(options.max_depth, 7);
    assert_false(options.jitter);
    assert_false(options.bpf);
    assert_int_equal(options.events, EVENTS_PERF_THREADS);
    assert_int_equal(options.pin, 3);
    assert_string_equal(options.stop_log_path, "stops");
    assert_true(options.children);
    assert_string_equal(options.format->name, "collapsed");
    assert_string_equal(options.output_path, "out.html");
    assert_true(options.output.value_ns);
    assert_true(options.output.show_threads);
    assert_true(options.output.show_states);
    assert_true(options.output.show_lines);
    assert_true(options.no_inlines);
    assert_true(options.debuginfod);
    assert_int_equal(options.max_stops, 77);
    assert_true(options.overhead > 0.01499 && options.overhead < 0.01501);
    assert_string_equal(options.stats_path, "stats.json");
    assert_int_equal(options.verbosity, 1);
    options_deinit(&options);
}

static void test_everything(void **state)
{
    (void)state;
    expect_everything(WORDS("--pid=2147483647", "--thread=work*", "--rate=10000", "--duration=0.5", "--mode=wall",
                            "--unwind=fp", "--max-depth=7", "--jitter=off", "--bpf=off", "--events=perf-threads",
                            "--pin=3", "--stop-log=stops", "--children", "--format=collapsed", "--output=out.html",
                            "--value=ns", "--threads", "--states", "--lines", "--no-inlines", "--debuginfod",
                            "--max-stops=77", "--overhead=1.5%", "--stats=stats.json", "--verbose"));
    expect_everything(WORDS("-p2147483647", "-twork*", "-r10000", "-d.5s", "-mwall", "-ufp", "--max-depth", "7",
                            "--jitter", "off", "--bpf", "off", "--events", "perf-threads", "--pin", "3", "--stop-log",
                            "stops", "--children", "-fcollapsed", "-oout.html", "--value", "ns", "--threads",
                            "--states", "--lines", "--no-inlines", "--debuginfod", "--max-stops", "77", "--overhead",
                            "1.5", "--stats", "stats.json", "-v"));
}

static void test_pids(void **state)
{
    (void)state;
    static const struct {
        const char *words[8];
        pid_t pids[6];
    } cases[] = {
        {{"-p", "1,2", "-p", "3"}, {1, 2, 3}},
        {{"-p", "3", "--pid", "2", "--pid=1"}, {3, 2, 1}},
        {{"-p1,1,2,1", "-p", "2"}, {1, 2}},
        {{"-p", "0000000000000000000012"}, {12}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options = good(cases[i].words, argv);
        size_t count = 0;
        while (cases[i].pids[count])
            count++;
        assert_int_equal(options.pid_count, count);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(options.pids[k], cases[i].pids[k]);
        options_deinit(&options);
    }
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {
        {"10", 10 * NS_PER_SEC},          {"0.5", 500 * NS_PER_MS},      {"30s", 30 * NS_PER_SEC},
        {"5m", 300 * NS_PER_SEC},         {"1.5m", 90 * NS_PER_SEC},     {"0.25s", 250 * NS_PER_MS},
        {".5", 500 * NS_PER_MS},          {"2.", 2 * NS_PER_SEC},        {"0.000000001", 1},
        {"1.0000000019", NS_PER_SEC + 1}, {"86400", 86400 * NS_PER_SEC}, {"525600m", 525600 * 60 * NS_PER_SEC},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options = good(WORDS("-p1", "-d", cases[i].text), argv);
        assert_true(options.duration_ns == cases[i].ns);
        options_deinit(&options);
    }
}

static void test_words(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("-p1", "-mwall", "-mcpu", "-uauto", "-udwarf", "--jitter=off", "--jitter=on",
                                        "--pin=auto", "--pin=off", "--value=ns", "--value=samples", "-r1",
                                        "--max-depth=1", "-t", "1", "-t", "[ab]?", "--thread=9"),
                                  argv);
    assert_int_equal(options.mode, MODE_CPU);
    assert_int_equal(options.unwind, UNWIND_DWARF);
    assert_true(options.jitter);
    assert_false(options.output.value_ns);
    assert_int_equal(options.rate_hz, 1);
    assert_int_equal(options.max_depth, 1);
    assert_int_equal(options.thread_count, 3);
    assert_string_equal(options.threads[0], "1");
    assert_string_equal(options.threads[1], "[ab]?");
    assert_string_equal(options.threads[2], "9");
    options_deinit(&options);
}

static void test_children(void **state)
{
    (void)state;
    static const struct {
        const char *words[6];
        bool children;
    } cases[] = {
        {{"-p1"}, false},    {{"--children", "-p1"}, true},         {{"--children", "--no-children", "-p1"}, false},
        {{"--", "x"}, true}, {{"--no-children", "--", "x"}, false}, {{"--no-children", "--children", "--", "x"}, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options = good(cases[i].words, argv);
        assert_int_equal(options.children, cases[i].children);
        options_deinit(&options);
    }
}

static void test_helper(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("--", "true"), argv);
    assert_false(options.helper);
    options_deinit(&options);
    options = good(WORDS("--helper", "--helper-timer", "process", "--helper-loads=call", "--", "true"), argv);
    assert_true(options.helper);
    assert_true(options.helper_timer_process);
    assert_int_equal(options.helper_loads, HELPER_LOADS_CALL);
    assert_false(options.children); /* children are followed from outside only */
    options_deinit(&options);
    options = good(WORDS("--helper", "--helper-timer", "thread", "--helper-loads=instruction", "-p1"), argv);
    assert_false(options.helper_timer_process);
    assert_int_equal(options.helper_loads, HELPER_LOADS_INSTRUCTION);
    options_deinit(&options);
}

static void test_verbosity(void **state)
{
    (void)state;
    static const struct {
        const char *words[5];
        int verbosity;
    } cases[] = {
        {{"-p1", "-q"}, -1}, {{"-p1", "-v"}, 1},    {{"-p1", "-vv"}, 2},      {{"-p1", "-v", "--verbose"}, 2},
        {{"-p1", "-qv"}, 1}, {{"-p1", "-vvq"}, -1}, {{"-p1", "--quiet"}, -1}, {{"-qp1"}, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options = good(cases[i].words, argv);
        assert_int_equal(options.verbosity, cases[i].verbosity);
        options_deinit(&options);
    }
}

static void test_program(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("-q", "--", "ls", "-p", "1", "--help", "--", "-r", "0", "report"), argv);
    assert_ptr_equal(options.program, argv + 3);
    static const char *const wanted[] = {"ls", "-p", "1", "--help", "--", "-r", "0", "report"};
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(options.program[i], wanted[i]);
    assert_null(options.program[8]);
    assert_int_equal(options.pid_count, 0);
    assert_int_equal(options.rate_hz, 99);
    options_deinit(&options);

    /* The names of our commands are programs like any other behind --; so is a second --. */
    options = good(WORDS("--", "report"), argv);
    assert_string_equal(options.program[0], "report");
    options_deinit(&options);
    options = good(WORDS("--", "--", "x"), argv);
    assert_string_equal(options.program[0], "--");
    options_deinit(&options);
    options = good(WORDS("-qv", "--", "x"), argv);
    assert_string_equal(options.program[0], "x");
    options_deinit(&options);
}

static void test_dashes_as_values(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("-p1", "-o", "--"), argv);
    assert_string_equal(options.output_path, "--");
    assert_null(options.program);
    options_deinit(&options);
    options = good(WORDS("-o", "--", "--", "x"), argv);
    assert_string_equal(options.output_path, "--");
    assert_string_equal(options.program[0], "x");
    options_deinit(&options);
    options = good(WORDS("-p1", "-o", "-"), argv);
    assert_string_equal(options.output_path, "-");
    options_deinit(&options);
    options = good(WORDS("-o--", "--stats", "--", "--", "x"), argv);
    assert_string_equal(options.stats_path, "--");
    assert_string_equal(options.program[0], "x");
    options_deinit(&options);
}

static void test_formats(void **state)
{
    (void)state;
    static const char *const cases[][6] = {
        {"-p1", "-o", "x"},
        {"-p1", "-o", "x.txt"},
        {"-p1", "-o", "x.folded"},
        {"-p1", "-o", "x.html", "-f", "collapsed"},
        {"-p1", "-f", "html", "-fcollapsed"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options = good(cases[i], argv);
        assert_string_equal(options.format->name, "collapsed");
        assert_non_null(options.format->write);
        options_deinit(&options);
    }
}

static void test_help_and_version(void **state)
{
    (void)state;
    static const struct {
        const char *words[4];
        enum options_result result;
    } cases[] = {
        {{"--help"}, OPTIONS_HELP},
        {{"-h"}, OPTIONS_HELP},
        {{"-p1", "--help"}, OPTIONS_HELP},
        {{"--version"}, OPTIONS_VERSION},
        {{"-q", "-h", "x"}, OPTIONS_HELP},
        {{"-p1", "--version"}, OPTIONS_VERSION},
        {{"--help", "--nonsense"}, OPTIONS_HELP},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options;
        struct strbuf error = {0};
        assert_int_equal(parse(cases[i].words, &options, &error, argv), cases[i].result);
        assert_int_equal(error.size, 0);
        options_deinit(&options);
        strbuf_deinit(&error);
    }
    static const char *const told[] = {
        "--pid",        "--thread",     "--rate",      "--duration",    "--mode",   "--unwind", "--max-depth",
        "--jitter",     "--children",   "--format",    "--no-children", "--output", "--value",  "--stats",
        "--threads",    "--quiet",      "--verbose",   "--version",     "--help",   "Usage:",   "--save-snapshots",
        "report",       "--bpf",        "--events",    "--stop-log",    "--pin",    "--states", "--lines",
        "--no-inlines", "--debuginfod", "--max-stops", "--overhead",
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        assert_non_null(strstr(options_help(), told[i]));
}

/* What is wrong, and a word that its message must have. */
static const struct {
    const char *words[8];
    const char *told;
} wrong[] = {
    {{NULL}, "-p"},
    {{"-q"}, "--"},
    {{"-r", "99"}, "-p"},
    /* neither an option nor a program */
    {{"ls"}, "ls"},
    {{"-p1", "ls"}, "ls"},
    {{"-p1", "ls", "--", "x"}, "ls"},
    {{"-"}, "'-'"},
    {{"report"}, "report"},
    {{"report", "-q"}, "report"},
    {{"report", ""}, "report"},
    {{"report", "a", "b"}, "'b'"},
    {{"report", "a", "--", "b"}, "'b'"},
    {{"report", "-p1", "a"}, "-p1"},
    {{"report", "a", "--rate", "9"}, "--rate"},
    {{"report", "--save-snapshots=b", "a"}, "--save-snapshots"},
    {{"report", "a", "--nonsense"}, "--nonsense"},
    {{"report", "a", "-u", "x"}, "--unwind"},
    {{"report", "a", "-f", "html"}, "html"},
    {{"report", "a", "--kernel"}, "--kernel"},
    {{"-q", "report", "a"}, "before"},
    {{"-p1", "--save-snapshots", "-"}, "--save-snapshots"},
    {{"-p1", "--stop-log", "-"}, "--stop-log"},
    {{"-p1", "--stop-log", ""}, "--stop-log"},
    {{"-p1", "--pin", "on"}, "--pin"},
    {{"-p1", "--max-stops", "0"}, "--max-stops"},
    {{"-p1", "--max-stops", "all"}, "--max-stops"},
    {{"-p1", "--overhead", "0"}, "--overhead"},
    {{"-p1", "--overhead", "101"}, "--overhead"},
    {{"-p1", "--overhead", "%"}, "--overhead"},
    {{"-p1", "--overhead", "1%%"}, "--overhead"},
    {{"-p1", "--overhead=-1"}, "--overhead"},
    {{"report", "a", "--max-stops", "9"}, "--max-stops"},
    {{"report", "a", "--overhead", "9"}, "--overhead"},
    {{"-p1", "--pin", "target"}, "--pin"},
    {{"-p1", "--pin", "-1"}, "--pin"},
    {{"-p1", "--pin", "1024"}, "--pin"},
    {{"-p1", "--pin", "1x"}, "--pin"},
    {{"-p1", "--save-snapshots="}, "--save-snapshots"},
    {{"-p1", "--save-snapshots"}, "--save-snapshots"},
    {{"dump", "-p1"}, "dump"},
    {{"top", "-p1"}, "top"},
    {{"diff", "a", "b"}, "diff"},
    {{"-p1", "compare"}, "compare"},
    {{"--"}, "program"},
    {{"-q", "--"}, "program"},
    {{"-p1", "--"}, "program"},
    {{"-p1", "--", "x"}, "exclude"},
    {{"-o", "--", "x"}, "x"},
    /* unknown options */
    {{"-p1", "--nonsense"}, "--nonsense"},
    {{"-p1", "--nonsense=1"}, "--nonsense"},
    {{"-p1", "-Z"}, "-Z"},
    {{"-p1", "-qZ"}, "-Z"},
    {{"-p1", "--quiet=1"}, "--quiet"},
    {{"-p1", "--threads=1"}, "--threads"},
    {{"-p1", "--children=yes"}, "--children"},
    {{"-p1", "--lines=1"}, "--lines"},
    {{"-p1", "--no-inlines=1"}, "--no-inlines"},
    {{"-p1", "--kernel"}, "--kernel"},
    {{"-p1", "--helper", "--children"}, "--children"},
    {{"-p1", "--helper", "--save-snapshots", "f"}, "--save-snapshots"},
    {{"-p1", "--stop-log", "f", "--helper"}, "--stop-log"},
    {{"-p1", "--helper", "--helper-timer", "both"}, "--helper-timer"},
    {{"-p1", "--helper", "--helper-loads", "never"}, "--helper-loads"},
    {{"-p1", "--v"}, "--v"},
    {{"-p1", "--\n"}, "unknown"},
    {{"-p1", "-\n"}, "unknown"},
    /* no value */
    {{"-p"}, "-p"},
    {{"--pid"}, "--pid"},
    {{"-p1", "-r"}, "-r"},
    {{"-p1", "--rate"}, "--rate"},
    {{"-p1", "--stats"}, "--stats"},
    {{"-p1", "-o"}, "-o"},
    /* bad values */
    {{"-p", ""}, "--pid"},
    {{"-p", "0"}, "--pid"},
    {{"-p", "-1"}, "--pid"},
    {{"-p", "+1"}, "--pid"},
    {{"-p", "x"}, "--pid"},
    {{"-p", "1x"}, "--pid"},
    {{"-p", "1,"}, "--pid"},
    {{"-p", ",1"}, "--pid"},
    {{"-p", "1,,2"}, "--pid"},
    {{"-p", "1, 2"}, "--pid"},
    {{"-p", "1 2"}, "--pid"},
    {{"-p", "2147483648"}, "--pid"},
    {{"-p", "4294967297"}, "--pid"},
    {{"-p", "18446744073709551617"}, "--pid"},
    {{"-p1", "-p", "2,0"}, "--pid"},
    {{"-p1", "-t", ""}, "--thread"},
    {{"-p1", "-r", "0"}, "--rate"},
    {{"-p1", "-r", "10001"}, "--rate"},
    {{"-p1", "-r", "-5"}, "--rate"},
    {{"-p1", "-r", "99.5"}, "--rate"},
    {{"-p1", "-r", "99Hz"}, "--rate"},
    {{"-p1", "-r", ""}, "--rate"},
    {{"-p1", "--rate="}, "--rate"},
    {{"-p1", "-r", "18446744073709551616"}, "--rate"},
    {{"-p1", "-r", "4294967395"}, "--rate"},
    {{"-p1", "-d", ""}, "--duration"},
    {{"-p1", "-d", "0"}, "--duration"},
    {{"-p1", "-d", "0.0"}, "--duration"},
    {{"-p1", "-d", "0.0000000001"}, "--duration"},
    {{"-p1", "-d", "-1"}, "--duration"},
    {{"-p1", "-d", "."}, "--duration"},
    {{"-p1", "-d", "s"}, "--duration"},
    {{"-p1", "-d", ".s"}, "--duration"},
    {{"-p1", "-d", "5h"}, "--duration"},
    {{"-p1", "-d", "5ms"}, "--duration"},
    {{"-p1", "-d", "5 s"}, "--duration"},
    {{"-p1", "-d", "1e3"}, "--duration"},
    {{"-p1", "-d", "1.2.3"}, "--duration"},
    {{"-p1", "-d", "inf"}, "--duration"},
    {{"-p1", "-d", "99999999999"}, "--duration"},
    {{"-p1", "-d", "307445735m"}, "--duration"}, /* 2^64 ns and a little: must not come out as 26 s */
    {{"-p1", "-d", "4294967295m"}, "--duration"},
    {{"-p1", "-d", "18446744073709551617"}, "--duration"},
    {{"-p1", "-m", "both"}, "--mode"},
    {{"-p1", "-m", ""}, "--mode"},
    {{"-p1", "-m", "CPU"}, "--mode"},
    {{"-p1", "-m", "a\nb"}, "--mode"},
    {{"-p1", "-u", "lbr"}, "--unwind"},
    {{"-p1", "--max-depth", "0"}, "--max-depth"},
    {{"-p1", "--max-depth", "1000001"}, "--max-depth"},
    {{"-p1", "--max-depth", "x"}, "--max-depth"},
    {{"-p1", "--jitter", "yes"}, "--jitter"},
    {{"-p1", "--bpf", "on"}, "--bpf"},
    {{"-p1", "--events", "ebpf"}, "--events"},
    {{"-p1", "--value", "ms"}, "--value"},
    {{"-p1", "-o", ""}, "--output"},
    {{"-p1", "--stats="}, "--stats"},
    /* formats */
    {{"-p1", "-f", "svg"}, "--format"},
    {{"-p1", "-f", ""}, "--format"},
    {{"-p1", "-f", "pprof"}, "pprof"},
    {{"-p1", "-f", "speedscope"}, "speedscope"},
    {{"-p1", "-f", "firefox"}, "firefox"},
    {{"-p1", "-f", "trace"}, "trace"},
    {{"-p1", "-f", "html"}, "html"},
    {{"-p1", "-f", "recording"}, "recording"},
    {{"-p1", "-o", "x.pb.gz"}, "pprof"},
    {{"-p1", "-o", "x.html"}, "html"},
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options;
        struct strbuf error = {0};
        enum options_result result = parse(wrong[i].words, &options, &error, argv);
        if (result != OPTIONS_WRONG || !error.size || strchr(error.data, '\n') || !strstr(error.data, wrong[i].told))
            fail_msg("case %zu (%s %s %s): result %d, '%s'", i, wrong[i].words[0] ? wrong[i].words[0] : "",
                     wrong[i].words[1] ? wrong[i].words[1] : "", wrong[i].words[2] ? wrong[i].words[2] : "", result,
                     error.data ? error.data : "");
        options_deinit(&options);
        strbuf_deinit(&error);
    }
}

static void test_report(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("report", "a.snap"), argv);
    assert_int_equal(options.command, COMMAND_REPORT);
    assert_string_equal(options.report_path, "a.snap");
    assert_false(options.unwind_given);
    assert_int_equal(options.max_depth, 0);
    assert_string_equal(options.format->name, "collapsed");
    options_deinit(&options);

    options =
        good(WORDS("report", "-o", "out", "a.snap", "-ufp", "--max-depth=3", "-t", "x*", "--threads", "-q"), argv);
    assert_string_equal(options.report_path, "a.snap");
    assert_string_equal(options.output_path, "out");
    assert_true(options.unwind_given);
    assert_int_equal(options.unwind, UNWIND_FP);
    assert_int_equal(options.max_depth, 3);
    assert_int_equal(options.thread_count, 1);
    assert_true(options.output.show_threads);
    options_deinit(&options);

    options = good(WORDS("report", "--value", "ns", "--stats", "s", "--", "-a"), argv);
    assert_string_equal(options.report_path, "-a");
    assert_true(options.output.value_ns);
    options_deinit(&options);

    options = good(WORDS("--save-snapshots", "s.snap", "--", "report", "x"), argv);
    assert_int_equal(options.command, COMMAND_SAMPLE);
    assert_string_equal(options.snapshots_path, "s.snap");
    options_deinit(&options);
}

static void test_wanted_threads(void **state)
{
    (void)state;
    struct options options = {0};
    assert_true(options_want_thread(&options, 7, "any"));
    const char *threads[] = {"42", "work*"};
    options.threads = threads;
    options.thread_count = 2;
    assert_true(options_want_thread(&options, 42, "any"));
    assert_true(options_want_thread(&options, 7, "worker"));
    assert_false(options_want_thread(&options, 7, "a worker"));
    assert_false(options_want_thread(&options, 4, "any"));
}

/* ---- compare ---- */

static void test_compare(void **state)
{
    (void)state;
    char *argv[MAX_ARGS + 1];
    struct options options = good(WORDS("compare", "-p", "42"), argv);
    assert_int_equal(options.command, COMMAND_COMPARE);
    assert_int_equal(options.pid_count, 1);
    assert_int_equal(options.pids[0], 42);
    assert_int_equal(options.rate_hz, 99);
    assert_int_equal(options.duration_ns, 20 * NS_PER_SEC);
    assert_int_equal(options.compare.window_ns, 0);
    assert_int_equal(options.mode, MODE_CPU);
    assert_true(options.bpf);
    assert_false(options.compare.with_perf);
    assert_false(options.compare.json);
    assert_null(options.compare.work_command);
    options_deinit(&options);

    options = good(WORDS("compare", "-d", "1m", "--window=0.5", "-m", "wall", "-u", "fp", "-r", "200", "--work",
                         "cat x", "--json", "-o", "file", "--bpf", "off", "-v", "--", "program", "-p", "--json"),
                   argv);
    assert_int_equal(options.duration_ns, 60 * NS_PER_SEC);
    assert_int_equal(options.compare.window_ns, NS_PER_SEC / 2);
    assert_int_equal(options.mode, MODE_WALL);
    assert_int_equal(options.unwind, UNWIND_FP);
    assert_int_equal(options.rate_hz, 200);
    assert_string_equal(options.compare.work_command, "cat x");
    assert_string_equal(options.output_path, "file");
    assert_true(options.compare.json);
    assert_false(options.bpf);
    assert_int_equal(options.verbosity, 1);
    assert_string_equal(options.program[0], "program");
    assert_string_equal(options.program[2], "--json");
    assert_null(options.program[3]);
    options_deinit(&options);

    options = good(WORDS("compare", "-p", "1", "--with-perf"), argv);
    assert_true(options.compare.with_perf);
    assert_false(options.compare.perf_by_fp);
    options_deinit(&options);
    options = good(WORDS("compare", "--with-perf=fp", "-p", "1"), argv);
    assert_true(options.compare.perf_by_fp);
    options_deinit(&options);
}

static void test_compare_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *words[8];
        const char *told;
    } cases[] = {
        {{"compare"}, "nothing to compare"},
        {{"compare", "--"}, "no program"},
        {{"compare", "-p", "1", "--", "x"}, "exclude"},
        {{"compare", "-p", "1,2"}, "one process"},
        {{"compare", "-p", "1", "x"}, "unexpected argument 'x'"},
        {{"compare", "-p", "x"}, "--pid"},
        {{"compare", "-p", "1", "--window", "0.1"}, "--window"},
        {{"compare", "-p", "1", "--window", "x"}, "--window"},
        {{"compare", "-p", "1", "-d", "3", "--window", "4"}, "longer than -d"},
        {{"compare", "-p", "1", "--work", ""}, "--work"},
        {{"compare", "-p", "1", "--bpf", "on"}, "--bpf"},
        {{"compare", "-p", "1", "--with-perf=lbr"}, "--with-perf"},
        {{"compare", "-p", "1", "-m", "wall", "--with-perf"}, "-m cpu"},
        {{"compare", "-p", "1", "--stats", "x"}, "unknown option '--stats'"},
        {{"compare", "-p", "1", "-t", "x"}, "unknown option '-t'"},
        {{"compare", "-p", "1", "--rate"}, "needs a value"},
        {{"-p", "1", "compare"}, "comes before its options"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[MAX_ARGS + 1];
        struct options options;
        struct strbuf error = {0};
        assert_int_equal(parse(cases[i].words, &options, &error, argv), OPTIONS_WRONG);
        assert_non_null(strstr(error.data, cases[i].told));
        strbuf_deinit(&error);
        options_deinit(&options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),        cmocka_unit_test(test_compare_wrong),
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_everything),
        cmocka_unit_test(test_pids),           cmocka_unit_test(test_durations),
        cmocka_unit_test(test_words),          cmocka_unit_test(test_children),
        cmocka_unit_test(test_helper),         cmocka_unit_test(test_verbosity),
        cmocka_unit_test(test_program),        cmocka_unit_test(test_dashes_as_values),
        cmocka_unit_test(test_formats),        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_wrong),          cmocka_unit_test(test_report),
        cmocka_unit_test(test_wanted_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
