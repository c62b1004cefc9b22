#include "sampler/report.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/digest.h"
#include "sampler/place.h"
#include "sampler/results.h"
#include "sampler/signals.h"
#include "sampler/snapread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Spaces that the unwinder keeps something of at one time (48 KiB each): a file may have any number that never end. */
enum { LIVE_SPACES = 1024 };

struct report {
    struct options options; /* with what the file says where the user said nothing; not owned */
    struct results results;
    struct signals signals;
    struct snapread *read;
    struct profile *profile;
    struct digest digest;
    struct space *live[LIVE_SPACES];
    size_t live_next;
    bool is_whole;
    uint64_t symbol_ns;
};

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *format, ...)
{
    struct strbuf line = {0};
    va_list args;
    va_start(args, format);
    strbuf_vaddf(&line, format, args);
    va_end(args);
    strbuf_make_line(&line);
    fprintf(stderr, "sampler: %s\n", line.data ? line.data : "out of memory");
    strbuf_deinit(&line);
}

static void warn(void *context, const char *text)
{
    const struct report *report = context;
    if (report->options.verbosity >= 0)
        tell("warning: %s", text);
}

static bool gives_up(void *context)
{
    struct report *report = context;
    int signal;
    while ((signal = signals_next(&report->signals)))
        if (signal == SIGTSTP)
            signals_stop_self();
    return report->signals.received > 0;
}

/* ---- samples ---- */

/* Makes room for what the unwinder is about to keep of this space. */
static void make_room(struct report *report, struct space *space)
{
    if (space->unwind)
        return;
    struct space **slot = &report->live[report->live_next++ % LIVE_SPACES];
    if (*slot) {
        unwind_space_free((*slot)->unwind);
        (*slot)->unwind = NULL;
    }
    *slot = space;
}

static int add_item(struct report *report, struct item *item)
{
    if (item->kind == ITEM_SPACE_END) {
        space_close(item->space);
        return 0;
    }
    if (item->kind == ITEM_REPEAT)
        return digest_repeat(&report->digest, item);
    if (!options_want_thread(&report->options, item->thread->tid, item->comm)) {
        item->thread->outcome.is_known = false; /* its repetitions are not wanted either */
        return 0;
    }
    if (item->failure == FAILURE_NONE)
        make_room(report, item->space);
    struct memory_reader reader = snapread_reader(report->read, item->space);
    return digest_add(&report->digest, item, &reader);
}

