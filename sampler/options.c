#include "sampler/options.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/parse.h"
#include "sampler/compareoptions.h"
#include "sampler/optionparse.h"
#include "sampler/pinning.h"

#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: sampler [OPTION]... -p PID[,PID]...       sample running processes\n"
    "       sampler [OPTION]... -- PROGRAM [ARG]...   launch a program and sample it\n"
    "       sampler report [OPTION]... FILE           a profile from saved snapshots\n"
    "       sampler compare [OPTION]... -p PID        the same target from outside and from inside, side by side\n"
    "       sampler compare [OPTION]... -- PROGRAM [ARG]...\n"
    "\n"
    "Takes the stacks of a program's threads at regular ticks, from outside, and writes how often each was seen.\n"
    "Ctrl-C ends the sampling, releases the target and writes the profile.\n"
    "\n"
    "What to sample\n"
    "  -p, --pid PID[,PID]...   attach to these processes; may be repeated\n"
    "  -t, --thread TID|GLOB    only these threads, by id or by a shell pattern on the name; may be repeated\n"
    "      --children, --no-children\n"
    "                           follow forked and exec'ed processes (default: with a launched program, not with -p)\n"
    "How\n"
    "  -r, --rate HZ            sampling ticks a second, 1 to 10000 (default 99)\n"
    "  -d, --duration TIME      stop after 10, 0.5, 30s, 5m (default: Ctrl-C or the target's end)\n"
    "  -m, --mode cpu|wall      cpu: only time on a CPU; wall: every thread, running or blocked (default cpu)\n"
    "  -u, --unwind auto|fp|dwarf\n"
    "                           auto: by the unwind information of each frame's code, frame pointers where there is "
    "none;\n"
    "                           fp: frame pointers, unwind information where they cannot be believed;\n"
    "                           dwarf: unwind information only (default auto)\n"
    "      --max-depth N        keep the N innermost frames (default 4096)\n"
    "      --max-stops N        stop at most N threads at a tick, chosen at random; they count for the others too\n"
    "                           (default 100)\n"
    "      --overhead PERCENT   sample less often where needed, so that sampling takes no more than this of one CPU\n"
    "      --jitter on|off      randomise each tick inside its period (default on)\n"
    "      --bpf auto|off       threads are read by BPF instead of being stopped, where built and permitted (default "
    "auto)\n"
    "      --events auto|perf|perf-threads|proc\n"
    "                           how new threads, children and mappings are noticed: perf: by perf's records, of the "
    "whole\n"
    "                           machine or else of the target's threads; proc: by looking into /proc; auto: by records "
    "of\n"
    "                           the whole machine if allowed, which cost the target least, else proc (default auto)\n"
    "      --helper             sample from inside: a small library in the target, loaded with a launched program or\n"
    "                           into a running one, samples from a signal handler\n"
    "      --helper-timer thread|process\n"
    "                           a timer for each thread, or one for the whole process (default thread)\n"
    "      --helper-loads auto|instruction|call\n"
    "                           how the helper reads memory that may not be there: by an instruction that may fault, "
    "or\n"
    "                           by a system call (default auto)\n"
    "      --pin auto|off|CPU   where samples are taken: auto, off: where the scheduler puts the sampler; or on that\n"
    "                           CPU (default auto)\n"
    "What comes out\n"
    "  -f, --format NAME        collapsed (default: by the suffix of -o, else collapsed)\n"
    "  -o, --output FILE        write the profile there, - is standard output (the default)\n"
    "      --value samples|ns   what the number on a collapsed line counts (default samples)\n"
    "      --threads            root frame is \"name (tid)\" instead of \"name\"\n"
    "      --states             innermost frame is what the thread was doing: [running], [runnable], [epoll_wait], "
    "...\n"
    "      --lines              frames are \"function (file:line)\"\n"
    "      --no-inlines         do not show functions that the compiler has inlined (default: show, with _[i])\n"
    "      --debuginfod         fetch debug files that are not here from the servers in DEBUGINFOD_URLS\n"
    "      --stats FILE         write the run's counters there, as JSON\n"
    "      --save-snapshots FILE\n"
    "                           save registers, stacks, maps and JIT names there, for sampler report\n"
    "      --stop-log FILE      write there when each stop of a thread began and ended\n"
    "  -q, --quiet              only errors on standard error\n"
    "  -v, --verbose            more on standard error\n"
    "  -h, --help               this text\n"
    "      --version            the version\n"
    "sampler report takes -t, -u, --max-depth, -f, -o, --value, --threads, --states, --lines, --no-inlines, "
    "--debuginfod,\n"
    "--stats, -q and -v; -u and --max-depth are as they were in the run unless given. The files that ran have to be\n"
    "at their paths.\n"
    "sampler compare takes -p with one PID, -r, -d (of all windows together, default 20), -m, -u, --bpf, -o, -q, -v, "
    "and\n"
    "      --window TIME        length of a window (default 2, less where four of each kind would not fit into -d)\n"
    "      --with-perf[=dwarf|fp]\n"
    "                           a third column: perf record, where it is installed (cpu mode; default dwarf)\n"
    "      --work COMMAND       a shell command that prints how much the target has done, a number that grows; run at\n"
    "                           both ends of each window, with the target's number in SAMPLER_PID\n"
    "      --json               the table as a JSON object\n"
    "\n"
    "Exit status: the launched program's own (128+N when signal N killed it; 127 not found, 126 not executable);\n"
    "with -p 0 when a profile was written, 1 when not; 2 for a wrong command line.\n"
    "\n"
    "Example: sampler -d 10 -p 1234 | flamegraph.pl > flame.svg\n";

