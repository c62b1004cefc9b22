#include "sampler/compare.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "common/rng.h"
#include "sampler/attach.h"
#include "sampler/comparesummary.h"
#include "sampler/comparetable.h"
#include "sampler/comparewindow.h"
#include "sampler/launch.h"
#include "sampler/outfile.h"
#include "sampler/procfs.h"
#include "sampler/results.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_WANTED = 4, WINDOWS_MAX = 10000 };

#define WINDOW_NS_DEFAULT  (2 * NS_PER_SEC)
#define WINDOW_NS_SHORTEST (NS_PER_SEC / 5)

struct compare {
    const struct options *options;
    struct outfile output;
    struct launch launch;
    struct attached attached; /* fds -1: none */
    struct signals signals;
    struct comparerun run;
    char directory[PATH_MAX]; /* "": none */
    struct comparewindow *windows;
    size_t count;
    size_t capacity;
    bool refused[COMPARE_KINDS];
    char name[64];
};

static void tell(const struct compare *compare, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const struct compare *compare, const char *format, ...)
{
    va_list args;
    (void)compare;
    va_start(args, format);
    fputs("sampler: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- before ---- */

static int make_directory(struct compare *compare)
{
    const char *parent = getenv("TMPDIR");
    int size = snprintf(compare->directory, sizeof(compare->directory), "%s/sampler-compare-XXXXXX",
                        parent && parent[0] == '/' ? parent : "/tmp");
    if (size < 0 || size >= 256 || !mkdtemp(compare->directory)) {
        int error = size >= 256 ? -ENAMETOOLONG : -errno;
        tell(compare, "cannot make a temporary directory: %s", strerror(-error));
        compare->directory[0] = '\0';
        return error;
    }
    compare->run.directory = compare->directory;
    return 0;
}

static void remove_directory(struct compare *compare)
{
    static const char *const names[] = {"profile", "stats", "errors", "perf.data", "perf.data.old", "script"};
    if (!compare->directory[0])
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_MAX + 16];
        snprintf(path, sizeof(path), "%s/%s", compare->directory, names[i]);
        unlink(path);
    }
    rmdir(compare->directory);
}

static int attach(struct compare *compare)
{
    struct strbuf why = {0};
    int error = attach_open(compare->options->pids[0], &compare->attached, &why);
    if (error)
        tell(compare, "%s", why.data ? why.data : strerror(-error));
    strbuf_deinit(&why);
    return error;
}

/* As the main job does it: the child is made while our signals are untouched. */
static int prepare(struct compare *compare)
{
    const struct options *options = compare->options;
    int error = outfile_open(options->output_path, &compare->output);
    if (error) {
        tell(compare, "cannot write to %s: %s", options->output_path ? options->output_path : "standard output",
             strerror(-error));
        return error;
    }
    if (options->program) {
        error = launch_prepare(options->program, compare->output.fd == STDOUT_FILENO, NULL, &compare->launch);
        if (error)
            tell(compare, "cannot start a process: %s", strerror(-error));
    } else {
        error = attach(compare);
    }
    if (!error)
        error = make_directory(compare);
    if (!error)
        error = strings_init(&compare->run.stacks);
    if (error)
        return error;
    pthread_sigmask(SIG_SETMASK, NULL, &compare->run.mask);
    error = signals_init(&compare->signals, false);
    if (error)
        tell(compare, "cannot set up signals: %s", strerror(-error));
    return error;
}

static void read_name(struct compare *compare)
{
    ssize_t got = fileio_read_text(compare->run.proc_fd, "comm", compare->name, sizeof(compare->name));
    if (got <= 0)
        snprintf(compare->name, sizeof(compare->name), "?");
    compare->name[strcspn(compare->name, "\n")] = '\0';
}

