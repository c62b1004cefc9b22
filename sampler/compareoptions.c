#include "sampler/compareoptions.h"

#include "common/clock.h"
#include "sampler/optionparse.h"

#include <getopt.h>
#include <string.h>

enum { OPT_WINDOW = 512, OPT_WITH_PERF, OPT_WORK, OPT_JSON, OPT_BPF, OPT_VERSION };

/* Start and end of an engine take some hundredths of a second each. */
#define WINDOW_NS_MIN (NS_PER_SEC / 5)

static const struct option long_options[] = {
    {"pid", required_argument, NULL, 'p'},
    {"rate", required_argument, NULL, 'r'},
    {"duration", required_argument, NULL, 'd'},
    {"mode", required_argument, NULL, 'm'},
    {"unwind", required_argument, NULL, 'u'},
    {"output", required_argument, NULL, 'o'},
    {"bpf", required_argument, NULL, OPT_BPF},
    {"window", required_argument, NULL, OPT_WINDOW},
    {"with-perf", optional_argument, NULL, OPT_WITH_PERF},
    {"work", required_argument, NULL, OPT_WORK},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static bool take(struct optionparse *parse, int option, const char *value)
{
    struct options *options = parse->options;
    switch (option) {
    case OPT_WINDOW:
        if (!optionparse_duration(value, &options->compare.window_ns) || options->compare.window_ns < WINDOW_NS_MIN)
            return optionparse_wrong(parse->error, "--window", value, "a time like 2 or 0.5, not below 0.2");
        return true;
    case OPT_WORK:
        if (!*value)
            return optionparse_wrong(parse->error, "--work", value, "a shell command");
        options->compare.work_command = value;
        return true;
    case OPT_WITH_PERF:
        if (value && strcmp(value, "dwarf") != 0 && strcmp(value, "fp") != 0)
            return optionparse_wrong(parse->error, "--with-perf", value, "dwarf or fp");
        options->compare.with_perf = true;
        options->compare.perf_by_fp = value && strcmp(value, "fp") == 0;
        return true;
    case OPT_JSON:
        options->compare.json = true;
        return true;
    case OPT_BPF:
        if (strcmp(value, "auto") != 0 && strcmp(value, "off") != 0)
            return optionparse_wrong(parse->error, "--bpf", value, "auto or off");
        options->bpf = strcmp(value, "auto") == 0;
        return true;
    default:
        return optionparse_take(parse, option, value);
    }
}

static bool check(struct optionparse *parse, int argc, char **argv, bool dashes)
{
    struct options *options = parse->options;
    if (!dashes && optind < argc)
        strbuf_addf(parse->error, "unexpected argument '%s': a program to launch goes behind --", argv[optind]);
    else if (dashes && optind >= argc)
        strbuf_adds(parse->error, "no program behind --");
    else if (dashes && options->pid_count)
        strbuf_adds(parse->error, "-p and -- exclude each other");
    else if (!dashes && !options->pid_count)
        strbuf_adds(parse->error, "nothing to compare: give -p PID or -- PROGRAM");
    else if (options->pid_count > 1)
        strbuf_adds(parse->error, "compare takes one process");
    else if (options->compare.window_ns > options->duration_ns)
        strbuf_adds(parse->error, "--window is longer than -d, which is the time of all windows together");
    else if (options->compare.with_perf && options->mode == MODE_WALL)
        strbuf_adds(parse->error, "--with-perf goes with -m cpu: perf samples CPU time only");
    if (dashes)
        options->program = argv + optind;
    return parse->error->size == 0;
}

enum options_result compareoptions_parse(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error)
{
    *ret_options = (struct options){
        .command = COMMAND_COMPARE, .rate_hz = 99, .duration_ns = 20 * NS_PER_SEC, .bpf = true, .unwind = UNWIND_AUTO};
    struct optionparse parse = {.options = ret_options, .error = ret_error, .children = -1};
    argc--;
    argv++;
    optind = 0;
    opterr = 0;
    for (;;) {
        int at = optind ? optind : 1;
        optopt = 0;
        int option = getopt_long(argc, argv, "+:p:r:d:m:u:o:qvh", long_options, NULL);
        switch (option) {
        case -1: {
            bool dashes = optind > 1 && optind > at && strcmp(argv[optind - 1], "--") == 0;
            return check(&parse, argc, argv, dashes) ? OPTIONS_RUN : OPTIONS_WRONG;
        }
        case 'h':
            return OPTIONS_HELP;
        case OPT_VERSION:
            return OPTIONS_VERSION;
        case '?':
        case ':':
            optionparse_tell_unknown(ret_error, option, argv[at]);
            return OPTIONS_WRONG;
        default:
            if (!take(&parse, option, optarg))
                return OPTIONS_WRONG;
        }
    }
}