struct symbolizer_options options_naming(const struct options *options)
{
    const char *directory = getenv("SAMPLER_DEBUG_DIR");
    return (struct symbolizer_options){.inlines = !options->no_inlines,
                                       .lines = options->output.show_lines,
                                       .debuginfod = options->debuginfod,
                                       .debug_directory = directory && directory[0] == '/' ? directory : NULL};
}

const char *options_help(void)
{
    return help;
}

enum {
    OPT_MAX_DEPTH = 256,
    OPT_JITTER,
    OPT_BPF,
    OPT_EVENTS,
    OPT_PIN,
    OPT_CHILDREN,
    OPT_NO_CHILDREN,
    OPT_VALUE,
    OPT_MAX_STOPS,
    OPT_OVERHEAD,
    OPT_THREADS,
    OPT_STATES,
    OPT_LINES,
    OPT_NO_INLINES,
    OPT_DEBUGINFOD,
    OPT_STATS,
    OPT_SAVE_SNAPSHOTS,
    OPT_STOP_LOG,
    OPT_HELPER,
    OPT_HELPER_TIMER,
    OPT_HELPER_LOADS,
    OPT_VERSION,
    OPT_LATER /* in the contract, not in this version */
};

static const struct option long_options[] = {
    {"pid", required_argument, NULL, 'p'},
    {"thread", required_argument, NULL, 't'},
    {"rate", required_argument, NULL, 'r'},
    {"duration", required_argument, NULL, 'd'},
    {"mode", required_argument, NULL, 'm'},
    {"unwind", required_argument, NULL, 'u'},
    {"max-depth", required_argument, NULL, OPT_MAX_DEPTH},
    {"max-stops", required_argument, NULL, OPT_MAX_STOPS},
    {"overhead", required_argument, NULL, OPT_OVERHEAD},
    {"jitter", required_argument, NULL, OPT_JITTER},
    {"bpf", required_argument, NULL, OPT_BPF},
    {"events", required_argument, NULL, OPT_EVENTS},
    {"pin", required_argument, NULL, OPT_PIN},
    {"children", no_argument, NULL, OPT_CHILDREN},
    {"no-children", no_argument, NULL, OPT_NO_CHILDREN},
    {"format", required_argument, NULL, 'f'},
    {"output", required_argument, NULL, 'o'},
    {"value", required_argument, NULL, OPT_VALUE},
    {"threads", no_argument, NULL, OPT_THREADS},
    {"states", no_argument, NULL, OPT_STATES},
    {"stats", required_argument, NULL, OPT_STATS},
    {"save-snapshots", required_argument, NULL, OPT_SAVE_SNAPSHOTS},
    {"stop-log", required_argument, NULL, OPT_STOP_LOG},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {"lines", no_argument, NULL, OPT_LINES},
    {"no-inlines", no_argument, NULL, OPT_NO_INLINES},
    {"debuginfod", no_argument, NULL, OPT_DEBUGINFOD},
    {"kernel", no_argument, NULL, OPT_LATER},
    {"helper", no_argument, NULL, OPT_HELPER},
    {"helper-timer", required_argument, NULL, OPT_HELPER_TIMER},
    {"helper-loads", required_argument, NULL, OPT_HELPER_LOADS},
    {NULL, 0, NULL, 0},
};

