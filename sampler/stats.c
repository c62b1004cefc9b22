#include "sampler/stats.h"

#include "common/clock.h"

uint64_t stats_failed(const struct stats *stats)
{
    uint64_t failed = 0;
    for (int i = FAILURE_NONE + 1; i < FAILURE_COUNT; i++)
        failed += stats->pipeline->failed[i];
    return failed;
}

uint64_t stats_truncated(const struct stats *stats)
{
    uint64_t truncated = 0;
    for (int i = STACK_COMPLETE + 1; i < STACK_END_COUNT; i++)
        truncated += stats->pipeline->ends[i];
    return truncated;
}

/* Names of fields are ours and numbers need no escaping, so printing is all there is to JSON here. */
static void add_number(struct strbuf *text, const char *name, uint64_t value)
{
    strbuf_addf(text, "%s\n  \"%s\": %llu", text->size > 1 ? "," : "", name, (unsigned long long)value);
}

static void add_part(struct strbuf *text, const char *name, uint64_t value, bool *first)
{
    strbuf_addf(text, "%s\"%s\": %llu", *first ? "" : ", ", name, (unsigned long long)value);
    *first = false;
}

static void add_failures(const struct stats *stats, struct strbuf *text)
{
    bool first = true;
    strbuf_adds(text, ",\n  \"samples_failed\": {");
    for (int i = FAILURE_NONE + 1; i < FAILURE_COUNT; i++)
        if (stats->pipeline->failed[i])
            add_part(text, failure_name((enum failure)i), stats->pipeline->failed[i], &first);
    strbuf_adds(text, "}");
    add_number(text, "samples_truncated", stats_truncated(stats));
    first = true;
    strbuf_adds(text, ",\n  \"truncated_by\": {");
    for (int i = STACK_COMPLETE + 1; i < STACK_END_COUNT; i++)
        if (stats->pipeline->ends[i])
            add_part(text, stack_end_name((enum stack_end)i), stats->pipeline->ends[i], &first);
    strbuf_adds(text, "}");
}

static void add_histogram(struct strbuf *text, const char *name, const struct histogram *histogram)
{
    bool first = true;
    strbuf_addf(text, ",\n  \"%s\": {", name);
    add_part(text, "p50", histogram_percentile(histogram, 50), &first);
    add_part(text, "p90", histogram_percentile(histogram, 90), &first);
    add_part(text, "p99", histogram_percentile(histogram, 99), &first);
    add_part(text, "max", histogram->max, &first);
    add_part(text, "sum", histogram->sum, &first);
    strbuf_adds(text, "}");
}

static void add_stops(const struct stats *stats, struct strbuf *text)
{
    add_number(text, "stops", stats->tracer->stops);
    add_histogram(text, "stop_ns", &stats->tracer->stop_ns);
    add_histogram(text, "held_ns", &stats->tracer->held_ns);
    add_number(text, "copies_cut", stats->tracer->copies_cut);
    add_number(text, "stop_timeouts", stats->tracer->timeouts);
    add_number(text, "eintr_restarted", stats->tracer->eintr_restarted);
    add_number(text, "signals_forwarded", stats->tracer->signals_forwarded);
    add_number(text, "group_stops", stats->tracer->group_stops);
}

static void add_frames(const struct stats *stats, struct strbuf *text)
{
    const struct unwind_counters *unwind = &stats->pipeline->unwind;
    const uint64_t *by = unwind->frames_by;
    bool first = true;
    add_number(text, "frames", stats->pipeline->frames);
    strbuf_adds(text, ",\n  \"frames_by\": {");
    add_part(text, "fp", by[FRAME_BY_FP], &first);
    add_part(text, "cfi", by[FRAME_BY_CFI], &first);
    add_part(text, "libunwind", by[FRAME_BY_LIBUNWIND], &first);
    add_part(text, "inspection", by[FRAME_BY_INSPECTION], &first);
    add_part(text, "helper", stats->pipeline->frames_by_helper, &first);
    strbuf_adds(text, "}");
    strbuf_adds(text, ",\n  \"unwind_rules\": {");
    first = true;
    add_part(text, "hits", unwind->rule_hits, &first);
    add_part(text, "row_hits", unwind->rule_row_hits, &first);
    add_part(text, "compiled", unwind->rules_compiled, &first);
    add_part(text, "uncovered", unwind->rules_uncovered, &first);
    add_part(text, "bad", unwind->rules_bad, &first);
    add_part(text, "foreign", unwind->rules_foreign, &first);
    add_part(text, "flushes", unwind->rule_flushes, &first);
    add_part(text, "kept", unwind->rules, &first);
    add_part(text, "bytes", unwind->rule_bytes, &first);
    strbuf_adds(text, "}");
}

