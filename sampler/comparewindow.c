#include "sampler/comparewindow.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/comparespawn.h"
#include "sampler/comparework.h"
#include "sampler/perfscript.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 512, PROFILE_BYTES_MAX = 256 << 20, TEXT_BYTES_MAX = 1 << 20, ARGUMENTS_MAX = 24 };

/* What an engine takes to begin is not the target's everyday: it is measured from then on. */
#define SETTLE_NS (NS_PER_SEC / 4)

/* For so long it goes on behind the window, so that no part of that is without it. */
#define MARGIN_NS (NS_PER_SEC / 20)

/* Naming a large program's functions takes seconds; who takes longer than this has a problem. */
#define FINISH_NS_MAX (120 * NS_PER_SEC)

struct engine {
    pid_t pid; /* 0: none */
    int pid_fd;
    double cpu_ns;
    int status;
    bool late;
};

const char *comparekind_name(enum comparekind kind)
{
    static const char *const names[] = {[COMPARE_OUTSIDE] = "outside",
                                        [COMPARE_INSIDE] = "inside",
                                        [COMPARE_PERF] = "perf",
                                        [COMPARE_NOTHING] = "nothing"};
    return names[kind];
}

void comparewindow_deinit(struct comparewindow *window)
{
    free(window->refusal);
    stackcounts_deinit(&window->stacks);
    window->refusal = NULL;
}

void comparerun_take_signals(struct comparerun *run)
{
    int signal;
    while ((signal = signals_next(run->signals))) {
        if (signal == SIGTSTP) {
            signals_stop_self();
            continue;
        }
        if (run->launched && (signal == SIGTERM || signal == SIGHUP))
            syscall(SYS_pidfd_send_signal, run->pid_fd, signal, NULL, 0);
        run->interrupted = true;
    }
}

static void path_of(const struct comparerun *run, const char *name, char *path)
{
    snprintf(path, PATH_BYTES, "%s/%s", run->directory, name);
}

/* ---- the engine ---- */

struct invocation {
    const char *argv[ARGUMENTS_MAX];
    size_t count;
    char numbers[3][32];
    char paths[2][PATH_BYTES];
};

static void add(struct invocation *command, const char *word)
{
    if (command->count + 1 < ARGUMENTS_MAX)
        command->argv[command->count++] = word;
}

static void add_pair(struct invocation *command, const char *option, const char *value)
{
    add(command, option);
    add(command, value);
}

static void add_numbers(struct invocation *command, const struct comparerun *run)
{
    snprintf(command->numbers[0], sizeof(command->numbers[0]), "%d", (int)run->pid);
    snprintf(command->numbers[1], sizeof(command->numbers[1]), "%u", run->options->rate_hz);
    uint64_t all_ns = SETTLE_NS + run->window_ns + MARGIN_NS;
    snprintf(command->numbers[2], sizeof(command->numbers[2]), "%llu.%09llu", (unsigned long long)(all_ns / NS_PER_SEC),
             (unsigned long long)(all_ns % NS_PER_SEC));
}

static void make_sampler_command(const struct comparerun *run, bool inside, struct invocation *command)
{
    static const char *const unwinds[] = {[UNWIND_AUTO] = "auto", [UNWIND_FP] = "fp", [UNWIND_DWARF] = "dwarf"};
    add(command, "/proc/self/exe");
    add(command, "-q");
    add_pair(command, "-p", command->numbers[0]);
    add_pair(command, "-r", command->numbers[1]);
    add_pair(command, "-d", command->numbers[2]);
    add_pair(command, "-m", run->options->mode == MODE_WALL ? "wall" : "cpu");
    if (run->options->unwind_given)
        add_pair(command, "-u", unwinds[run->options->unwind]);
    if (inside)
        add(command, "--helper");
    else
        add_pair(command, "--bpf", run->options->bpf ? "auto" : "off");
    path_of(run, "profile", command->paths[0]);
    path_of(run, "stats", command->paths[1]);
    add_pair(command, "-o", command->paths[0]);
    add_pair(command, "--stats", command->paths[1]);
}

static void make_perf_command(const struct comparerun *run, struct invocation *command)
{
    add_pair(command, "perf", "record");
    add(command, "-q");
    add_pair(command, "-F", command->numbers[1]);
    add_pair(command, "--call-graph", run->options->compare.perf_by_fp ? "fp" : "dwarf");
    add_pair(command, "-p", command->numbers[0]);
    path_of(run, "perf.data", command->paths[0]);
    add_pair(command, "-o", command->paths[0]);
    add_pair(command, "--", "sleep");
    add(command, command->numbers[2]);
}

