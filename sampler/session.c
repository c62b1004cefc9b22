#include "sampler/session.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/attach.h"
#include "sampler/capture.h"
#include "sampler/helperlinks.h"
#include "sampler/helperpreload.h"
#include "sampler/launch.h"
#include "sampler/pinning.h"
#include "sampler/pipeline.h"
#include "sampler/place.h"
#include "sampler/procfs.h"
#include "sampler/results.h"
#include "sampler/signals.h"
#include "sampler/snapfile.h"
#include "sampler/stats.h"
#include "sampler/stoplog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REAP_RETRY_MS = 20 };

#define PROGRESS_PERIOD_NS (NS_PER_SEC / 2)

struct session {
    const struct options *options;
    struct results results;
    struct outfile snapshots; /* fd -1: none */
    struct snapfile *snapfile;
    struct outfile stop_log_file; /* fd -1: none */
    struct stoplog *stoplog;
    struct launch launch;
    struct sideband *sideband; /* owned until sampling starts; NULL: /proc */
    struct attached *attached; /* owned, options->pid_count */
    size_t attached_count;
    struct helperlinks links; /* with --helper */
    struct signals signals;
    struct tracer *tracer;
    struct profile *profile;
    struct pipeline *pipeline;
    struct images *images;
    struct capture *capture;
    int ended_fd;
    uint64_t started_ns;
    uint64_t symbol_ns;
    bool shows_progress;
    bool quits;         /* SIGQUIT came while sampling: no profile, and an end by it */
    bool captured;      /* the capture thread has ended */
    bool program_ended; /* its exit was seen, not yet reaped or reaped by the tracer */
    bool program_reaped;
    struct wait_event program_exit; /* valid when program_reaped */
};

