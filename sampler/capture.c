#include "sampler/capture.h"

#include "common/clock.h"
#include "sampler/flight.h"
#include "sampler/helped.h"
#include "sampler/looks.h"
#include "sampler/mapper.h"
#include "sampler/overhead.h"
#include "sampler/pinning.h"
#include "sampler/sampling.h"
#include "sampler/slice.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* At the end: for threads that did not stop yet. */
#define RELEASE_TIMEOUT_NS (200 * NS_PER_MS)

struct capture {
    const struct options *options;
    struct pipeline *pipeline;
    struct mapper mapper;
    struct tracer *tracer;
    int wake_fd;  /* owned: a flag was set */
    int ended_fd; /* borrowed: no process is left, or we gave up */
    int rest_fd;  /* owned: paused, and nothing is held */
    int done_fd;  /* owned: the thread has ended */
    pthread_t thread;
    /* Guards the flags only, and is never held while anything is stopped: others may always take it. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stopping;
    bool paused;
    atomic_uint_fast64_t threads_now;
    atomic_uint_fast64_t samples_now;

    struct targets targets;
    struct watch watch;
    struct ticker ticker;
    struct flights flights;
    uint64_t now_ns; /* of the tick in work */
    bool is_slow;    /* the last tick took a good part of a period */
    struct kernelview view;
    struct looks looks;
    struct sampling sampling;
    struct helped helped; /* with --helper, instead of it */
    struct overhead overhead;
    struct capture_result result;
};

/* All that sampling has cost so far: our CPU time, but for what a run costs once, and time for which threads stood
 * still or lost to an interrupt. */
static uint64_t cost_ns(const struct capture *capture)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - kernelview_load_ns(&capture->view) +
           tracer_counters(capture->tracer)->held_ns.sum + capture->flights.interrupted_ns.sum;
}

static void keep_within_overhead(struct capture *capture, uint64_t now_ns)
{
    if (capture->overhead.limit > 0)
        ticker_set_stride(&capture->ticker, overhead_stride(&capture->overhead, cost_ns(capture), now_ns,
                                                            NS_PER_SEC / capture->ticker.rate_hz));
}

static void tick(struct capture *capture)
{
    uint64_t cpu_ns = capture->is_slow ? clock_read_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    capture->now_ns = clock_now_ns();
    ticker_begin(&capture->ticker, capture->now_ns);
    targets_begin_tick(&capture->targets, capture->now_ns,
                       capture->ticker.weight * NS_PER_SEC / capture->ticker.rate_hz);
    kernelview_begin_tick(&capture->view, capture->now_ns);
    watch_poll(&capture->watch, &capture->targets, capture->now_ns);
    if (capture->options->helper)
        helped_begin_tick(&capture->helped, capture->now_ns);
    looks_take(&capture->looks, capture->now_ns);
    if (capture->options->helper)
        helped_take(&capture->helped, capture->looks.choices, capture->looks.choice_count);
    else
        sampling_take(&capture->sampling, capture->looks.choices, capture->looks.choice_count, capture->now_ns);
    looks_end_processes(&capture->looks);
    pipeline_end_tick(capture->pipeline, capture->now_ns);
    if (capture->result.account.error)
        capture->result.error = capture->result.account.error;
    if (capture->flights.error)
        capture->result.error = capture->flights.error;
    if (capture->looks.error)
        capture->result.error = capture->looks.error;
    capture->threads_now = capture->targets.thread_count;
    capture->samples_now = flights_samples(&capture->flights);
    uint64_t end_ns = clock_now_ns();
    keep_within_overhead(capture, end_ns);
    ticker_end(&capture->ticker, end_ns);
    if (capture->is_slow) /* As long a rest as there was work: at most half a CPU, whatever the number of threads. */
        ticker_not_before(&capture->ticker, end_ns + clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns);
    capture->is_slow = end_ns - capture->now_ns > NS_PER_SEC / capture->ticker.rate_hz / 4;
}

static void last_look(struct capture *capture)
{
    uint64_t now_ns = clock_now_ns();
    ticker_finish(&capture->ticker, now_ns);
    capture->result.threads_seen = capture->targets.threads_seen;
    capture->result.threads_vanished = capture->targets.threads_vanished;
    capture->result.processes_seen = capture->targets.processes_seen;
    capture->result.execs = capture->sampling.execs;
    capture->result.stopped_asleep = capture->sampling.stopped_asleep;
    capture->result.refusal = capture->sampling.refusal;
    if (!capture->result.refusal.pid)
        capture->result.refusal = capture->flights.refusal;
    capture->result.foreign_pid = capture->flights.foreign_pid;
    capture->result.sleeps = capture->looks.sleeps;
    capture->result.live = capture->sampling.live;
    capture->result.eligible = capture->sampling.eligible;
    capture->result.left_out = capture->sampling.left_out;
    capture->result.overhead = overhead_used(&capture->overhead, cost_ns(capture), now_ns);
    capture->result.other_tracer = capture->flights.other_tracer;
    capture->result.events = watch_counters(&capture->watch);
    if (capture->looks.look_error)
        capture->result.look_error = capture->looks.look_error;
    if (capture->watch.add_error)
        capture->result.look_error = capture->watch.add_error;
    capture->result.interrupted_ns = capture->flights.interrupted_ns;
    while (capture->targets.process_count) {
        struct process *process = capture->targets.processes[0];
        process_read_cpu(process, now_ns, true);
        for (size_t i = 0; i < process->thread_count; i++) {
            bool moved;
            thread_look(process->threads[i], now_ns, &moved); /* a zombie still has its counters */
        }
        process_settle(process, now_ns);
        looks_end_process(&capture->looks, process);
    }
    if (capture->options->helper) {
        helped_account(&capture->helped, &capture->result.account);
        capture->result.helper = helped_counters(&capture->helped);
    }
    capture->result.ticker = capture->ticker;
    capture->result.wall_ns = now_ns - capture->ticker.start_ns;
}

