/* The command line. Parsing only: nothing is opened, attached or printed here. */
#ifndef SAMPLER_OPTIONS_H
#define SAMPLER_OPTIONS_H

#include "common/strbuf.h"
#include "helper/layout.h"
#include "output/output.h"
#include "symbolize/symbolize.h"
#include "unwind/unwind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sample_mode { MODE_CPU, MODE_WALL };

/* Where news of the targets come from (watch.h). */
enum events { EVENTS_AUTO, EVENTS_PERF, EVENTS_PERF_THREADS, EVENTS_PROC };

/* What is to be done. For COMMAND_REPORT and COMMAND_COMPARE only what its usage names is there. */
enum command { COMMAND_SAMPLE, COMMAND_REPORT, COMMAND_COMPARE };

/* What COMMAND_COMPARE alone has. Of the rest it has the one pid or the program, rate, duration (of all windows
 * together), mode, unwinding, --bpf, the output's path and -q, -v. */
struct compare_options {
    uint64_t window_ns; /* 0: chosen */
    const char *work_command;
    bool with_perf;
    bool perf_by_fp; /* perf follows frame pointers, not copies of the stack */
    bool json;
};

struct options {
    enum command command;
    struct compare_options compare;
    const char *report_path; /* COMMAND_REPORT: the file to read */

    /* COMMAND_SAMPLE: exactly one of the two: pids to attach to, or a program to launch (NULL-ended argv, borrowed from
     * main). */
    pid_t *pids;
    size_t pid_count;
    char **program;

    const char **threads; /* thread ids and globs; none: all */
    size_t thread_count;
    unsigned rate_hz;
    uint64_t duration_ns; /* 0: until the end */
    enum sample_mode mode;
    enum unwind_mode unwind;
    bool unwind_given;
    size_t max_depth; /* COMMAND_REPORT: 0 when not given */
    bool jitter;
    size_t max_stops; /* at a tick */
    double overhead;  /* share of one CPU, 0.01 for a percent; 0: no limit */
    bool bpf;         /* threads may be read by it */
    enum events events;
    int pin; /* PIN_AUTO, ... or a CPU (pinning.h) */
    bool children;
    bool helper;               /* sampled from inside */
    bool helper_timer_process; /* by one timer for the whole process */
    enum helper_loads helper_loads;
    const struct output_format *format;
    const char *output_path; /* NULL or "-": standard output */
    struct output_options output;
    bool no_inlines;
    bool debuginfod;            /* debug files may be fetched */
    const char *stats_path;     /* NULL: none */
    const char *snapshots_path; /* NULL: they are not saved */
    const char *stop_log_path;  /* NULL: none */
    int verbosity;              /* -1 quiet, 0, 1 and more: verbose */
};

enum options_result {
    OPTIONS_RUN,     /* do the command */
    OPTIONS_HELP,    /* print the help and leave with 0 */
    OPTIONS_VERSION, /* print the version and leave with 0 */
    OPTIONS_WRONG    /* usage error: `ret_error` has the line to print */
};

/*
 * Reads argv into *ret_options, which options_deinit frees in every case. `ret_error` (an empty strbuf of the caller)
 * gets one line without newline for OPTIONS_WRONG.
 */
enum options_result options_parse(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error);
void options_deinit(struct options *options);

/* Whether a thread of that id and name is among those that the user chose. */
bool options_want_thread(const struct options *options, pid_t tid, const char *comm);

/*
 * How frames are to be named; whom to tell is for the caller to add. A further directory of debug files is the one that
 * the environment names (SAMPLER_DEBUG_DIR, an absolute path).
 */
struct symbolizer_options options_naming(const struct options *options);

/* The help text: static. */
const char *options_help(void);

#endif