static int add_items(struct report *report)
{
    uint64_t before_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (;;) {
        struct item item;
        enum snapread_answer answer;
        int error = gives_up(report) ? -ECANCELED : snapread_next(report->read, &item, &answer);
        if (!error && answer == SNAPREAD_ITEM)
            error = add_item(report, &item);
        if (error)
            return error;
        if (answer == SNAPREAD_ITEM)
            continue;
        report->is_whole = answer == SNAPREAD_WHOLE;
        if (!report->is_whole)
            tell("warning: %s is %s at byte %llu: the profile has what stands before", report->options.report_path,
                 answer == SNAPREAD_CUT ? "cut off" : "damaged", (unsigned long long)snapread_offset(report->read));
        digest_finish(&report->digest, clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
        return 0;
    }
}

/* ---- the profile ---- */

/* CPU times of the threads that the user chose. */
static int scale(struct report *report)
{
    const struct account *all = &snapread_capture(report->read)->account;
    struct account chosen = *all;
    chosen.totals = calloc(all->total_count + 1, sizeof(*chosen.totals));
    if (!chosen.totals)
        return -ENOMEM;
    chosen.total_count = 0;
    for (size_t i = 0; i < all->total_count; i++)
        if (options_want_thread(&report->options, all->totals[i].shared->tid, all->totals[i].comm))
            chosen.totals[chosen.total_count++] = all->totals[i];
    int error = report->options.mode == MODE_CPU
                    ? account_scale_profile(&chosen, report->profile, report->options.thread_count == 0)
                    : account_scale_states(&chosen, report->profile);
    free(chosen.totals);
    return error;
}

static int name_and_write(struct report *report)
{
    size_t space_count;
    struct space *const *spaces = snapread_spaces(report->read, &space_count);
    uint64_t before_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    struct symbolizer_options naming = options_naming(&report->options);
    naming.is_cancelled = gives_up;
    naming.warn = warn;
    naming.context = report;
    int error = place_name_all(report->profile, snapread_images(report->read), spaces, space_count, &naming);
    report->symbol_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    if (!error && report->options.output.value_ns)
        error = scale(report);
    if (error)
        return error;
    struct sink sink = {.is_cancelled = gives_up, .context = report, .cancel_fd = report->signals.fd};
    return results_write_profile(&report->results, report->profile, &sink);
}

static int tell_stats(struct report *report)
{
    struct stats stats = {.options = &report->options,
                          .capture = snapread_capture(report->read),
                          .pipeline = &report->digest.counters,
                          .tracer = snapread_tracer(report->read),
                          .symbol_ns = report->symbol_ns};
    int error = results_write_stats(&report->results, &stats);
    if (error)
        tell("cannot write to %s: %s", report->options.stats_path, strerror(-error));
    if (report->options.verbosity >= 0) {
        struct strbuf text = {0};
        strbuf_addf(&text, "%llu samples, %llu failed, %llu truncated\n", (unsigned long long)stats.pipeline->samples,
                    (unsigned long long)stats_failed(&stats), (unsigned long long)stats_truncated(&stats));
        if (report->options.verbosity > 0)
            stats_json(&stats, &text);
        fputs(text.data ? text.data : "", stderr);
        strbuf_deinit(&text);
    }
    return error;
}

/* ---- the whole ---- */

/* What the user left open is as it was in the run. */
static void take_over_run(struct report *report)
{
    const struct snapread_run *run = snapread_run(report->read);
    struct options *options = &report->options;
    options->mode = run->is_wall ? MODE_WALL : MODE_CPU;
    options->rate_hz = run->rate_hz;
    if (!options->unwind_given)
        options->unwind = run->unwind;
    if (!options->max_depth)
        options->max_depth = run->max_depth;
}

static int open_snapshots(struct report *report, int fd)
{
    const char *path = report->options.report_path;
    int error = snapread_open(fd, warn, report, &report->read);
    if (error == -ENOTSUP)
        tell("cannot read %s: a snapshot file of another version", path);
    else if (error == -EBADMSG)
        tell("cannot read %s: the beginning of the file is damaged", path);
    else if (error)
        tell("cannot read %s: %s", path, strerror(-error));
    return error;
}

static int report_snapshots(struct report *report, int fd)
{
    if (open_snapshots(report, fd))
        return STATUS_TROUBLE;
    take_over_run(report);
    report->profile = profile_new();
    int error = report->profile
                    ? digest_init(&report->digest, report->options.unwind, report->options.max_depth, report->profile)
                    : -ENOMEM;
    if (!error)
        error = add_items(report);
    if (error && error != -ECANCELED) {
        tell("cannot read %s: %s", report->options.report_path, strerror(-error));
        return STATUS_TROUBLE;
    }
    if (!error && !report->is_whole && report->options.output.value_ns && report->options.mode == MODE_CPU) {
        tell("cannot tell nanoseconds: %s is not whole and lacks the CPU times (--value samples needs none)",
             report->options.report_path);
        return STATUS_TROUBLE;
    }
    int status = 0;
    if (!error)
        error = name_and_write(report);
    if (error) {
        struct strbuf line = {0};
        status = results_explain(&report->results, error, &line);
        if (line.data)
            tell("%s", line.data);
        strbuf_deinit(&line);
        return status;
    }
    return tell_stats(report) ? STATUS_TROUBLE : 0;
}

/* Files of other kinds get their case here. */
static int report_file(struct report *report, int fd)
{
    char magic[16];
    ssize_t got = fileio_pread(fd, magic, sizeof(magic), 0);
    if (got >= 0 && snapread_is_magic(magic, (size_t)got))
        return report_snapshots(report, fd);
    tell("cannot read %s: %s", report->options.report_path,
         got < 0 ? strerror((int)-got) : "not a file that the sampler has saved");
    return STATUS_TROUBLE;
}

static int run(struct report *report)
{
    const struct options *options = &report->options;
    /* Without waiting, should it be a FIFO. */
    autoclose int fd = open(options->report_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        tell("cannot read %s: %s", options->report_path, strerror(errno));
        return STATUS_TROUBLE;
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        tell("cannot read %s: not a regular file", options->report_path);
        return STATUS_TROUBLE;
    }
    const char *name;
    int error = results_open(&report->results, options, &name);
    if (error) {
        tell("cannot write to %s: %s", name, strerror(-error));
        return STATUS_TROUBLE;
    }
    fileio_raise_limit();
    error = signals_init(&report->signals, false);
    if (error) {
        tell("cannot set up signals: %s", strerror(-error));
        return STATUS_TROUBLE;
    }
    return report_file(report, fd);
}

int report_run(const struct options *options)
{
    struct report *report = calloc(1, sizeof(*report));
    if (!report) {
        tell("out of memory");
        return STATUS_TROUBLE;
    }
    report->options = *options;
    report->results = (struct results){.output = {.fd = -1}, .stats_file = {.fd = -1}};
    report->signals = (struct signals){.fd = -1, .write_fd = -1};
    int status = run(report);
    digest_deinit(&report->digest);
    profile_free(report->profile);
    snapread_free(report->read);
    signals_deinit(&report->signals);
    results_deinit(&report->results);
    free(report);
    return status;
}
