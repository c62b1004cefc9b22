#include "sampler/inject.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/injectcheck.h"
#include "sampler/injectplace.h"
#include "sampler/injectthreads.h"
#include "sampler/slice.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum {
    COPY_FIRST_BYTES = 1 << 20,
    COPY_SLACK_BYTES = 4 << 10, /* beyond what the last look needed */
    UNMAP_TRIES = 50
};

#define HOLD_NS      (200 * NS_PER_MS)
#define PAUSE_NS     NS_PER_MS /* between two rounds; it grows */
#define PAUSE_MAX_NS (20 * NS_PER_MS)
#define POLL_NS      (50 * NS_PER_US) /* until it is done; it grows */
#define POLL_MAX_NS  NS_PER_MS

struct injection {
    const struct inject_request *request;
    struct strbuf *why;
    struct inject_result *result;
    uint64_t deadline_ns;
    struct inject_process process;
    struct injectthreads threads;
    struct inject_libc libc;
    struct inject_data data;
    uint64_t region_avma;
    uint64_t begin_ns;
    pid_t looked_at; /* the last thread that was */
    int error;       /* what inject_call returns */
};

static bool is_late(const struct injection *injection)
{
    return clock_now_ns() >= injection->deadline_ns;
}

/* ---- stops ---- */

static int hold(struct injection *injection, pid_t tid, struct inject_held *ret)
{
    int error = injectremote_hold(tid, HOLD_NS, ret);
    injection->result->stops += error == 0;
    return error;
}

/* When it was let go. */
static void note_stop(struct injection *injection, const struct inject_held *held)
{
    if (held->stopped_ns > injection->result->longest_stop_ns)
        injection->result->longest_stop_ns = held->stopped_ns;
}

static void release(struct injection *injection, struct inject_held *held)
{
    injectremote_release(held);
    note_stop(injection, held);
}

/* ---- the way in ---- */

static bool map_region(struct injection *injection, struct inject_held *held, bool *ret_gone)
{
    const uint64_t all[] = {
        0, INJECT_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, UINT64_MAX, 0};
    int64_t avma = injectremote_call(held, &injection->libc, SYS_mmap, all, ret_gone);
    if (*ret_gone || (avma < 0 && avma > -4096))
        return false;
    injection->region_avma = (uint64_t)avma;
    /* Nothing is ever writable and executable. */
    const uint64_t code[] = {(uint64_t)avma,
                             INJECT_CODE_BYTES,
                             PROT_READ | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                             UINT64_MAX,
                             0};
    int64_t at = injectremote_call(held, &injection->libc, SYS_mmap, code, ret_gone);
    if (*ret_gone || at == avma)
        return !*ret_gone;
    const uint64_t nothing[6] = {(uint64_t)avma, INJECT_REGION_BYTES};
    injectremote_call(held, &injection->libc, SYS_munmap, nothing, ret_gone);
    return false;
}

/* The thread is at a good place. Whatever happens, it is let go. Returns 0 when it is on its way through the stub. */
static int enter(struct injection *injection, struct inject_held *held, const struct inject_stack *stack)
{
    bool gone = false;
    int error = injectremote_begin(held, &injection->libc, stack);
    if (error) {
        release(injection, held);
        return -EAGAIN;
    }
    bool is_mapped = map_region(injection, held, &gone);
    if (gone)
        return -ESRCH;
    if (!is_mapped) {
        injectremote_end(held);
        note_stop(injection, held);
        strbuf_adds(injection->why, "it may not map executable memory (a limit or a security policy); sample it "
                                    "without the helper");
        return -ENOMEM;
    }
    error = injectremote_enter_stub(held, injection->region_avma, &injection->data);
    if (error) {
        injectremote_end(held);
        note_stop(injection, held);
        return -EAGAIN;
    }
    note_stop(injection, held);
    injection->begin_ns = clock_now_ns();
    injection->result->tid = held->tid;
    return 0;
}

/* ---- the choice ---- */

/* A look at the thread while it is held; names that are missing are looked up when it runs again. */
static int look(struct injection *injection, pid_t tid)
{
    struct inject_process *process = &injection->process;
    struct inject_held held;
    int error = hold(injection, tid, &held);
    if (error)
        return error;
    error = injectplace_copy(process, &held, COPY_FIRST_BYTES);
    release(injection, &held);
    return error || !injectplace_is_good(process, &held, true) ? -EAGAIN : 0;
}

static int look_and_enter(struct injection *injection, pid_t tid)
{
    struct inject_process *process = &injection->process;
    struct inject_held held;
    struct inject_stack stack;
    size_t bytes = injectplace_used_bytes(process) + COPY_SLACK_BYTES;
    int error = hold(injection, tid, &held);
    if (error)
        return error;
    bool is_good = held.can_change && !injectremote_is_in_sequence(&held) &&
                   injectplace_copy(process, &held, bytes) == 0 && injectplace_is_good(process, &held, false) &&
                   injectplace_find_stack(process, &held, &stack) && injectplace_is_current(process);
    if (is_good)
        return enter(injection, &held, &stack);
    release(injection, &held);
    return -EAGAIN;
}