static void tell(const struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const struct session *session, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, session->shows_progress ? "\r\033[Ksampler: " : "sampler: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- before ---- */

/* For what is written during the run. A regular file: to others a write may wait for a reader, and the run with it. */
static int open_regular(struct session *session, const char *path, const char *what, struct outfile *file)
{
    struct stat st;
    if (!path)
        return 0;
    int error = outfile_open(path, file);
    if (error) {
        tell(session, "cannot write to %s: %s", path, strerror(-error));
        return error;
    }
    if (!file->temporary_path || fstat(file->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        tell(session, "cannot save %s to %s: not a regular file", what, path);
        return -EINVAL;
    }
    const struct outfile *others[] = {&session->results.output, &session->results.stats_file, &session->snapshots};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (others[i] != file && others[i]->path && strcmp(others[i]->path, file->path) == 0) {
            tell(session, "cannot save %s to %s: another output goes there", what, path);
            return -EINVAL;
        }
    }
    return 0;
}

static int open_outputs(struct session *session)
{
    const char *name;
    if (session->options->pin >= 0 && !pinning_may_use(session->options->pin)) {
        tell(session, "cannot run on CPU %d: it is not among those that the sampler may use", session->options->pin);
        return -EINVAL;
    }
    int error = results_open(&session->results, session->options, &name);
    if (error) {
        tell(session, "cannot write to %s: %s", name, strerror(-error));
        return error;
    }
    error = open_regular(session, session->options->snapshots_path, "snapshots", &session->snapshots);
    if (!error)
        error = open_regular(session, session->options->stop_log_path, "stops", &session->stop_log_file);
    return error;
}

static int attach_all(struct session *session)
{
    const struct options *options = session->options;
    if (options->pid_count == 0)
        return 0;
    session->attached = calloc(options->pid_count, sizeof(*session->attached));
    if (!session->attached)
        return -ENOMEM;
    for (size_t i = 0; i < options->pid_count; i++) {
        struct strbuf why = {0};
        int error = attach_open(options->pids[i], &session->attached[i], &why);
        if (error)
            tell(session, "%s", why.data ? why.data : strerror(-error));
        strbuf_deinit(&why);
        if (error)
            return error;
        session->attached_count++;
    }
    return 0;
}

/* ---- helpers ---- */

/* Into each, or it is told why not. */
static int inject_all(struct session *session)
{
    struct strbuf why = {0};
    int error = helperlinks_inject(&session->links, session->options, session->attached, session->attached_count, &why);
    if (error)
        tell(session, "%s", why.data ? why.data : strerror(-error));
    strbuf_deinit(&why);
    return error;
}

/* Where it cannot be, the program runs all the same, and is not sampled: that is told. */
static int launch(struct session *session)
{
    const struct options *options = session->options;
    struct helperpreload preload = {0};
    struct strbuf why = {0};
    int error = 0;
    if (options->helper && helperpreload_prepare(options, &preload, &why) < 0)
        tell(session, "cannot sample %s: %s", options->program[0], why.data ? why.data : "the helper cannot be loaded");
    if (preload.link) {
        error = helperlinks_add(&session->links, preload.link);
        preload.link = NULL;
    }
    if (!error)
        error = launch_prepare(options->program, session->results.output.fd == STDOUT_FILENO, preload.variables,
                               &session->launch);
    if (error)
        tell(session, "cannot start a process: %s", strerror(-error));
    helperpreload_deinit(&preload);
    strbuf_deinit(&why);
    return error;
}

/* On the thread that reaped: the capture thread, or ours. Read by us after the capture thread has ended. */
static void note_exit(void *context, pid_t pid, const struct wait_event *event)
{
    struct session *session = context;
    if (pid == session->launch.pid) {
        session->program_exit = *event;
        session->program_reaped = true;
    }
}

static int start_sampling(struct session *session)
{
    const struct options *options = session->options;
    size_t count = options->program ? 1 : session->attached_count;
    struct capture_target targets[count];
    if (options->program) {
        targets[0] = (struct capture_target){.pid = session->launch.pid,
                                             .proc_fd = procfs_open_process(session->launch.pid),
                                             .link = helperlinks_get(&session->links, 0)};
        if (targets[0].proc_fd < 0)
            return targets[0].proc_fd;
    }
    for (size_t i = 0; i < session->attached_count; i++) {
        targets[i] = (struct capture_target){.pid = session->attached[i].pid,
                                             .proc_fd = session->attached[i].proc_fd,
                                             .link = helperlinks_get(&session->links, i)};
        session->attached[i].proc_fd = -1;
    }
    session->profile = profile_new();
    session->images = images_new();
    session->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->ended_fd < 0)
        return -errno;
    if (!session->profile || !session->images)
        return -ENOMEM;
    int error = tracer_new(note_exit, session, &session->tracer);
    if (!error && options->snapshots_path)
        error = snapfile_new(session->snapshots.fd, options, session->images, &session->snapfile);
    if (!error && options->stop_log_path)
        error = stoplog_new(session->stop_log_file.fd, &session->stoplog);
    if (!error)
        error = pipeline_start(options, session->profile, session->snapfile, &session->pipeline);
    if (!error) {
        error = capture_start(options, session->pipeline, session->images, session->tracer, session->sideband,
                              session->stoplog, targets, count, options->program != NULL, session->ended_fd,
                              &session->capture);
        session->sideband = NULL;
    }
    session->started_ns = clock_now_ns();
    return error;
}

/* ---- during ---- */

static void draw_progress(const struct session *session)
{
    if (!session->shows_progress)
        return;
    fprintf(stderr, "\r\033[K%.1f s, %llu samples, %llu threads", (double)(clock_now_ns() - session->started_ns) / 1e9,
            (unsigned long long)capture_samples_now(session->capture),
            (unsigned long long)capture_threads_now(session->capture));
}

static void clear_progress(const struct session *session)
{
    if (session->shows_progress)
        fputs("\r\033[K", stderr);
}

/* SIGTERM and SIGHUP sent to us are meant for the program too; the terminal's SIGINT reaches it by itself. */
static void pass_on(const struct session *session, int signal)
{
    if (session->launch.pid_fd >= 0 && (signal == SIGTERM || signal == SIGHUP))
        syscall(SYS_pidfd_send_signal, session->launch.pid_fd, signal, NULL, 0);
}