static int open_file(const struct comparerun *run, const char *name)
{
    char path[PATH_BYTES];
    path_of(run, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

/* Standard output goes to the file `output`, or with what goes wrong. */
static int start(const struct comparerun *run, const struct invocation *command, const char *output, pid_t *ret_pid)
{
    autoclose int errors = open_file(run, "errors");
    if (errors < 0)
        return errors;
    if (!output)
        return comparespawn_start(command->argv, &run->mask, errors, errors, ret_pid);
    autoclose int out = open_file(run, output);
    return out < 0 ? out : comparespawn_start(command->argv, &run->mask, out, errors, ret_pid);
}

static int start_engine(const struct comparerun *run, enum comparekind kind, struct engine *engine)
{
    static const char *const left[] = {"profile", "stats", "perf.data", "perf.data.old", "script"};
    struct invocation command = {0};
    *engine = (struct engine){.pid_fd = -1};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        char path[PATH_BYTES];
        path_of(run, left[i], path);
        unlink(path);
    }
    if (kind == COMPARE_NOTHING)
        return 0;
    add_numbers(&command, run);
    if (kind == COMPARE_PERF)
        make_perf_command(run, &command);
    else
        make_sampler_command(run, kind == COMPARE_INSIDE, &command);
    int error = start(run, &command, NULL, &engine->pid);
    if (error)
        engine->pid = 0;
    else
        engine->pid_fd = (int)syscall(SYS_pidfd_open, engine->pid, 0);
    return error;
}

/* Each signal to us meanwhile is passed on: the first ends the sampling, another one gives up on the result. */
static void watch_engine(struct comparerun *run, const struct engine *engine, uint64_t deadline_ns)
{
    struct pollfd fds[] = {{.fd = engine->pid_fd, .events = POLLIN}, {.fd = run->signals->fd, .events = POLLIN}};
    for (uint64_t now_ns; engine->pid_fd >= 0 && (now_ns = clock_now_ns()) < deadline_ns;) {
        int before = run->signals->received;
        if (poll(fds, 2, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return;
        comparerun_take_signals(run);
        if (run->signals->received != before)
            kill(-engine->pid, SIGINT);
        if (fds[0].revents)
            return;
    }
}

static void end_engine(struct comparerun *run, struct engine *engine)
{
    struct rusage usage = {0};
    if (!engine->pid)
        return;
    uint64_t deadline_ns = clock_now_ns() + FINISH_NS_MAX;
    watch_engine(run, engine, deadline_ns);
    engine->late = comparespawn_wait(engine->pid, deadline_ns, &engine->status, &usage) != 0;
    engine->cpu_ns = comparespawn_cpu_ns(&usage);
    if (engine->pid_fd >= 0)
        close(engine->pid_fd);
}

/* ---- the target meanwhile ---- */

struct mark {
    uint64_t asked_ns; /* when it began to be taken */
    uint64_t now_ns;
    double cpu_ns;
    double calls;
    double work;
    uint64_t work_ns;
};

/* The clock's number is the kernel's own way to name a process's CPU time. */
static double target_cpu_ns(pid_t pid)
{
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock))
        return NAN;
    uint64_t ns = clock_read_ns(clock);
    return ns ? (double)ns : NAN;
}

static void take_mark(struct comparerun *run, struct mark *mark)
{
    const char *command = run->options->compare.work_command;
    *mark = (struct mark){.asked_ns = clock_now_ns(), .calls = NAN, .work = NAN};
    if (command) {
        int error = comparework_ask(command, &run->mask, &mark->work, &mark->work_ns);
        if (error) {
            run->work_failures++;
            run->work_error = error;
        }
    }
    comparework_calls(run->proc_fd, &mark->calls);
    mark->cpu_ns = target_cpu_ns(run->pid);
    mark->now_ns = clock_now_ns();
}

static void measure(struct comparewindow *window, const struct mark *begin, const struct mark *end)
{
    double ns = (double)(end->now_ns - begin->now_ns);
    window->seconds = ns / 1e9;
    window->target_cpu = (end->cpu_ns - begin->cpu_ns) / ns;
    window->calls = (end->calls - begin->calls) / window->seconds;
    if (end->work_ns > begin->work_ns)
        window->work = (end->work - begin->work) / ((double)(end->work_ns - begin->work_ns) / 1e9);
}

/* Until the window is over: true. False: something has ended it before. */
static bool wait_window(struct comparerun *run, const struct engine *engine, uint64_t end_ns)
{
    enum { SIGNALS, TARGET, ENGINE };
    struct pollfd fds[] = {[SIGNALS] = {.fd = run->signals->fd, .events = POLLIN},
                           [TARGET] = {.fd = run->pid_fd, .events = POLLIN},
                           [ENGINE] = {.fd = engine->pid_fd, .events = POLLIN}};
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns)
            return true;
        uint64_t left_ms = (end_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
        if (poll(fds, 3, left_ms > 60000 ? 60000 : (int)left_ms) < 0 && errno != EINTR)
            return false;
        comparerun_take_signals(run);
        run->target_ended = run->target_ended || (fds[TARGET].revents & POLLIN);
        if (run->interrupted || run->target_ended || (fds[ENGINE].revents & POLLIN))
            return false;
    }
}

static void measure_window(struct comparerun *run, const struct engine *engine, struct comparewindow *window)
{
    struct mark begin;
    struct mark end;
    if (!wait_window(run, engine, clock_now_ns() + SETTLE_NS))
        return;
    take_mark(run, &begin);
    /* Not from the mark's end: --work may take long, and the engine's time goes by. */
    if (!wait_window(run, engine, begin.asked_ns + run->window_ns))
        return;
    take_mark(run, &end);
    measure(window, &begin, &end);
}