static bool is_ending(const struct injection *injection, pid_t tid)
{
    char path[48];
    struct procfs_stat stat;
    snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
    return procfs_read_stat(injection->request->proc_fd, path, &stat) < 0 || procfs_stat_is_ending(&stat);
}

/* Returns 0; -EAGAIN: not this one, not now; or what ends all. */
static int try_thread(struct injection *injection, pid_t tid)
{
    injection->looked_at = tid;
    int error = injectplace_refresh(&injection->process);
    if (!error)
        error = look(injection, tid);
    if (!error)
        error = look_and_enter(injection, tid);
    if (error)
        injectthreads_note(&injection->threads, injection->request->proc_fd, tid);
    if (error == -EPERM && is_ending(injection, tid))
        error = -EAGAIN;
    if (error == -EPERM)
        strbuf_adds(injection->why, "a thread of it may not be stopped, or another tracer has it; detach that first");
    /* A thread that has ended is none that ends all. */
    if (error == -ESRCH && !procfs_is_dead(injection->request->proc_fd) && !space_is_gone(injection->process.space))
        error = -EAGAIN;
    return error;
}

static int try_round(struct injection *injection)
{
    pid_t tids[INJECTTHREADS_CHOSEN];
    size_t count = injectthreads_choose(&injection->threads, injection->request->proc_fd, tids);
    int error = procfs_is_dead(injection->request->proc_fd) ? -ESRCH : -EAGAIN;
    for (size_t i = 0; i < count && error == -EAGAIN && !is_late(injection); i++)
        error = try_thread(injection, tids[i]);
    return error;
}

static int find_way_in(struct injection *injection)
{
    uint64_t pause_ns = PAUSE_NS;
    int error = try_round(injection);
    while (error == -EAGAIN && !is_late(injection)) {
        clock_sleep_until(clock_now_ns() + pause_ns);
        pause_ns = pause_ns < PAUSE_MAX_NS / 2 ? 2 * pause_ns : PAUSE_MAX_NS;
        error = try_round(injection);
    }
    if (error == -EAGAIN && injection->looked_at)
        strbuf_addf(injection->why,
                    "no thread was at a place where a library can be loaded within %.1f s (thread %d: %s); try "
                    "again, or sample it without the helper",
                    (double)injection->request->timeout_ns / (double)NS_PER_SEC, (int)injection->looked_at,
                    injection->process.obstacle[0] ? injection->process.obstacle : "on no stack of its own");
    else if (error == -EAGAIN)
        strbuf_adds(injection->why, "no thread of it could be stopped; is it stopped itself, or waiting for a disk?");
    return error;
}

/* ---- the way out ---- */

/* The memory's own descriptor: the thread may end as soon as it is back. */
static bool read_target(const struct injection *injection, uint64_t avma, void *bytes, size_t size)
{
    return fileio_pread(injection->process.space->mem_fd, bytes, size, avma) == (ssize_t)size;
}

static int wait_done(struct injection *injection)
{
    static const char *const doing[] = {"on its way there", "in dlopen", "in dlsym", "in the function", "coming back"};
    uint64_t data_avma = injection->region_avma + INJECT_DATA_OFF;
    uint64_t poll_ns = POLL_NS;
    struct {
        uint32_t step;
        uint32_t done;
        int64_t value;
    } head = {0};
    for (;;) {
        if (!read_target(injection, data_avma, &head, sizeof(head))) {
            strbuf_adds(injection->why, "it has ended, or called exec, meanwhile");
            return -ESRCH;
        }
        if (head.done)
            break;
        if (is_late(injection)) {
            strbuf_addf(injection->why, "thread %d of it is still %s; it will go on by itself",
                        (int)injection->result->tid, doing[head.step <= INJECT_STEP_SUCCESS ? head.step : 0]);
            return -EINPROGRESS;
        }
        clock_sleep_until(clock_now_ns() + poll_ns);
        poll_ns = poll_ns < POLL_MAX_NS / 2 ? 2 * poll_ns : POLL_MAX_NS;
    }
    injection->result->call_ns = clock_now_ns() - injection->begin_ns;
    injection->result->value = head.value;
    injection->data.step = head.step;
    return 0;
}