/* Who is to be sampled, now that it is there. */
static int find_target(struct compare *compare)
{
    struct comparerun *run = &compare->run;
    char number[16];
    if (compare->options->program) {
        compare->attached = (struct attached){.pid = compare->launch.pid, .pid_fd = -1, .proc_fd = -1};
        compare->attached.proc_fd = procfs_open_process(compare->launch.pid);
        if (compare->attached.proc_fd < 0)
            return compare->attached.proc_fd;
        run->launched = compare->launch.pid;
    }
    run->pid = compare->attached.pid;
    run->pid_fd = compare->options->program ? compare->launch.pid_fd : compare->attached.pid_fd;
    run->proc_fd = compare->attached.proc_fd;
    run->signals = &compare->signals;
    snprintf(number, sizeof(number), "%d", (int)run->pid);
    read_name(compare);
    return setenv("SAMPLER_PID", number, 1) ? -errno : 0;
}

/* ---- windows ---- */

/* The kinds of a round, in random order, so that no drift and no step of the target favours one. */
static size_t shuffle_kinds(const struct compare *compare, struct rng *rng, enum comparekind *ret_kinds)
{
    size_t count = 0;
    for (int kind = 0; kind < COMPARE_KINDS; kind++)
        if (kind != COMPARE_PERF || compare->options->compare.with_perf)
            ret_kinds[count++] = (enum comparekind)kind;
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)rng_below(rng, i);
        enum comparekind kept = ret_kinds[i - 1];
        ret_kinds[i - 1] = ret_kinds[other];
        ret_kinds[other] = kept;
    }
    return count;
}

/* Returns how many rounds of all kinds there are. */
static size_t plan(struct compare *compare)
{
    const struct compare_options *options = &compare->options->compare;
    uint64_t kinds = options->with_perf ? COMPARE_KINDS : COMPARE_KINDS - 1;
    uint64_t whole_ns = compare->options->duration_ns;
    uint64_t window_ns = options->window_ns;
    if (!window_ns) {
        window_ns = whole_ns / (kinds * ROUNDS_WANTED);
        window_ns = window_ns > WINDOW_NS_DEFAULT ? WINDOW_NS_DEFAULT : window_ns;
        window_ns = window_ns < WINDOW_NS_SHORTEST ? WINDOW_NS_SHORTEST : window_ns;
    }
    compare->run.window_ns = window_ns;
    uint64_t rounds = whole_ns / (window_ns * kinds);
    rounds = rounds > WINDOWS_MAX / kinds ? WINDOWS_MAX / kinds : rounds;
    return rounds ? (size_t)rounds : 1;
}

static bool is_over(struct compare *compare)
{
    struct comparerun *run = &compare->run;
    struct pollfd pollfd = {.fd = run->pid_fd, .events = POLLIN};
    comparerun_take_signals(run);
    run->target_ended = run->target_ended || poll(&pollfd, 1, 0) == 1;
    return run->interrupted || run->target_ended;
}

static int run_window(struct compare *compare, enum comparekind kind)
{
    int error = array_room(&compare->windows, &compare->capacity, compare->count + 1);
    if (!error)
        error = comparewindow_run(&compare->run, kind, &compare->windows[compare->count]);
    if (error)
        return error;
    struct comparewindow *window = &compare->windows[compare->count];
    if (compare->options->verbosity > 0)
        tell(compare, "window %zu: %s%s%s", compare->count + 1, comparekind_name(kind), window->refusal ? ": " : "",
             window->refusal ? window->refusal : "");
    /* What a target's end or a signal did to an engine is no refusal, and no result. */
    if (window->refusal && is_over(compare)) {
        comparewindow_deinit(window);
        return 0;
    }
    compare->refused[kind] = window->refusal != NULL;
    compare->count++;
    return 0;
}

static int run_windows(struct compare *compare)
{
    struct rng rng = {.state = clock_now_ns()};
    size_t rounds = plan(compare);
    for (size_t round = 0; round < rounds; round++) {
        enum comparekind kinds[COMPARE_KINDS];
        size_t count = shuffle_kinds(compare, &rng, kinds);
        for (size_t i = 0; i < count; i++) {
            if (is_over(compare))
                return 0;
            if (compare->refused[kinds[i]])
                continue;
            int error = run_window(compare, kinds[i]);
            if (error)
                return error;
        }
    }
    return 0;
}

/* ---- after ---- */