/* Not there where all was seen from outside. */
static void add_helper(const struct helper_counters *helper, struct strbuf *text)
{
    if (!helper->is_there)
        return;
    bool first = true;
    strbuf_adds(text, ",\n  \"helper\": {");
    add_part(text, "samples", helper->walked + helper->copied, &first);
    add_part(text, "walked", helper->walked, &first);
    add_part(text, "copied", helper->copied, &first);
    add_part(text, "lost", helper->lost, &first);
    add_part(text, "no_room", helper->no_room, &first);
    add_part(text, "blocked", helper->blocked, &first);
    add_part(text, "late", helper->late, &first);
    add_part(text, "faults", helper->faults, &first);
    add_part(text, "by_call", helper->by_call, &first);
    add_part(text, "eintr", helper->eintr, &first);
    add_part(text, "timers", helper->timers, &first);
    add_part(text, "timers_failed", helper->timers_failed, &first);
    add_part(text, "resets", helper->resets, &first);
    add_part(text, "execs", helper->execs, &first);
    add_part(text, "gone", helper->gone, &first);
    add_part(text, "missing", helper->missing, &first);
    add_histogram(text, "handler_ns", &helper->handler_ns);
    add_histogram(text, "delivery_ns", &helper->delivery_ns);
    strbuf_adds(text, "}");
}

/* Not there in a report: no one watched. */
static void add_events(const struct watch_counters *events, struct strbuf *text)
{
    static const char *const names[] = {
        [WATCH_PROC] = "proc", [WATCH_PERF] = "perf", [WATCH_PERF_THREADS] = "perf-threads"};
    if (events->source == WATCH_UNKNOWN)
        return;
    strbuf_addf(text, ",\n  \"events\": \"%s\"", names[events->source]);
    add_number(text, "events_lost", events->lost);
    add_number(text, "events_repairs", events->repairs);
}

static void add_process(struct strbuf *text, const struct process_total *process, bool *first)
{
    strbuf_addf(text, "%s\n    {\"pid\": %d, \"name\": \"", *first ? "" : ",", (int)process->pid);
    for (const char *byte = process->comm; *byte; byte++) { /* any bytes may stand there */
        if (*byte == '"' || *byte == '\\' || *byte < ' ')
            strbuf_addf(text, "\\u%04x", (unsigned)(unsigned char)*byte);
        else
            strbuf_add(text, byte, 1);
    }
    strbuf_addf(text, "\", \"run_ns\": %llu, \"wait_ns\": %llu}", (unsigned long long)process->run_ns,
                (unsigned long long)process->wait_ns);
    *first = false;
}

/* Do they need more CPUs? Not there in a report. */
static void add_waits(const struct account *account, struct strbuf *text)
{
    bool first = true;
    add_number(text, "wait_ns_target", account->wait_ns_threads);
    if (!account->process_count)
        return;
    strbuf_adds(text, ",\n  \"processes\": [");
    for (size_t i = 0; i < account->process_count; i++)
        add_process(text, &account->processes[i], &first);
    if (account->other_process_count)
        add_process(text, &account->other_processes, &first);
    strbuf_adds(text, "]");
}

static void add_crowd(struct strbuf *text, const char *name, const struct crowd *crowd, uint64_t ticks)
{
    strbuf_addf(text, ",\n  \"%s\": {\"mean\": %.2f, \"most\": %llu}", name,
                ticks ? (double)crowd->sum / (double)ticks : 0.0, (unsigned long long)crowd->most);
}

static void add_crowds(const struct capture_result *capture, struct strbuf *text)
{
    add_crowd(text, "threads_live", &capture->live, capture->ticker.ticks);
    add_crowd(text, "threads_eligible", &capture->eligible, capture->ticker.ticks);
    add_number(text, "left_out", capture->left_out);
    strbuf_addf(text, ",\n  \"overhead_percent\": %.3f", 100 * capture->overhead);
}