static bool is_stopping(struct capture *capture)
{
    pthread_mutex_lock(&capture->mutex);
    bool stopping = capture->stopping;
    pthread_mutex_unlock(&capture->mutex);
    return stopping;
}

/* Paused: lets go of everything, however long it takes, and waits. */
static void rest(struct capture *capture)
{
    do
        tracer_release(capture->tracer, RELEASE_TIMEOUT_NS);
    while (tracer_holds_any(capture->tracer) && !is_stopping(capture));
    /* Told and taken back under the mutex: who asks for the next pause before we have left this one finds us at rest.
     */
    eventfd_t count;
    pthread_mutex_lock(&capture->mutex);
    eventfd_write(capture->rest_fd, 1);
    while (capture->paused && !capture->stopping)
        pthread_cond_wait(&capture->changed, &capture->mutex);
    eventfd_read(capture->rest_fd, &count);
    pthread_mutex_unlock(&capture->mutex);
}

/* What other threads have asked for. Returns false when sampling ends. */
static bool obey(struct capture *capture)
{
    eventfd_t count;
    eventfd_read(capture->wake_fd, &count);
    pthread_mutex_lock(&capture->mutex);
    bool paused = capture->paused;
    pthread_mutex_unlock(&capture->mutex);
    if (paused)
        rest(capture);
    return !is_stopping(capture);
}