static int read_failure(struct injection *injection)
{
    char text[INJECT_ERROR_BYTES] = "";
    if (injection->data.step == INJECT_STEP_SUCCESS)
        return 0;
    read_target(injection, injection->region_avma + INJECT_DATA_OFF + INJECT_ERROR, text, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    strbuf_addf(injection->why, "its %s failed: %s", injection->data.step == INJECT_STEP_DLOPEN ? "dlopen" : "dlsym",
                text[0] ? text : "no reason given");
    strbuf_make_line(injection->why);
    return -ELIBBAD;
}

static bool is_in_region(const struct injection *injection, uint64_t avma)
{
    return avma - injection->region_avma <= INJECT_REGION_BYTES;
}

/* Unmaps the region when the thread is seen outside of it; it said that it is done. 0: done; -EAGAIN: not now. */
static int try_unmap(struct injection *injection)
{
    struct inject_held held;
    struct inject_stack stack;
    bool gone = false;
    const uint64_t region[6] = {injection->region_avma, INJECT_REGION_BYTES};
    int error = injectplace_refresh(&injection->process);
    if (!error)
        error = hold(injection, injection->result->tid, &held);
    if (error)
        return error;
    if (is_in_region(injection, held.regs.rip) || is_in_region(injection, held.regs.rsp) ||
        injectremote_is_in_sequence(&held) || !injectplace_find_stack(&injection->process, &held, &stack) ||
        injectremote_begin(&held, &injection->libc, &stack) != 0) {
        release(injection, &held);
        return -EAGAIN;
    }
    int64_t result = injectremote_call(&held, &injection->libc, SYS_munmap, region, &gone);
    if (!gone)
        injectremote_end(&held);
    note_stop(injection, &held);
    injection->result->is_unmapped = !gone && result == 0;
    return gone ? -ESRCH : 0;
}

static void unmap(struct injection *injection)
{
    int error = try_unmap(injection);
    for (int i = 0; i < UNMAP_TRIES && error == -EAGAIN && !is_late(injection); i++) {
        clock_sleep_until(clock_now_ns() + PAUSE_NS);
        error = try_unmap(injection);
    }
}

/* ---- all of it ---- */

static int prepare(struct injection *injection)
{
    const struct inject_request *request = injection->request;
    struct inject_data *data = &injection->data;
    if (strlen(request->library_path) >= sizeof(data->path) || strlen(request->function) >= sizeof(data->function))
        return -ENAMETOOLONG;
    int error = injectcheck(request->pid, request->proc_fd, request->library_path, injection->why);
    if (!error)
        error = injectplace_open(request->pid, request->proc_fd, &injection->process);
    if (!error)
        error = injectplace_refresh(&injection->process);
    if (!error)
        error = injectlibc_find(injection->process.space, injection->process.map, &injection->libc, injection->why);
    if (error)
        return error;
    strcpy(data->path, request->library_path);
    strcpy(data->function, request->function);
    data->argument = request->argument;
    data->dlopen_mode = injection->libc.dlopen_mode;
    data->dlopen_avma = injection->libc.dlopen_avma;
    data->dlsym_avma = injection->libc.dlsym_avma;
    data->dlerror_avma = injection->libc.dlerror_avma;
    data->errno_location_avma = injection->libc.errno_location_avma;
    return 0;
}

static void *run(void *context)
{
    struct injection *injection = context;
    slice_ask_short();
    prctl(PR_SET_TIMERSLACK, 1); /* what waits for us stands still */
    int error = prepare(injection);
    if (!error)
        error = find_way_in(injection);
    if (!error)
        error = wait_done(injection);
    if (!error) {
        error = read_failure(injection);
        unmap(injection);
    }
    injectplace_close(&injection->process);
    injection->error = error;
    return NULL;
}

static void add_reason(const struct injection *injection, struct strbuf *ret_why)
{
    const char *reason = injection->why->data;
    strbuf_addf(ret_why, "cannot load the helper into %d: %s", (int)injection->request->pid,
                reason                       ? reason
                : injection->error == -ESRCH ? "it has ended"
                                             : strerror(-injection->error));
}

/* The tracer is a thread of its own: its end lets go of whatever it has, also of what has not stopped when asked to. */
static int run_in_thread(struct injection *injection)
{
    pthread_t thread;
    int error = -pthread_create(&thread, NULL, run, injection);
    if (error)
        injection->error = error;
    else
        pthread_join(thread, NULL); /* it has set injection->error */
    return injection->error;
}

int inject_call(const struct inject_request *request, struct inject_result *ret_result, struct strbuf *ret_why)
{
    struct strbuf why = {0};
    struct inject_result result = {0};
    struct injection injection = {.request = request,
                                  .why = &why,
                                  .result = &result,
                                  .process = {.proc_fd = -1},
                                  .deadline_ns = clock_now_ns() + request->timeout_ns};
    int error = run_in_thread(&injection);
    while (error == -ETIMEDOUT && !is_late(&injection))
        error = run_in_thread(&injection);
    if (error == -ETIMEDOUT)
        strbuf_addf(&why, "thread %d does not stop: it is long in one system call, or the machine is busy; try again",
                    (int)injection.looked_at);
    if (error)
        add_reason(&injection, ret_why);
    else
        *ret_result = result;
    strbuf_deinit(&why);
    return error;
}
