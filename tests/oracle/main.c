/*
 * oracle -p PID | -- PROGRAM ARGS: three unwinders on the same stopped thread, again and again.
 * With -s only sleeping threads are stopped.
 *
 * At each stop our unwinder walks the copy of the thread's stack, as in the sampler, and libdwfl and libunwind-ptrace
 * walk the thread itself. judge.h says how they are compared, tally.h what is printed.
 */
#include "common/clock.h"
#include "common/fileio.h"
#include "common/parse.h"
#include "common/rng.h"
#include "judge.h"
#include "peer_libunwind.h"
#include "sampler/procfs.h"
#include "tally.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* With nothing running, one tick in so many stops a sleeping thread: for its program that is an interrupted call. */
enum { TICKS_A_SLEEPER = 8 };
/* Ticks in a row without a stop after which it is given up. */
enum { TICKS_IN_VAIN = 2000 };

struct oracle {
    pid_t pid;
    uint64_t stops;
    uint64_t rate_hz;
    enum unwind_mode mode;
    const char *json_path;
    char **program;
    bool verbose;
    bool only_sleeping;

    struct target target;
    struct peer_libdwfl *libdwfl;
    struct peer_libunwind *libunwind;
    struct trace ours;
    struct trace reduced;
    struct trace theirs[PEER_COUNT];
    struct tally tally;
    struct rng rng;
    uint64_t ticks_idle;
};

static const char usage[] = "usage: oracle [-n STOPS] [-r HZ] [-u auto|fp|dwarf] [--json FILE] [--save DIR] [-s] [-v] "
                            "-p PID | -- PROGRAM [ARGS]\n";

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- choosing a thread ---- */

struct choice {
    struct oracle *oracle;
    uint64_t running;
    uint64_t others;
    pid_t running_tid;
    pid_t other_tid;
};

/* One of all with equal chances, in one pass. */
static int look_at_thread(void *context, pid_t tid)
{
    struct choice *choice = context;
    struct procfs_stat stat;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
    if (procfs_read_stat(choice->oracle->target.proc_fd, path, &stat) < 0)
        return 0;
    if (stat.state == 'R' && rng_below(&choice->oracle->rng, ++choice->running) == 0)
        choice->running_tid = tid;
    else if (strchr("ST", stat.state) && rng_below(&choice->oracle->rng, ++choice->others) == 0)
        choice->other_tid = tid;
    return 0;
}

/* Returns the thread id, 0 for none at this tick, or -ESRCH. */
static pid_t choose_thread(struct oracle *oracle, bool *ret_sleeping)
{
    struct choice choice = {.oracle = oracle};
    procfs_each_thread(oracle->target.proc_fd, look_at_thread, &choice);
    if (oracle->only_sleeping)
        choice.running_tid = 0;
    *ret_sleeping = choice.running_tid == 0;
    if (choice.running_tid)
        return choice.running_tid;
    if (!choice.other_tid && procfs_is_dead(oracle->target.proc_fd))
        return -ESRCH;
    if (oracle->only_sleeping)
        return choice.other_tid;
    return oracle->ticks_idle++ % TICKS_A_SLEEPER == TICKS_A_SLEEPER - 1 ? choice.other_tid : 0;
}

/* ---- one stop ---- */

static int walk_peers(struct oracle *oracle, const struct stop *stop)
{
    struct trace *libunwind = &oracle->theirs[PEER_LIBUNWIND];
    peer_libdwfl_walk(oracle->libdwfl, &oracle->theirs[PEER_LIBDWFL]);
    peer_libunwind_walk(oracle->libunwind, stop->tid, true, libunwind);
    size_t count = libunwind->count;
    if (count == oracle->ours.count && trace_common(&oracle->ours, count, libunwind, count) == count)
        return 0;
    struct trace fresh;
    int error = trace_init(&fresh);
    if (error)
        return error;
    peer_libunwind_walk(oracle->libunwind, stop->tid, false, &fresh);
    if (fresh.count != count || trace_common(&fresh, count, libunwind, count) != count) {
        oracle->tally.libunwind_cache_wrong++;
        struct trace stale = *libunwind;
        *libunwind = fresh;
        fresh = stale;
    }
    trace_deinit(&fresh);
    return 0;
}