static int write_table(struct compare *compare)
{
    struct comparesummary summary;
    struct strbuf text = {0};
    int error = comparesummary_make(&compare->run, compare->windows, compare->count, &summary);
    struct comparetable table = {.run = &compare->run,
                                 .summary = &summary,
                                 .windows = compare->windows,
                                 .window_count = compare->count,
                                 .target = compare->name};
    if (!error && compare->options->compare.json)
        error = comparetable_json(&table, &text);
    else if (!error)
        comparetable_text(&table, &text);
    if (!error)
        error = strbuf_error(&text);
    if (!error)
        error = fileio_write(compare->output.fd, text.data, text.size);
    if (!error)
        error = outfile_commit(&compare->output);
    strbuf_deinit(&text);
    return error;
}

static const char *work_problem(int error)
{
    switch (error) {
    case -EINVAL:
        return "it printed no number";
    case -ETIME:
        return "it did not end within 5 seconds";
    case -ECHILD:
        return "it failed";
    default:
        return strerror(-error);
    }
}

/* Some engine has a result. */
static bool has_result(const struct compare *compare)
{
    for (size_t i = 0; i < compare->count; i++)
        if (compare->windows[i].kind != COMPARE_NOTHING && !compare->windows[i].refusal)
            return true;
    return false;
}

static int finish(struct compare *compare)
{
    const struct comparerun *run = &compare->run;
    if (run->work_failures)
        tell(compare, "warning: --work gave no number %u times: %s", run->work_failures, work_problem(run->work_error));
    if (run->target_ended && compare->options->verbosity >= 0)
        tell(compare, "the target ended before all windows were done");
    int error = write_table(compare);
    if (error == -EPIPE)
        return STATUS_BROKEN_PIPE;
    if (error) {
        tell(compare, "cannot write the table: %s", strerror(-error));
        return STATUS_TROUBLE;
    }
    if (has_result(compare))
        return 0;
    tell(compare, "nothing was sampled, from outside or from inside");
    return STATUS_TROUBLE;
}

/* Silent, as the main job waits. */
static int wait_for_program(struct compare *compare)
{
    struct pollfd fds[2] = {{.fd = compare->launch.pid_fd, .events = POLLIN},
                            {.fd = compare->signals.fd, .events = POLLIN}};
    int status;
    for (;;) {
        pid_t got = waitpid(compare->launch.pid, &status, WNOHANG);
        if (got == compare->launch.pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (got < 0 && errno != EINTR)
            return STATUS_TROUBLE;
        /* An ended program whose tracer has still to reap it keeps its descriptor readable. */
        poll(fds[0].revents ? &fds[1] : fds, fds[0].revents ? 1 : 2, fds[0].revents ? 20 : -1);
        comparerun_take_signals(&compare->run);
    }
}

static int run(struct compare *compare)
{
    const struct options *options = compare->options;
    if (prepare(compare))
        return STATUS_TROUBLE;
    if (options->program) {
        int error = launch_go(&compare->launch);
        if (error) {
            tell(compare, "cannot run %s: %s", options->program[0], strerror(-error));
            return launch_failure_status(options->program[0], error);
        }
    }
    int error = find_target(compare);
    if (!error)
        error = run_windows(compare);
    if (error)
        tell(compare, "cannot compare: %s", strerror(-error));
    int status = error ? STATUS_TROUBLE : finish(compare);
    return options->program ? wait_for_program(compare) : status;
}

static void compare_deinit(struct compare *compare)
{
    for (size_t i = 0; i < compare->count; i++)
        comparewindow_deinit(&compare->windows[i]);
    free(compare->windows);
    strings_deinit(&compare->run.stacks);
    remove_directory(compare);
    signals_deinit(&compare->signals);
    launch_deinit(&compare->launch);
    if (compare->attached.pid_fd >= 0)
        close(compare->attached.pid_fd);
    if (compare->attached.proc_fd >= 0)
        close(compare->attached.proc_fd);
    outfile_deinit(&compare->output);
}

int compare_run(const struct options *options)
{
    struct compare compare = {.options = options,
                              .output = {.fd = -1},
                              .launch = {.pid = -1, .pid_fd = -1, .go_fd = -1, .outcome_fd = -1},
                              .attached = {.pid_fd = -1, .proc_fd = -1},
                              .signals = {.fd = -1, .write_fd = -1},
                              .run = {.options = options}};
    int status = run(&compare);
    compare_deinit(&compare);
    return status;
}