/* Ctrl-Z: everything of the target is let go before we stop. Another signal meanwhile comes first. */
static void stop_self(struct session *session)
{
    if (!session->capture || session->captured) {
        signals_stop_self();
        return;
    }
    capture_ask_pause(session->capture);
    struct pollfd fds[3] = {{.fd = capture_rest_fd(session->capture), .events = POLLIN},
                            {.fd = tracer_watch_fd(session->tracer), .events = POLLIN},
                            {.fd = session->signals.fd, .events = POLLIN}};
    while (!fds[0].revents && !fds[2].revents) {
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents)
            tracer_watch(session->tracer);
    }
    clear_progress(session);
    if (fds[0].revents)
        signals_stop_self();
    capture_resume(session->capture);
}

/* Handles what came; true when sampling is to end. */
static bool handle_signals(struct session *session)
{
    bool ends = false;
    int signal;
    while ((signal = signals_next(&session->signals))) {
        if (signal == SIGTSTP) {
            stop_self(session);
            continue;
        }
        if (signal == SIGQUIT) {
            session->quits = true;
            return true;
        }
        pass_on(session, signal);
        ends = true;
    }
    return ends;
}

static int poll_timeout_ms(const struct session *session, uint64_t now_ns)
{
    uint64_t wait_ns = session->shows_progress ? PROGRESS_PERIOD_NS : UINT64_MAX;
    if (session->options->duration_ns) {
        uint64_t end_ns = session->started_ns + session->options->duration_ns;
        uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    if (wait_ns > 60 * NS_PER_SEC)
        return 60000;
    return (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static bool is_over(const struct session *session)
{
    return session->options->duration_ns && clock_now_ns() - session->started_ns >= session->options->duration_ns;
}

/* All processes that the user named have ended. (With children, what is left of them may go on: the capture thread
 * tells.) */
static bool have_targets_ended(struct session *session)
{
    if (session->options->children)
        return false;
    for (size_t i = 0; i < session->attached_count; i++) {
        struct pollfd fd = {.fd = session->attached[i].pid_fd, .events = POLLIN};
        if (poll(&fd, 1, 0) != 1)
            return false;
    }
    return session->attached_count > 0;
}

enum { POLL_SIGNALS, POLL_TRACER, POLL_ENDED, POLL_PROGRAM, POLL_FIRST_TARGET };

static void watch_sampling(struct session *session)
{
    size_t count = POLL_FIRST_TARGET + session->attached_count;
    struct pollfd *fds = calloc(count, sizeof(*fds));
    if (!fds)
        return;
    fds[POLL_SIGNALS] = (struct pollfd){.fd = session->signals.fd, .events = POLLIN};
    fds[POLL_TRACER] = (struct pollfd){.fd = tracer_watch_fd(session->tracer), .events = POLLIN};
    fds[POLL_ENDED] = (struct pollfd){.fd = session->ended_fd, .events = POLLIN};
    fds[POLL_PROGRAM] = (struct pollfd){.fd = session->launch.pid_fd, .events = POLLIN};
    for (size_t i = 0; i < session->attached_count; i++)
        fds[POLL_FIRST_TARGET + i] = (struct pollfd){.fd = session->attached[i].pid_fd, .events = POLLIN};
    while (!is_over(session)) {
        if (poll(fds, count, poll_timeout_ms(session, clock_now_ns())) < 0 && errno != EINTR)
            break;
        if (fds[POLL_TRACER].revents)
            tracer_watch(session->tracer);
        if (fds[POLL_PROGRAM].revents)
            session->program_ended = true;
        if (handle_signals(session) || fds[POLL_ENDED].revents || session->program_ended || have_targets_ended(session))
            break;
        /* One that has ended stays readable: asked once, it must not turn this loop into a spin. */
        for (size_t i = POLL_FIRST_TARGET; i < count; i++)
            if (fds[i].revents)
                fds[i].fd = -1;
        draw_progress(session);
    }
    free(fds);
    clear_progress(session);
}

/* The capture thread may sit in a call that only we can free it from (tracer.h), so we keep watching until it has
 * ended. */
static void stop_sampling(struct session *session)
{
    capture_ask_stop(session->capture);
    struct pollfd fds[2] = {{.fd = tracer_watch_fd(session->tracer), .events = POLLIN},
                            {.fd = capture_done_fd(session->capture), .events = POLLIN}};
    while (!fds[1].revents) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            tracer_watch(session->tracer);
    }
    capture_join(session->capture);
    session->captured = true;
    int error = pipeline_stop(session->pipeline);
    if (error || capture_result(session->capture)->error)
        tell(session, "warning: samples were lost: %s",
             strerror(error ? -error : -capture_result(session->capture)->error));
}

/* ---- after ---- */

static bool gives_up(void *context)
{
    struct session *session = context;
    handle_signals(session);
    return session->signals.received >= 2;
}

static void warn_of_names(void *context, const char *text)
{
    const struct session *session = context;
    struct strbuf line = {0};
    strbuf_adds(&line, text);
    strbuf_make_line(&line);
    if (session->options->verbosity >= 0 && line.data)
        tell(session, "warning: %s", line.data);
    strbuf_deinit(&line);
}

static int name_profile(struct session *session)
{
    const struct options *options = session->options;
    uint64_t before_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t space_count;
    struct space *const *spaces = capture_spaces(session->capture, &space_count);
    struct symbolizer_options naming = options_naming(options);
    naming.is_cancelled = gives_up;
    naming.warn = warn_of_names;
    naming.context = session;
    int error = place_name_all(session->profile, session->images, spaces, space_count, &naming);
    session->symbol_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    const struct account *account = &capture_result(session->capture)->account;
    if (!error && options->output.value_ns)
        error = options->mode == MODE_CPU ? account_scale_profile(account, session->profile, options->thread_count == 0)
                                          : account_scale_states(account, session->profile);
    return error;
}

static int write_profile(struct session *session)
{
    int error = name_profile(session);
    if (error)
        return error;
    struct sink sink = {.is_cancelled = gives_up, .context = session, .cancel_fd = session->signals.fd};
    return results_write_profile(&session->results, session->profile, &sink);
}

/* Before the names, since it needs the same perf maps and takes no time. False: it was asked for and is lost. */
static bool finish_snapshots(struct session *session)
{
    if (!session->snapfile)
        return true;
    struct snapfile_totals totals = {.capture = capture_result(session->capture),
                                     .tracer = tracer_counters(session->tracer)};
    totals.spaces = capture_spaces(session->capture, &totals.space_count);
    int error = snapfile_finish(session->snapfile, &totals);
    if (!error)
        error = outfile_commit(&session->snapshots);
    if (error)
        tell(session, "cannot write to %s: %s", session->options->snapshots_path, strerror(-error));
    outfile_deinit(&session->snapshots);
    return !error;
}

/* False: it was asked for and is lost. */
static bool finish_stop_log(struct session *session)
{
    const char *path = session->options->stop_log_path;
    if (!session->stoplog)
        return true;
    int error = stoplog_finish(session->stoplog);
    bool is_short = error == -ENOBUFS;
    if (!error)
        error = outfile_commit(&session->stop_log_file);
    if (is_short)
        tell(session, "cannot write to %s: it takes longer than the stops that it tells of", path);
    else if (error)
        tell(session, "cannot write to %s: %s", path, strerror(-error));
    outfile_deinit(&session->stop_log_file);
    return !error;
}

/* The result of the whole in numbers, if there was one. */
static int tell_stats(struct session *session)
{
    struct stats stats = {.options = session->options,
                          .capture = capture_result(session->capture),
                          .pipeline = pipeline_counters(session->pipeline),
                          .tracer = tracer_counters(session->tracer),
                          .symbol_ns = session->symbol_ns};
    int error = results_write_stats(&session->results, &stats);
    if (error)
        tell(session, "cannot write to %s: %s", session->options->stats_path, strerror(-error));
    if (session->options->verbosity >= 0) {
        struct strbuf text = {0};
        stats_summary(&stats, &text);
        if (stats.pipeline->samples == 0)
            strbuf_addf(&text, "no samples: %s\n",
                        session->options->mode == MODE_CPU
                            ? "no thread was seen on a CPU (-m wall also counts blocked ones)"
                            : "no thread was seen at a tick");
        fputs(text.data ? text.data : "", stderr);
        strbuf_deinit(&text);
    }
    if (session->options->verbosity > 0) {
        struct strbuf text = {0};
        stats_json(&stats, &text);
        fputs(text.data ? text.data : "", stderr);
        strbuf_deinit(&text);
    }
    return error;
}

/* Something could not be sampled at all: says why. True when there were samples, and all of them were of that kind. */
static bool tell_refusals(struct session *session)
{
    const struct capture_result *result = capture_result(session->capture);
    const struct digest_counters *counters = pipeline_counters(session->pipeline);
    if (result->foreign_pid)
        tell(session, "cannot sample %d: a 32-bit program; only 64-bit ones are supported", (int)result->foreign_pid);
    if (result->refusal.pid) {
        struct strbuf why = {0};
        refusal_explain(&result->refusal, &why);
        tell(session, "cannot sample %d: %s", (int)result->refusal.pid, why.data ? why.data : "not permitted");
        strbuf_deinit(&why);
    }
    return counters->samples > 0 &&
           counters->samples == counters->failed[FAILURE_FOREIGN] + counters->failed[FAILURE_NOT_ALLOWED];
}

/* A few samples can all have fallen into a program's first and last moments, when it has no memory of its own. */
enum { TELLING_SAMPLES = 10 };

static bool is_momentary(enum failure failure)
{
    return failure == FAILURE_EXEC || failure == FAILURE_NO_MAPS;
}

/* A profile of failures alone is written, and one that lacks threads, but not in silence. */
static void tell_failures(const struct session *session)
{
    const struct digest_counters *counters = pipeline_counters(session->pipeline);
    enum failure most = FAILURE_NONE;
    uint64_t failed = 0;
    for (int i = FAILURE_NONE + 1; i < FAILURE_COUNT; i++) {
        failed += counters->failed[i];
        if (counters->failed[i] > counters->failed[most])
            most = (enum failure)i;
    }
    int look_error = capture_result(session->capture)->look_error;
    if (look_error)
        tell(session, "warning: threads could not be looked at: %s", strerror(-look_error));
    else if (failed && failed == counters->samples && (failed >= TELLING_SAMPLES || !is_momentary(most)))
        tell(session, "warning: no sample has a stack (%s)", failure_name(most));
}

static void tell_missing_helper(const struct session *session)
{
    const char *why = capture_why_no_helper(session->capture);
    if (why)
        tell(session,
             "warning: the program became another one (exec), or the helper has gone from it, and none could be put in "
             "again: %s",
             why);
}

static int finish_profile(struct session *session)
{
    size_t space_count;
    struct space *const *spaces = capture_spaces(session->capture, &space_count);
    for (size_t i = 0; i < space_count; i++)
        space_read_perfmap(spaces[i]);
    bool nothing = tell_refusals(session);
    bool saved = nothing || finish_snapshots(session);
    saved = finish_stop_log(session) && saved;
    if (!nothing)
        tell_failures(session);
    tell_missing_helper(session);
    int status = nothing || !saved ? STATUS_TROUBLE : 0;
    int error = nothing ? 0 : write_profile(session);
    if (error) {
        struct strbuf line = {0};
        status = results_explain(&session->results, error, &line);
        if (line.data)
            tell(session, "%s", line.data);
        strbuf_deinit(&line);
    }
    outfile_deinit(&session->results.output);
    if (tell_stats(session) && !status)
        status = STATUS_TROUBLE;
    return status;
}

/* Waits, silent, for the launched program and gives its status. */
static int wait_for_program(struct session *session)
{
    struct pollfd fds[2] = {{.fd = session->launch.pid_fd, .events = POLLIN},
                            {.fd = session->signals.fd, .events = POLLIN}};
    while (!session->program_reaped) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents)
            handle_signals(session);
        if (!fds[0].revents)
            continue;
        int error = tracer_reap_child(session->launch.pid, &session->program_exit);
        if (error == -EAGAIN)
            poll(&fds[1], 1, REAP_RETRY_MS); /* another tracer has it, and reaps first */
        else
            session->program_reaped = true;
        if (error && error != -EAGAIN) {
            tell(session, "the program's exit status was lost: %s", strerror(-error));
            return STATUS_TROUBLE;
        }
    }
    return wait_exit_status(&session->program_exit);
}