static void print_stop(const struct oracle *oracle, const struct comparison *comparison, pid_t tid)
{
    const struct judgement *judgement = &comparison->judgement;
    fprintf(stderr, "thread %d: ours %zu %s, libdwfl %zu %s, libunwind %zu %s: %s", (int)tid, oracle->ours.count,
            oracle->ours.end, oracle->theirs[PEER_LIBDWFL].count, oracle->theirs[PEER_LIBDWFL].end,
            oracle->theirs[PEER_LIBUNWIND].count, oracle->theirs[PEER_LIBUNWIND].end, kind_name(judgement->kind));
    if (judgement->kind != KIND_SAME)
        fprintf(stderr, " at frame %zu", judgement->at);
    fprintf(stderr, "\n");
}

/* Our two walks. */
static void print_difference(const struct oracle *oracle, pid_t tid)
{
    const struct trace *traces[] = {&oracle->ours, &oracle->reduced};
    size_t longer = oracle->ours.count > oracle->reduced.count ? oracle->ours.count : oracle->reduced.count;
    fprintf(stderr, "thread %d: with all registers (%s), and without (%s):\n", (int)tid, oracle->ours.end,
            oracle->reduced.end);
    for (size_t i = 0; i < longer; i++) {
        for (size_t t = 0; t < 2; t++) {
            char place[128] = "";
            if (i < traces[t]->count)
                target_place(&oracle->target, traces[t]->frames[i].avma, place, sizeof(place));
            fprintf(stderr, " %-40s", place);
        }
        fprintf(stderr, "\n");
    }
}

/* Returns 0 or a negative errno; -ESRCH and -EFAULT: no stack to compare. */
static int compare(struct oracle *oracle, const struct stop *stop)
{
    struct target *target = &oracle->target;
    struct space *space = target_space(target);
    bool code_changed;
    int error = target_refresh(target, stop->tid, &code_changed);
    if (!error && code_changed) {
        peer_libunwind_flush(oracle->libunwind);
        error = peer_libdwfl_report(oracle->libdwfl, target_space(target) != space);
    }
    if (!error)
        error = target_copy(target, stop);
    if (!error)
        error = target_walk(target, &oracle->ours);
    if (!error)
        error = walk_peers(oracle, stop);
    if (error)
        return error;
    struct comparison comparison = {.target = target,
                                    .ours = &oracle->ours,
                                    .peers = {&oracle->theirs[PEER_LIBDWFL], &oracle->theirs[PEER_LIBUNWIND]}};
    comparison.judgement = judge(target, oracle->libdwfl, comparison.ours, comparison.peers);
    if (target_has_moved(target, stop->tid)) {
        oracle->tally.moved++;
        return 0;
    }
    if (oracle->verbose)
        print_stop(oracle, &comparison, stop->tid);
    error = tally_add(&oracle->tally, &comparison);
    if (!error)
        error = target_walk_reduced(target, &oracle->reduced);
    if (!error && !tally_add_reduced(&oracle->tally, &oracle->ours, &oracle->reduced, target->stack.inferred))
        print_difference(oracle, stop->tid);
    return error;
}

/* One tick. Returns 1 when a thread was stopped, 0 when none was, or a negative errno that ends the run. */
static int take_tick(struct oracle *oracle)
{
    bool sleeping;
    pid_t tid = choose_thread(oracle, &sleeping);
    if (tid <= 0)
        return (int)tid;
    struct stop stop;
    int error = stop_take(tid, &stop);
    if (error)
        return error == -ESRCH || error == -EPERM ? 0 : error;
    error = compare(oracle, &stop);
    stop_release(&stop);
    oracle->tally.stops++;
    oracle->tally.sleeping += sleeping;
    if (error == -ENOMEM)
        return error;
    if (error) {
        oracle->tally.failed++;
        if (oracle->verbose)
            fprintf(stderr, "thread %d: %s\n", (int)tid, strerror(-error));
    }
    return 1;
}

/* ---- the run ---- */

static int run(struct oracle *oracle)
{
    uint64_t period_ns = NS_PER_SEC / oracle->rate_hz;
    uint64_t vain = 0;
    int error = 0;
    while (oracle->tally.stops < oracle->stops && !interrupted && error >= 0) {
        /* Uniform around the period: a program that works in step with it is seen at all its steps. */
        clock_sleep_until(clock_now_ns() + period_ns / 2 + rng_below(&oracle->rng, period_ns));
        error = take_tick(oracle);
        vain = error == 1 ? 0 : vain + 1;
        if (vain > TICKS_IN_VAIN)
            error = -EPERM;
    }
    return error == -ESRCH || error > 0 ? 0 : error;
}

static int set_up(struct oracle *oracle)
{
    int error = target_open(oracle->pid, oracle->mode, &oracle->target);
    if (!error)
        error = trace_init(&oracle->ours);
    if (!error)
        error = trace_init(&oracle->reduced);
    for (int p = 0; p < PEER_COUNT && !error; p++)
        error = trace_init(&oracle->theirs[p]);
    if (error)
        return error;
    oracle->libdwfl = peer_libdwfl_new(&oracle->target);
    oracle->libunwind = peer_libunwind_new();
    return oracle->libdwfl && oracle->libunwind ? 0 : -ENOMEM;
}