/* ---- what came of it ---- */

static int read_file(const struct comparerun *run, const char *name, size_t limit, char **ret_text, size_t *ret_size)
{
    char path[PATH_BYTES];
    path_of(run, name, path);
    autoclose int fd = fileio_open_regular(AT_FDCWD, path);
    return fd < 0 ? -ENOENT : fileio_read_all(fd, limit, ret_text, ret_size);
}

/* The first line of what the engine said, without its own name, or its status. */
static void explain(const struct comparerun *run, const struct engine *engine, struct comparewindow *window)
{
    struct strbuf line = {0};
    char *text = NULL;
    size_t size = 0;
    if (read_file(run, "errors", TEXT_BYTES_MAX, &text, &size))
        size = 0;
    const char *at = text ? text : "";
    at += strncmp(at, "sampler: ", 9) == 0 ? 9 : 0;
    size_t length = strcspn(at, "\n");
    /* What helps at a command line of one's own does not help here. */
    const char *help = strstr(at, " (see sampler --help)");
    if (help && help < at + length)
        length = (size_t)(help - at);
    if (engine->late)
        strbuf_adds(&line, "it did not come to an end");
    else if (size && length)
        strbuf_add(&line, at, length < 300 ? length : 300);
    else if (WIFSIGNALED(engine->status))
        strbuf_addf(&line, "it was killed by signal %d", WTERMSIG(engine->status));
    else
        strbuf_addf(&line, "it ended with status %d", WEXITSTATUS(engine->status));
    strbuf_make_line(&line);
    free(text);
    free(window->refusal);
    window->refusal = line.data;
}

static int read_sampler(struct comparerun *run, struct comparewindow *window)
{
    char *text = NULL;
    size_t size;
    int error = read_file(run, "stats", TEXT_BYTES_MAX, &text, &size);
    if (!error)
        error = comparestats_parse(text, size, &window->stats);
    free(text);
    text = NULL;
    if (!error)
        error = read_file(run, "profile", PROFILE_BYTES_MAX, &text, &size);
    if (!error)
        error = stackcounts_read(&window->stacks, &run->stacks, text, size);
    free(text);
    return error;
}

static int read_perf(struct comparerun *run, struct comparewindow *window)
{
    struct invocation command = {0};
    struct engine script = {.pid_fd = -1};
    uint64_t failed = 0;
    char *text = NULL;
    size_t size;
    path_of(run, "perf.data", command.paths[0]);
    add_pair(&command, "perf", "script");
    add(&command, "--no-inline");
    add_pair(&command, "-F", "comm,tid,ip,sym,dso");
    add_pair(&command, "-i", command.paths[0]);
    int error = start(run, &command, "script", &script.pid);
    if (error)
        return error;
    script.pid_fd = (int)syscall(SYS_pidfd_open, script.pid, 0);
    end_engine(run, &script);
    error = script.late || script.status ? -EPROTO : read_file(run, "script", PROFILE_BYTES_MAX, &text, &size);
    if (!error)
        error = perfscript_read(&window->stacks, &run->stacks, text, size, &failed);
    free(text);
    window->stats.fields[FIELD_SAMPLES] = (double)window->stacks.total;
    window->stats.has_failed = true;
    if (failed)
        comparestats_add_cause(&window->stats, "no_stack", (double)failed);
    return error;
}

static int read_results(struct comparerun *run, const struct engine *engine, struct comparewindow *window)
{
    if (window->kind == COMPARE_NOTHING)
        return 0;
    window->sampler_cpu_ns = engine->cpu_ns;
    /* perf's status is that of the program beside it, or of its end by our signal: its file tells whether it has
     * recorded. */
    bool good = !engine->late && (window->kind == COMPARE_PERF || engine->status == 0);
    int error = !good ? -ECANCELED : window->kind == COMPARE_PERF ? read_perf(run, window) : read_sampler(run, window);
    if (error == -ENOMEM)
        return error;
    if (error)
        explain(run, engine, window);
    return error && !window->refusal ? -ENOMEM : 0;
}

int comparewindow_run(struct comparerun *run, enum comparekind kind, struct comparewindow *ret_window)
{
    struct comparewindow window = {
        .kind = kind, .seconds = NAN, .work = NAN, .calls = NAN, .target_cpu = NAN, .sampler_cpu_ns = NAN};
    struct engine engine;
    comparestats_init(&window.stats);
    int error = start_engine(run, kind, &engine);
    if (error == -ENOENT && kind == COMPARE_PERF) {
        window.refusal = strdup("perf is not installed");
        *ret_window = window;
        return window.refusal ? 0 : -ENOMEM;
    }
    if (error)
        return error;
    measure_window(run, &engine, &window);
    if (engine.pid && run->interrupted)
        kill(-engine.pid, SIGINT);
    end_engine(run, &engine);
    error = read_results(run, &engine, &window);
    if (error)
        comparewindow_deinit(&window);
    else
        *ret_window = window;
    return error;
}