/* ---- the whole ---- */

static int prepare(struct session *session)
{
    const struct options *options = session->options;
    int error = tracer_check_allowed();
    if (error) {
        tell(session,
             "cannot sample: ptrace and process_vm_readv are forbidden to this process (%s), by a seccomp filter as "
             "containers have it; run outside of it, or give the container CAP_SYS_PTRACE or another seccomp profile",
             strerror(-error));
        return error;
    }
    error = open_outputs(session);
    if (!error && options->program)
        error = launch(session);
    if (!error)
        error = attach_all(session);
    if (!error && options->helper)
        error = inject_all(session);
    if (error)
        return error;
    /* Every thread costs two descriptors, every image one. The launched child was forked before and keeps its limits.
     */
    fileio_raise_limit();
    /* Before the child's exec: whatever it starts is told. */
    session->sideband =
        watch_open_events(options->events, options->children, options->program ? session->launch.pid : 0);
    error = signals_init(&session->signals, true);
    if (error)
        tell(session, "cannot set up signals: %s", strerror(-error));
    return error;
}

static int run(struct session *session)
{
    const struct options *options = session->options;
    if (prepare(session))
        return STATUS_TROUBLE;
    if (options->program) {
        int error = launch_go(&session->launch);
        if (error) {
            tell(session, "cannot run %s: %s", options->program[0], strerror(-error));
            return launch_failure_status(options->program[0], error);
        }
    }
    int error = start_sampling(session);
    int status = STATUS_TROUBLE;
    if (error) {
        tell(session, "cannot sample: %s", error == -ESRCH ? "the process has ended" : strerror(-error));
    } else {
        watch_sampling(session);
        stop_sampling(session);
    }
    signals_allow_quit();
    if (session->quits)
        return STATUS_TROUBLE;
    if (!error)
        status = finish_profile(session);
    return options->program ? wait_for_program(session) : status;
}