void stats_json(const struct stats *stats, struct strbuf *ret_text)
{
    const struct capture_result *capture = stats->capture;
    strbuf_adds(ret_text, "{");
    add_number(ret_text, "ticks", capture->ticker.ticks);
    add_number(ret_text, "ticks_late", capture->ticker.late);
    add_number(ret_text, "ticks_missed", capture->ticker.missed);
    add_number(ret_text, "ticks_skipped", capture->ticker.skipped);
    add_number(ret_text, "ticks_in_gaps", capture->ticker.gap);
    add_number(ret_text, "samples", stats->pipeline->samples);
    add_failures(stats, ret_text);
    add_number(ret_text, "threads_seen", capture->threads_seen);
    add_number(ret_text, "threads_vanished", capture->threads_vanished);
    add_number(ret_text, "threads_unsampled", capture->account.threads_unsampled);
    add_number(ret_text, "processes_seen", capture->processes_seen);
    add_number(ret_text, "execs", capture->execs);
    add_events(&capture->events, ret_text);
    add_stops(stats, ret_text);
    add_helper(&capture->helper, ret_text);
    add_number(ret_text, "cpu_ns_target", capture->account.cpu_ns_target);
    add_number(ret_text, "cpu_ns_sampled", capture->account.cpu_ns_sampled);
    add_number(ret_text, "wall_ns", capture->wall_ns);
    add_waits(&capture->account, ret_text);
    add_crowds(capture, ret_text);
    add_frames(stats, ret_text);
    add_number(ret_text, "symbol_ns", stats->symbol_ns);
    add_number(ret_text, "unwind_ns", stats->pipeline->unwind_ns);
    add_number(ret_text, "unstopped", stats->pipeline->unstopped);
    add_number(ret_text, "inferred", stats->pipeline->inferred);
    add_number(ret_text, "kept", stats->pipeline->kept);
    add_number(ret_text, "sleeps", capture->sleeps);
    add_number(ret_text, "stopped_asleep", capture->stopped_asleep);
    add_number(ret_text, "registers_by_bpf", stats->pipeline->by_bpf);
    add_number(ret_text, "interrupted", capture->interrupted_ns.count);
    add_histogram(ret_text, "interrupted_ns", &capture->interrupted_ns);
    add_number(ret_text, "stopped", stats->tracer->stops);
    add_number(ret_text, "rate_hz", stats->options->rate_hz);
    strbuf_addf(ret_text, ",\n  \"mode\": \"%s\"\n}\n", stats->options->mode == MODE_WALL ? "wall" : "cpu");
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_SEC;
}

static void add_other_tracer(const struct stats *stats, struct strbuf *text)
{
    const struct othertracer *other = &stats->capture->other_tracer;
    uint64_t failed = stats->pipeline->failed[FAILURE_TRACED];
    if (!other->target_pid)
        return;
    strbuf_addf(text, "%d was traced by ", (int)other->target_pid);
    if (other->pid)
        strbuf_addf(text, "PID %d (%s)", (int)other->pid, other->comm[0] ? other->comm : "?");
    else
        strbuf_adds(text, "another process");
    strbuf_addf(text, " meanwhile and was not stopped then: %llu samples without a stack\n",
                (unsigned long long)failed);
}

static bool waits_more(const struct process_total *a, const struct process_total *b)
{
    return a->wait_ns > b->wait_ns || (a->wait_ns == b->wait_ns && a->run_ns > b->run_ns);
}

static void add_run_and_wait(struct strbuf *text, uint64_t run_ns, uint64_t wait_ns)
{
    strbuf_addf(text, "ran %.2f s, waited %.2f s", seconds(run_ns), seconds(wait_ns));
}

/* Those processes that waited longest for a CPU, and the rest together. */
static void add_waiting(const struct account *account, struct strbuf *text)
{
    enum { SHOWN = 3 };
    const struct process_total *shown[SHOWN];
    size_t count = 0;
    struct process_total rest = account->other_processes;
    for (size_t i = 0; i < account->process_count; i++) {
        const struct process_total *process = &account->processes[i];
        rest.run_ns += process->run_ns;
        rest.wait_ns += process->wait_ns;
        size_t at = count;
        while (at > 0 && waits_more(process, shown[at - 1]))
            at--;
        if (at == SHOWN)
            continue;
        count += count < SHOWN;
        for (size_t j = count; j-- > at + 1;)
            shown[j] = shown[j - 1];
        shown[at] = process;
    }
    if (!count)
        return;
    strbuf_adds(text, "on CPUs: ");
    for (size_t i = 0; i < count; i++) {
        strbuf_addf(text, "%s%d (", i ? "; " : "", (int)shown[i]->pid);
        for (const char *byte = shown[i]->comm; *byte; byte++)
            strbuf_add(text, (unsigned char)*byte < ' ' ? "?" : byte, 1);
        strbuf_adds(text, ") ");
        add_run_and_wait(text, shown[i]->run_ns, shown[i]->wait_ns);
        rest.run_ns -= shown[i]->run_ns;
        rest.wait_ns -= shown[i]->wait_ns;
    }
    size_t others = account->process_count - count + account->other_process_count;
    if (others) {
        strbuf_addf(text, "; %zu others ", others);
        add_run_and_wait(text, rest.run_ns, rest.wait_ns);
    }
    strbuf_adds(text, "\n");
}