/* One of a few words; the index, or -1. */
static int word_index(const char *text, const char *const words[])
{
    for (int i = 0; words[i]; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

bool optionparse_wrong(struct strbuf *error, const char *option, const char *value, const char *expected)
{
    strbuf_addf(error, "bad value '%s' for %s: expected %s", value, option, expected);
    return false;
}

/* "10", "0.5", "30s", "5m": seconds unless a unit says otherwise, at most nine digits behind the point count. */
enum { BILLION = 1000000000 };

/* "12.5": the whole part, and the rest in billionths. */
static bool parse_decimal(const char **text, const char *end, uint64_t *ret_whole, uint64_t *ret_billionths)
{
    *ret_whole = 0;
    *ret_billionths = 0;
    bool any = parse_u64(text, end, ret_whole);
    if (*text == end || **text != '.')
        return any;
    ++*text;
    for (uint64_t unit = BILLION / 10; *text < end && **text >= '0' && **text <= '9'; ++*text, unit /= 10) {
        *ret_billionths += (uint64_t)(**text - '0') * unit;
        any = true;
    }
    return any;
}

bool optionparse_duration(const char *text, uint64_t *ret_ns)
{
    const char *end = text + strlen(text);
    uint64_t seconds;
    uint64_t fraction_ns;
    bool any = parse_decimal(&text, end, &seconds, &fraction_ns);
    uint64_t scale = 1;
    if (text < end && (*text == 's' || *text == 'm'))
        scale = *text++ == 'm' ? 60 : 1;
    if (!any || text != end || seconds > UINT32_MAX / scale)
        return false;
    *ret_ns = (seconds * NS_PER_SEC + fraction_ns) * scale;
    return *ret_ns > 0;
}

/* "0.5" or "0.5%". */
static bool parse_percent(const char *text, double *ret_share)
{
    const char *end = text + strlen(text);
    uint64_t whole;
    uint64_t billionths;
    bool any = parse_decimal(&text, end, &whole, &billionths);
    if (text < end && *text == '%')
        text++;
    *ret_share = ((double)whole + (double)billionths / (double)BILLION) / 100;
    return any && text == end && *ret_share > 0 && *ret_share <= 1;
}

static bool add_pids(struct options *options, const char *text, size_t *capacity, struct strbuf *error)
{
    const char *cursor = text;
    const char *end = text + strlen(text);
    for (;;) {
        uint64_t pid;
        if (!parse_u64(&cursor, end, &pid) || pid == 0 || pid > INT_MAX || (cursor < end && *cursor != ','))
            return optionparse_wrong(error, "--pid", text, "process ids, separated by commas");
        if (array_room(&options->pids, capacity, options->pid_count + 1)) {
            strbuf_adds(error, "out of memory");
            return false;
        }
        bool known = false;
        for (size_t i = 0; i < options->pid_count; i++)
            known = known || options->pids[i] == (pid_t)pid;
        if (!known)
            options->pids[options->pid_count++] = (pid_t)pid;
        if (cursor == end)
            return true;
        cursor++;
    }
}

static bool parse_how(struct optionparse *parse, int option, const char *value)
{
    struct options *options = parse->options;
    uint64_t number = 0;
    int word;
    switch (option) {
    case 'r':
        if (!parse_number(value, &number) || number < 1 || number > 10000)
            return optionparse_wrong(parse->error, "--rate", value, "1 to 10000 ticks a second");
        options->rate_hz = (unsigned)number;
        return true;
    case 'd':
        if (!optionparse_duration(value, &options->duration_ns))
            return optionparse_wrong(parse->error, "--duration", value, "a time like 10, 0.5, 30s or 5m");
        return true;
    case 'm':
        word = word_index(value, (const char *const[]){"cpu", "wall", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--mode", value, "cpu or wall");
        options->mode = word ? MODE_WALL : MODE_CPU;
        return true;
    case 'u':
        word = word_index(value, (const char *const[]){"auto", "fp", "dwarf", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--unwind", value, "auto, fp or dwarf");
        options->unwind = (const enum unwind_mode[]){UNWIND_AUTO, UNWIND_FP, UNWIND_DWARF}[word];
        options->unwind_given = true;
        return true;
    case OPT_MAX_DEPTH:
        if (!parse_number(value, &number) || number < 1 || number > 1000000)
            return optionparse_wrong(parse->error, "--max-depth", value, "1 to 1000000 frames");
        options->max_depth = (size_t)number;
        return true;
    case OPT_MAX_STOPS:
        if (!parse_number(value, &number) || number < 1 || number > 1000000)
            return optionparse_wrong(parse->error, "--max-stops", value, "1 to 1000000 threads");
        options->max_stops = (size_t)number;
        return true;
    case OPT_OVERHEAD:
        if (!parse_percent(value, &options->overhead))
            return optionparse_wrong(parse->error, "--overhead", value,
                                     "a percentage of one CPU like 1 or 0.5, at most 100");
        return true;
    case OPT_JITTER:
        word = word_index(value, (const char *const[]){"off", "on", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--jitter", value, "on or off");
        options->jitter = word == 1;
        return true;
    case OPT_BPF:
        word = word_index(value, (const char *const[]){"off", "auto", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--bpf", value, "auto or off");
        options->bpf = word == 1;
        return true;
    case OPT_EVENTS:
        word = word_index(value, (const char *const[]){"auto", "perf", "perf-threads", "proc", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--events", value, "auto, perf, perf-threads or proc");
        options->events = (const enum events[]){EVENTS_AUTO, EVENTS_PERF, EVENTS_PERF_THREADS, EVENTS_PROC}[word];
        return true;
    case OPT_HELPER:
        options->helper = true;
        return true;
    case OPT_HELPER_TIMER:
        word = word_index(value, (const char *const[]){"thread", "process", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--helper-timer", value, "thread or process");
        options->helper_timer_process = word == 1;
        return true;
    case OPT_HELPER_LOADS:
        word = word_index(value, (const char *const[]){"auto", "instruction", "call", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--helper-loads", value, "auto, instruction or call");
        options->helper_loads =
            (const enum helper_loads[]){HELPER_LOADS_AUTO, HELPER_LOADS_INSTRUCTION, HELPER_LOADS_CALL}[word];
        return true;
    case OPT_PIN:
        word = word_index(value, (const char *const[]){"auto", "off", NULL});
        if (word < 0 && (!parse_number(value, &number) || number >= CPU_SETSIZE))
            return optionparse_wrong(parse->error, "--pin", value, "auto, off or the number of a CPU");
        options->pin = word >= 0 ? (const int[]){PIN_AUTO, PIN_OFF}[word] : (int)number;
        return true;
    default:
        return false;
    }
}

bool optionparse_take(struct optionparse *parse, int option, const char *value)
{
    struct options *options = parse->options;
    int word;
    switch (option) {
    case 'p':
        return add_pids(options, value, &parse->pid_capacity, parse->error);
    case 't':
        if (!*value)
            return optionparse_wrong(parse->error, "--thread", value, "a thread id or a pattern");
        if (array_room(&options->threads, &parse->thread_capacity, options->thread_count + 1)) {
            strbuf_adds(parse->error, "out of memory");
            return false;
        }
        options->threads[options->thread_count++] = value;
        return true;
    case OPT_CHILDREN:
    case OPT_NO_CHILDREN:
        parse->children = option == OPT_CHILDREN;
        return true;
    case 'f':
        parse->format_name = value;
        return true;
    case 'o':
        if (!*value)
            return optionparse_wrong(parse->error, "--output", value, "a file name, or - for standard output");
        options->output_path = value;
        return true;
    case OPT_VALUE:
        word = word_index(value, (const char *const[]){"samples", "ns", NULL});
        if (word < 0)
            return optionparse_wrong(parse->error, "--value", value, "samples or ns");
        options->output.value_ns = word == 1;
        return true;
    case OPT_THREADS:
        options->output.show_threads = true;
        return true;
    case OPT_STATES:
        options->output.show_states = true;
        return true;
    case OPT_LINES:
        options->output.show_lines = true;
        return true;
    case OPT_NO_INLINES:
        options->no_inlines = true;
        return true;
    case OPT_DEBUGINFOD:
        options->debuginfod = true;
        return true;
    case OPT_STATS:
        if (!*value)
            return optionparse_wrong(parse->error, "--stats", value, "a file name");
        options->stats_path = value;
        return true;
    case OPT_SAVE_SNAPSHOTS:
        if (!*value || strcmp(value, "-") == 0)
            return optionparse_wrong(parse->error, "--save-snapshots", value, "a file name");
        options->snapshots_path = value;
        return true;
    case OPT_STOP_LOG:
        if (!*value || strcmp(value, "-") == 0)
            return optionparse_wrong(parse->error, "--stop-log", value, "a file name");
        options->stop_log_path = value;
        return true;
    case 'q':
        options->verbosity = -1;
        return true;
    case 'v':
        options->verbosity = options->verbosity < 0 ? 1 : options->verbosity + 1;
        return true;
    default:
        return parse_how(parse, option, value);
    }
}

void optionparse_tell_unknown(struct strbuf *error, int result, const char *argument)
{
    if (result == OPT_LATER)
        strbuf_addf(error, "option %s is not in this version", argument);
    else if (result == ':')
        strbuf_addf(error, "option '%s' needs a value", argument);
    else if (optopt > 0 && optopt < 256 && strncmp(argument, "--", 2) != 0)
        strbuf_addf(error, "unknown option '-%c'", optopt);
    else if (optopt && strchr(argument, '='))
        strbuf_addf(error, "option '%.*s' takes no value", (int)strcspn(argument, "="), argument);
    else
        strbuf_addf(error, "unknown option '%s'", argument);
}

static bool choose_format(struct optionparse *parse)
{
    struct options *options = parse->options;
    const char *named = parse->format_name;
    if (named) {
        options->format = output_find_format(named);
        if (!options->format)
            return optionparse_wrong(parse->error, "--format", named, "collapsed");
    } else if (options->output_path) {
        options->format = output_find_suffix(options->output_path);
    }
    if (!options->format)
        options->format = output_find_format("collapsed");
    if (!options->format->write) {
        strbuf_addf(parse->error, "format '%s' is not in this version: use -f collapsed", options->format->name);
        return false;
    }
    return true;
}

/* What is seen from outside only. */
static bool check_helper(struct optionparse *parse)
{
    const struct options *options = parse->options;
    const char *with = options->children         ? "--children"
                       : options->snapshots_path ? "--save-snapshots"
                       : options->stop_log_path  ? "--stop-log"
                                                 : NULL;
    if (options->helper && with)
        strbuf_addf(parse->error, "%s does not go with --helper", with);
    return !options->helper || !with;
}

static bool check_whole(struct optionparse *parse, int argc, char **argv, int first, bool has_dashes)
{
    struct options *options = parse->options;
    if (!has_dashes && first < argc) {
        static const char *const commands[] = {"dump", "top", "diff", NULL};
        if (strcmp(argv[first], "report") == 0)
            strbuf_adds(parse->error, "command 'report' comes before its options: sampler report FILE");
        else if (strcmp(argv[first], "compare") == 0)
            strbuf_adds(parse->error, "command 'compare' comes before its options: sampler compare -p PID");
        else if (word_index(argv[first], commands) >= 0)
            strbuf_addf(parse->error, "command '%s' is not in this version", argv[first]);
        else
            strbuf_addf(parse->error, "unexpected argument '%s': a program to launch goes behind --", argv[first]);
        return false;
    }
    if (has_dashes && first >= argc) {
        strbuf_adds(parse->error, "no program behind --");
        return false;
    }
    if (has_dashes)
        options->program = argv + first;
    if (options->program && options->pid_count) {
        strbuf_adds(parse->error, "-p and -- exclude each other");
        return false;
    }
    if (!options->program && !options->pid_count) {
        strbuf_adds(parse->error, "nothing to sample: give -p PID or -- PROGRAM");
        return false;
    }
    options->children = parse->children >= 0 ? parse->children == 1 : options->program && !options->helper;
    return check_helper(parse) && choose_format(parse);
}

/* True when getopt stopped behind a "--", which is what makes the rest a program. */
static bool stopped_at_dashes(char **argv, int index)
{
    return index > 1 && strcmp(argv[index - 1], "--") == 0;
}

/* ---- report ---- */

static bool goes_with_report(int option)
{
    static const int all[] = {'t',
                              'u',
                              'f',
                              'o',
                              'q',
                              'v',
                              OPT_MAX_DEPTH,
                              OPT_VALUE,
                              OPT_THREADS,
                              OPT_STATES,
                              OPT_LINES,
                              OPT_NO_INLINES,
                              OPT_DEBUGINFOD,
                              OPT_STATS};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] == option)
            return true;
    return false;
}

static bool take_report_file(struct optionparse *parse, const char *path)
{
    if (parse->options->report_path) {
        strbuf_addf(parse->error, "unexpected argument '%s': report reads one file", path);
        return false;
    }
    if (!*path) {
        strbuf_adds(parse->error, "report needs the name of a file");
        return false;
    }
    parse->options->report_path = path;
    return true;
}

/*
 * The next option, and where its word stood. false: *ret_result is how the command line is to be taken; OPTIONS_RUN:
 * there are no more options.
 */
static bool next_option(struct optionparse *parse, int argc, char **argv, const char *letters, int *ret_option,
                        int *ret_at, enum options_result *ret_result)
{
    *ret_at = optind ? optind : 1;
    optopt = 0;
    *ret_option = getopt_long(argc, argv, letters, long_options, NULL);
    switch (*ret_option) {
    case -1:
        *ret_result = OPTIONS_RUN;
        return false;
    case 'h':
        *ret_result = OPTIONS_HELP;
        return false;
    case OPT_VERSION:
        *ret_result = OPTIONS_VERSION;
        return false;
    case '?':
    case ':':
    case OPT_LATER:
        optionparse_tell_unknown(parse->error, *ret_option, argv[*ret_at]);
        *ret_result = OPTIONS_WRONG;
        return false;
    default:
        return true;
    }
}

/* argv[1] is "report". */
static enum options_result parse_report(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error)
{
    *ret_options = (struct options){.command = COMMAND_REPORT};
    struct optionparse parse = {.options = ret_options, .error = ret_error};
    argc--;
    argv++;
    optind = 0;
    opterr = 0;
    int option;
    int at;
    enum options_result result;
    /* "-": what is no option comes as option 1, wherever it stands. */
    while (next_option(&parse, argc, argv, "-:p:t:r:d:m:u:f:o:qvh", &option, &at, &result)) {
        if (option != 1 && !goes_with_report(option)) {
            strbuf_addf(ret_error, "option '%s' does not go with report", argv[at]);
            return OPTIONS_WRONG;
        }
        if (!(option == 1 ? take_report_file(&parse, optarg) : optionparse_take(&parse, option, optarg)))
            return OPTIONS_WRONG;
    }
    if (result != OPTIONS_RUN)
        return result;
    for (; optind < argc; optind++)
        if (!take_report_file(&parse, argv[optind]))
            return OPTIONS_WRONG;
    if (!ret_options->report_path) {
        strbuf_adds(ret_error, "report needs the name of a file");
        return OPTIONS_WRONG;
    }
    return choose_format(&parse) ? OPTIONS_RUN : OPTIONS_WRONG;
}

/* ---- the main job ---- */

static enum options_result parse_all(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error)
{
    *ret_options = (struct options){.rate_hz = 99,
                                    .max_stops = 100,
                                    .max_depth = 4096,
                                    .jitter = true,
                                    .bpf = true,
                                    .pin = PIN_AUTO,
                                    .unwind = UNWIND_AUTO};
    struct optionparse parse = {.options = ret_options, .error = ret_error, .children = -1};
    optind = 0; /* glibc: start over, also when a test parses twice */
    opterr = 0;
    int option;
    int at;
    enum options_result result;
    while (next_option(&parse, argc, argv, "+:p:t:r:d:m:u:f:o:qvh", &option, &at, &result))
        if (!optionparse_take(&parse, option, optarg))
            return OPTIONS_WRONG;
    if (result != OPTIONS_RUN)
        return result;
    bool dashes = stopped_at_dashes(argv, optind) && optind > at;
    return check_whole(&parse, argc, argv, optind, dashes) ? OPTIONS_RUN : OPTIONS_WRONG;
}

enum options_result options_parse(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error)
{
    bool is_report = argc > 1 && strcmp(argv[1], "report") == 0;
    bool is_compare = argc > 1 && strcmp(argv[1], "compare") == 0;
    enum options_result result = is_report    ? parse_report(argc, argv, ret_options, ret_error)
                                 : is_compare ? compareoptions_parse(argc, argv, ret_options, ret_error)
                                              : parse_all(argc, argv, ret_options, ret_error);
    /* The message quotes arguments, which may hold anything; it stays one line. */
    for (size_t i = 0; i < ret_error->size; i++)
        if ((unsigned char)ret_error->data[i] < ' ' || ret_error->data[i] == 0x7f)
            ret_error->data[i] = '?';
    return result;
}

bool options_want_thread(const struct options *options, pid_t tid, const char *comm)
{
    if (options->thread_count == 0)
        return true;
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)tid);
    for (size_t i = 0; i < options->thread_count; i++)
        if (strcmp(options->threads[i], number) == 0 || fnmatch(options->threads[i], comm, 0) == 0)
            return true;
    return false;
}

void options_deinit(struct options *options)
{
    free(options->pids);
    free(options->threads);
    *options = (struct options){0};
}