static void session_deinit(struct session *session)
{
    if (session->capture)
        capture_free(session->capture);
    pipeline_free(session->pipeline);
    helperlinks_deinit(&session->links, !session->capture);
    tracer_free(session->tracer);
    sideband_free(session->sideband);
    images_free(session->images);
    profile_free(session->profile);
    signals_deinit(&session->signals);
    launch_deinit(&session->launch);
    for (size_t i = 0; i < session->attached_count; i++) {
        close(session->attached[i].pid_fd);
        if (session->attached[i].proc_fd >= 0)
            close(session->attached[i].proc_fd);
    }
    free(session->attached);
    if (session->ended_fd >= 0)
        close(session->ended_fd);
    snapfile_free(session->snapfile);
    outfile_deinit(&session->snapshots);
    stoplog_free(session->stoplog);
    outfile_deinit(&session->stop_log_file);
    results_deinit(&session->results);
}

int session_run(const struct options *options)
{
    struct session session = {
        .options = options,
        .results = {.output = {.fd = -1}, .stats_file = {.fd = -1}},
        .snapshots = {.fd = -1},
        .stop_log_file = {.fd = -1},
        .launch = {.pid = -1, .pid_fd = -1, .go_fd = -1, .outcome_fd = -1},
        .signals = {.fd = -1, .write_fd = -1},
        .ended_fd = -1,
        .shows_progress = options->verbosity >= 0 && isatty(STDERR_FILENO),
    };
    int status = run(&session);
    session_deinit(&session);
    if (session.quits)
        signals_quit();
    return status;
}