/* What was asked for as bounds, where it was used. */
static void add_bounds(const struct stats *stats, struct strbuf *text)
{
    const struct capture_result *capture = stats->capture;
    if (capture->left_out)
        strbuf_addf(text, "%llu of %llu runnable threads were left out (--max-stops %zu); the others count for them\n",
                    (unsigned long long)capture->left_out, (unsigned long long)capture->eligible.sum,
                    stats->options->max_stops);
    if (stats->options->overhead > 0)
        strbuf_addf(text, "sampling took %.2f %% of a CPU (--overhead %.2f); %llu of %llu ticks were left out for it\n",
                    100 * capture->overhead, 100 * stats->options->overhead,
                    (unsigned long long)capture->ticker.skipped,
                    (unsigned long long)(capture->ticker.ticks + capture->ticker.skipped));
}

static void add_helper_line(const struct helper_counters *helper, struct strbuf *text)
{
    strbuf_addf(text, "helper: handler p50 %llu us, p99 %llu us, %llu lost\n",
                (unsigned long long)(histogram_percentile(&helper->handler_ns, 50) / NS_PER_US),
                (unsigned long long)(histogram_percentile(&helper->handler_ns, 99) / NS_PER_US),
                (unsigned long long)helper->lost);
    if (helper->blocked)
        strbuf_addf(text, "%llu of the samples fell into times when the signal was blocked: where is not known\n",
                    (unsigned long long)helper->blocked);
    if (helper->timers_failed)
        strbuf_addf(text, "%llu threads have no timer: there are no more (ulimit -i)\n",
                    (unsigned long long)helper->timers_failed);
}

void stats_summary(const struct stats *stats, struct strbuf *ret_text)
{
    const struct capture_result *capture = stats->capture;
    const struct histogram *stop_ns = &stats->tracer->stop_ns;
    strbuf_addf(
        ret_text, "%llu ticks, %llu samples (%llu ticks late, %llu missed), %llu failed, %llu truncated, %.1f s; ",
        (unsigned long long)capture->ticker.ticks, (unsigned long long)stats->pipeline->samples,
        (unsigned long long)capture->ticker.late, (unsigned long long)capture->ticker.missed,
        (unsigned long long)stats_failed(stats), (unsigned long long)stats_truncated(stats), seconds(capture->wall_ns));
    if (stats->options->mode == MODE_CPU)
        strbuf_addf(ret_text, "CPU %.2f s of %.2f s sampled; ", seconds(capture->account.cpu_ns_sampled),
                    seconds(capture->account.cpu_ns_target));
    else
        strbuf_addf(ret_text, "%llu threads; ", (unsigned long long)capture->threads_seen);
    if (capture->helper.is_there)
        add_helper_line(&capture->helper, ret_text);
    else
        strbuf_addf(ret_text, "stops %llu, p50 %llu us, p99 %llu us\n", (unsigned long long)stats->tracer->stops,
                    (unsigned long long)(histogram_percentile(stop_ns, 50) / NS_PER_US),
                    (unsigned long long)(histogram_percentile(stop_ns, 99) / NS_PER_US));
    add_waiting(&capture->account, ret_text);
    add_bounds(stats, ret_text);
    add_other_tracer(stats, ret_text);
    if (capture->ticker.missed * 100 > capture->ticker.ticks)
        strbuf_addf(ret_text, "%.2f s without a tick%s\n", (double)capture->ticker.missed / capture->ticker.rate_hz,
                    stats->options->mode == MODE_CPU && !stats->options->output.value_ns
                        ? ": the CPU time in them is in no sample"
                        : "");
}