static void *capture_loop(void *context)
{
    struct capture *capture = context;
    pthread_setname_np(pthread_self(), "capture");
    /* Ticks on time: the default slack of a sleep is 50 us. This thread's alone. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    slice_ask_short();
    capture->result.error = pinning_apply(capture->options->pin);
    if (capture->result.error) {
        eventfd_write(capture->ended_fd, 1);
        eventfd_write(capture->rest_fd, 1);
        eventfd_write(capture->done_fd, 1);
        return NULL;
    }
    flights_attach(&capture->flights);
    for (;;) {
        if (tracer_wait(capture->tracer, capture->wake_fd, capture->ticker.deadline_ns, false)) {
            if (!obey(capture))
                break;
            continue;
        }
        tick(capture);
        if (capture->targets.process_count == 0 || capture->result.error) {
            eventfd_write(capture->ended_fd, 1);
            break;
        }
    }
    tracer_release(capture->tracer, RELEASE_TIMEOUT_NS);
    if (capture->options->helper)
        helped_finish(&capture->helped);
    last_look(capture);
    eventfd_write(capture->rest_fd, 1);
    eventfd_write(capture->done_fd, 1);
    return NULL;
}

static void set_flag(struct capture *capture, bool *flag, bool value)
{
    pthread_mutex_lock(&capture->mutex);
    *flag = value;
    pthread_cond_broadcast(&capture->changed);
    pthread_mutex_unlock(&capture->mutex);
    eventfd_write(capture->wake_fd, 1);
}

void capture_ask_pause(struct capture *capture)
{
    set_flag(capture, &capture->paused, true);
}

int capture_rest_fd(const struct capture *capture)
{
    return capture->rest_fd;
}

void capture_resume(struct capture *capture)
{
    set_flag(capture, &capture->paused, false);
}

/*
 * To load BPF programs takes some 20 ms of CPU time. Runs that are over soon can save that; those of which nobody knows
 * may be.
 */
#define LONG_RUN_NS      (300 * NS_PER_MS)
#define UNKNOWN_DELAY_NS (100 * NS_PER_MS)

/*
 * A program that has long been running is sampled when they are there: until then threads would be stopped, and the
 * loading would wait for a CPU beside them.
 */
#define OPEN_PATIENCE_NS (300 * NS_PER_MS)

static bool may_last(const struct options *options)
{
    return !options->duration_ns || options->duration_ns >= LONG_RUN_NS;
}

/* Timers tick in the targets; we only come for what is there. In wall mode we are the timer. */
enum { DRAIN_HZ = 50 };

static unsigned tick_hz(const struct options *options)
{
    bool drains = options->helper && options->mode == MODE_CPU;
    return drains && options->rate_hz > DRAIN_HZ ? DRAIN_HZ : options->rate_hz;
}

static int add_targets(struct capture *capture, const struct capture_target *targets, size_t count, bool launched)
{
    for (size_t i = 0; i < count; i++) {
        int error = watch_add(&capture->watch, &capture->targets, targets[i].pid, targets[i].proc_fd, launched);
        if (error)
            return error;
    }
    return capture->options->helper ? helped_init(&capture->helped, targets, count) : 0;
}

int capture_start(const struct options *options, struct pipeline *pipeline, struct images *images,
                  struct tracer *tracer, struct sideband *sideband, struct stoplog *stoplog,
                  const struct capture_target *targets, size_t target_count, bool launched, int ended_fd,
                  struct capture **ret_capture)
{
    struct capture *capture = calloc(1, sizeof(*capture));
    if (!capture) {
        sideband_free(sideband);
        return -ENOMEM;
    }
    pthread_mutex_init(&capture->mutex, NULL);
    pthread_cond_init(&capture->changed, NULL);
    capture->options = options;
    capture->pipeline = pipeline;
    capture->mapper.images = images;
    capture->tracer = tracer;
    capture->flights = (struct flights){.tracer = tracer,
                                        .pipeline = pipeline,
                                        .mapper = &capture->mapper,
                                        .targets = &capture->targets,
                                        .stoplog = stoplog,
                                        .is_wall = options->mode == MODE_WALL,
                                        .may_bpf = options->bpf,
                                        .rng = {.state = hash_pair(clock_now_ns(), 1)}};
    overhead_init(&capture->overhead, options->overhead);
    capture->ended_fd = ended_fd;
    capture->looks = (struct looks){.options = options,
                                    .targets = &capture->targets,
                                    .flights = &capture->flights,
                                    .tracer = tracer,
                                    .view = &capture->view,
                                    .account = &capture->result.account};
    capture->view.is_wanted = options->bpf && may_last(options) && !options->helper;
    capture->view.delay_ns = options->duration_ns ? 0 : UNKNOWN_DELAY_NS;
    looks_init(&capture->looks);
    capture->sampling = (struct sampling){.options = options,
                                          .mapper = &capture->mapper,
                                          .flights = &capture->flights,
                                          .tracer = tracer,
                                          .view = &capture->view};
    if (options->helper)
        capture->looks.helped = &capture->helped;
    capture->helped = (struct helped){.options = options,
                                      .flights = &capture->flights,
                                      .sampling = &capture->sampling,
                                      .pipeline = pipeline,
                                      .targets = &capture->targets};
    capture->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    capture->rest_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    capture->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uint64_t seed = hash_pair(clock_now_ns(), (uint64_t)getpid());
    watch_init(&capture->watch, sideband, options->children, seed);
    if (!launched && !options->helper)
        kernelview_open(&capture->view, OPEN_PATIENCE_NS);
    int error =
        capture->wake_fd < 0 || capture->rest_fd < 0 || capture->done_fd < 0 ? -errno : targets_init(&capture->targets);
    if (!error)
        error = add_targets(capture, targets, target_count, launched);
    ticker_init(&capture->ticker, tick_hz(options), options->jitter, hash_u64(seed), clock_now_ns());
    if (!error)
        error = -pthread_create(&capture->thread, NULL, capture_loop, capture);
    if (error) {
        capture_free(capture);
        return error;
    }
    *ret_capture = capture;
    return 0;
}

void capture_ask_stop(struct capture *capture)
{
    set_flag(capture, &capture->stopping, true);
}

int capture_done_fd(const struct capture *capture)
{
    return capture->done_fd;
}

void capture_join(struct capture *capture)
{
    pthread_join(capture->thread, NULL);
}

uint64_t capture_threads_now(const struct capture *capture)
{
    return capture->threads_now;
}

uint64_t capture_samples_now(const struct capture *capture)
{
    return capture->samples_now;
}

const char *capture_why_no_helper(const struct capture *capture)
{
    return capture->options->helper ? helped_why_missing(&capture->helped) : NULL;
}

const struct capture_result *capture_result(const struct capture *capture)
{
    return &capture->result;
}

struct space *const *capture_spaces(const struct capture *capture, size_t *ret_count)
{
    *ret_count = capture->mapper.space_count;
    return capture->mapper.spaces;
}

void capture_free(struct capture *capture)
{
    if (!capture)
        return;
    helped_deinit(&capture->helped);
    flights_deinit(&capture->flights);
    kernelview_deinit(&capture->view);
    account_deinit(&capture->result.account);
    mapper_deinit(&capture->mapper);
    targets_deinit(&capture->targets);
    watch_deinit(&capture->watch);
    if (capture->wake_fd >= 0)
        close(capture->wake_fd);
    if (capture->rest_fd >= 0)
        close(capture->rest_fd);
    if (capture->done_fd >= 0)
        close(capture->done_fd);
    looks_deinit(&capture->looks);
    pthread_cond_destroy(&capture->changed);
    pthread_mutex_destroy(&capture->mutex);
    free(capture);
}