static void tear_down(struct oracle *oracle)
{
    peer_libdwfl_free(oracle->libdwfl);
    peer_libunwind_free(oracle->libunwind);
    trace_deinit(&oracle->ours);
    trace_deinit(&oracle->reduced);
    for (int p = 0; p < PEER_COUNT; p++)
        trace_deinit(&oracle->theirs[p]);
    target_close(&oracle->target);
    tally_deinit(&oracle->tally);
}

static int report(const struct oracle *oracle)
{
    struct strbuf text = {0};
    tally_table(&oracle->tally, &text);
    int error = strbuf_error(&text);
    if (!error)
        error = fileio_write(STDOUT_FILENO, text.data, text.size);
    strbuf_clear(&text);
    if (!error && oracle->json_path) {
        tally_json(&oracle->tally, &text);
        autoclose int fd = open(oracle->json_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        error = fd < 0 ? -errno : strbuf_error(&text) ? -ENOMEM : fileio_write(fd, text.data, text.size);
    }
    strbuf_deinit(&text);
    return error;
}

static int launch(struct oracle *oracle)
{
    extern char **environ;
    return -posix_spawnp(&oracle->pid, oracle->program[0], NULL, NULL, oracle->program, environ);
}

static bool parse_mode(const char *text, enum unwind_mode *ret)
{
    static const char *const names[] = {[UNWIND_AUTO] = "auto", [UNWIND_FP] = "fp", [UNWIND_DWARF] = "dwarf"};
    for (int i = UNWIND_AUTO; i <= UNWIND_DWARF; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum unwind_mode)i;
            return true;
        }
    }
    return false;
}

static bool parse_arguments(int argc, char **argv, struct oracle *oracle)
{
    enum { OPTION_JSON = 256, OPTION_SAVE };
    static const struct option options[] = {
        {"json", required_argument, NULL, OPTION_JSON}, {"save", required_argument, NULL, OPTION_SAVE}, {0}};
    uint64_t pid = 0;
    bool good = true;
    int option;
    while (good && (option = getopt_long(argc, argv, "+p:n:r:su:v", options, NULL)) != -1) {
        if (option == 'p')
            good = parse_number(optarg, &pid) && pid > 0 && pid < 1 << 30;
        else if (option == 'n')
            good = parse_number(optarg, &oracle->stops);
        else if (option == 'r')
            good = parse_number(optarg, &oracle->rate_hz) && oracle->rate_hz > 0 && oracle->rate_hz <= 10000;
        else if (option == 'u')
            good = parse_mode(optarg, &oracle->mode);
        else if (option == OPTION_JSON)
            oracle->json_path = optarg;
        else if (option == OPTION_SAVE)
            oracle->tally.save_dir = optarg;
        else if (option == 's')
            oracle->only_sleeping = true;
        else if (option == 'v')
            oracle->verbose = true;
        else
            good = false;
    }
    oracle->pid = (pid_t)pid;
    oracle->program = argv + optind;
    return good && (pid != 0) != (optind < argc);
}

int main(int argc, char **argv)
{
    static struct oracle oracle = {.stops = 200, .rate_hz = 200, .target = {.proc_fd = -1}, .rng = {.state = 1}};
    if (!parse_arguments(argc, argv, &oracle)) {
        fputs(usage, stderr);
        return 2;
    }
    signal(SIGINT, note_interrupt);
    signal(SIGTERM, note_interrupt);
    if (oracle.tally.save_dir && mkdir(oracle.tally.save_dir, 0755) < 0 && errno != EEXIST) {
        fprintf(stderr, "oracle: %s: %s\n", oracle.tally.save_dir, strerror(errno));
        return 1;
    }
    bool launched = !oracle.pid;
    int error = launched ? launch(&oracle) : 0;
    if (!error)
        error = set_up(&oracle);
    if (!error)
        error = run(&oracle);
    if (launched && oracle.pid > 0) {
        kill(oracle.pid, SIGKILL);
        waitpid(oracle.pid, NULL, 0);
    }
    /* What was seen before an error is worth showing. */
    if (oracle.tally.stops || !error) {
        int report_error = report(&oracle);
        error = error ? error : report_error;
    }
    if (error)
        fprintf(stderr, "oracle: %s\n", strerror(-error));
    tear_down(&oracle);
    return error ? 1 : 0;
}
