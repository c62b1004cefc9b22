#include "sampler/watch.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Asking one number costs about 10 us, a scan at least 100 us and about 1 us a thread. */
enum { ASK_LIMIT = 32 };

#define REPAIR_PERIOD_NS NS_PER_SEC
/* When all is told, but for what a CPU does that came later. */
#define TOLD_REPAIR_PERIOD_NS (10 * NS_PER_SEC)

/* Looks for threads without events while there are such that begin. */
enum { COVER_ROUNDS = 8 };

static bool read_counter(const struct watch *watch, pid_t *ret)
{
    char text[128];
    ssize_t size = watch->loadavg_fd < 0 ? -1 : pread(watch->loadavg_fd, text, sizeof(text), 0);
    return size > 0 && procfs_parse_last_pid(text, (size_t)size, ret);
}

struct sideband *watch_open_events(enum events events, bool follow_children, pid_t launched)
{
    struct sideband *sideband;
    bool may_machine = events == EVENTS_AUTO || events == EVENTS_PERF;
    bool may_threads = events == EVENTS_PERF || events == EVENTS_PERF_THREADS;
    if (may_machine && sideband_new(true, follow_children, &sideband) == 0)
        return sideband;
    if (!may_threads || sideband_new(false, follow_children, &sideband) < 0)
        return NULL;
    if (launched > 0 && sideband_add_thread(sideband, launched) < 0) {
        sideband_free(sideband);
        return NULL;
    }
    return sideband;
}

void watch_init(struct watch *watch, struct sideband *sideband, bool follow_children, uint64_t seed)
{
    *watch = (struct watch){.sideband = sideband, .follow_children = follow_children, .rng = {.state = seed}};
    watch->counters.source = !sideband ? WATCH_PROC : sideband_is_machine(sideband) ? WATCH_PERF : WATCH_PERF_THREADS;
    watch->loadavg_fd = procfs_open_loadavg();
    if (!read_counter(watch, &watch->last_pid))
        watch->last_pid = 0;
}

void watch_deinit(struct watch *watch)
{
    if (watch->loadavg_fd >= 0)
        close(watch->loadavg_fd);
    watch->loadavg_fd = -1;
    sideband_free(watch->sideband);
    watch->sideband = NULL;
    sideband_batch_deinit(&watch->batch);
    free(watch->kin);
    watch->kin = NULL;
}

struct scan {
    struct watch *watch;
    struct targets *targets;
    struct process *process;
    bool is_new;
    bool is_told; /* a record told of the process: what it does will be told too */
};

static int add_thread(void *context, pid_t tid)
{
    struct scan *scan = context;
    int error = targets_add_thread(scan->targets, scan->process, tid, scan->is_new, rng_unit(&scan->watch->rng));
    if (error && !procfs_is_gone(error)) /* else it is gone again: not ours to mind */
        scan->watch->add_error = error;
    return error == -ENOMEM ? error : 0;
}

static int add_child(void *context, pid_t pid);

/* ---- records of single threads ---- */

struct cover {
    struct watch *watch;
    int error;
    bool is_whole; /* no thread was without events */
};

static bool was_forked(const struct sideband_batch *batch, pid_t tid)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->records[i].kind == SIDEBAND_FORK && batch->records[i].tid == tid)
            return true;
    return false;
}

static int cover_thread(void *context, pid_t tid)
{
    struct cover *cover = context;
    struct watch *watch = cover->watch;
    if (sideband_has_thread(watch->sideband, tid) || was_forked(&watch->batch, tid))
        return 0; /* the latter has brought its events along */
    cover->is_whole = false;
    cover->error = sideband_add_thread(watch->sideband, tid);
    return cover->error == -ESRCH ? 0 : cover->error;
}

/*
 * Sees to it that all is told of a process that we know from elsewhere. A thread that has no events yet may start
 * others meanwhile, which have none either: so until there are none without.
 */
static bool cover_process(struct watch *watch, int proc_fd)
{
    for (int round = 0; round < COVER_ROUNDS; round++) {
        struct cover cover = {.watch = watch, .is_whole = true};
        sideband_read(watch->sideband, &watch->batch);
        int error = procfs_each_thread(proc_fd, cover_thread, &cover);
        if (error)
            return false;
        if (cover.is_whole)
            return true;
    }
    return false;
}

/* Whether records tell what the process does. */
static bool is_told(struct watch *watch, int proc_fd, bool by_record)
{
    if (!watch->sideband)
        return false;
    bool told = by_record || sideband_is_machine(watch->sideband) || cover_process(watch, proc_fd);
    if (!told)
        watch->is_blind = true;
    return told;
}

/* ---- scans ---- */

/* Adds all threads of the process that are not known. */
static void scan_threads(struct scan *scan)
{
    int error = procfs_each_thread(scan->process->proc_fd, add_thread, scan);
    if (error && !procfs_is_gone(error))
        scan->watch->add_error = error;
}

static int add_process(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new,
                       bool by_record);

static int scan_children(const struct scan *scan)
{
    struct scan children = {.watch = scan->watch, .targets = scan->targets, .is_new = scan->is_new};
    return procfs_each_child(scan->process->proc_fd, add_child, &children);
}

static int add_child(void *context, pid_t pid)
{
    const struct scan *scan = context;
    if (pid == getpid() || targets_find_process(scan->targets, pid))
        return 0; /* our own parent may be followed: its child we are, its business we are not */
    int proc_fd = procfs_open_process(pid);
    if (proc_fd < 0)
        return 0;
    if (procfs_is_dead(proc_fd)) {
        close(proc_fd);
        return 0;
    }
    int error = add_process(scan->watch, scan->targets, pid, proc_fd, scan->is_new, scan->is_told);
    struct process *child = targets_find_process(scan->targets, pid);
    if (child)
        child->is_fork = true;
    if (error)
        close(proc_fd);
    return error == -ENOMEM ? error : 0;
}

static int add_process(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new,
                       bool by_record)
{
    struct scan scan = {.watch = watch, .targets = targets, .is_new = is_new};
    int error = targets_add_process(targets, pid, proc_fd, is_new, &scan.process);
    if (error == -EEXIST) {
        close(proc_fd);
        return 0;
    }
    if (error)
        return error;
    scan.process->maps_told = is_told(watch, proc_fd, by_record);
    scan_threads(&scan);
    if (watch->follow_children)
        scan_children(&scan);
    return 0;
}

int watch_add(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new)
{
    return add_process(watch, targets, pid, proc_fd, is_new, false);
}

static void scan_all(struct watch *watch, struct targets *targets)
{
    /* Processes found on the way are added behind and have been scanned by then. */
    size_t count = targets->process_count;
    for (size_t i = 0; i < count; i++) {
        struct scan scan = {.watch = watch, .targets = targets, .process = targets->processes[i], .is_new = true};
        scan_threads(&scan);
        if (watch->follow_children)
            scan_children(&scan);
    }
}

/* Whose is the new number? /proc/TID exists for threads too, though it is not listed. */
static void ask(struct watch *watch, struct targets *targets, pid_t number)
{
    int fd = procfs_open_process(number);
    if (fd < 0)
        return;
    struct procfs_status status;
    struct scan scan = {.watch = watch, .targets = targets, .is_new = true};
    if (procfs_read_status(fd, &status) == 0) {
        scan.process = targets_find_process(targets, status.tgid);
        if (scan.process)
            add_thread(&scan, number);
        else if (watch->follow_children && targets_find_process(targets, status.ppid))
            add_child(&scan, status.tgid);
    }
    close(fd);
}

static void poll_proc(struct watch *watch, struct targets *targets, uint64_t now_ns)
{
    pid_t newest = 0;
    bool is_known = read_counter(watch, &newest) && watch->last_pid > 0;
    pid_t first = watch->last_pid;
    watch->last_pid = newest;
    if (!is_known || newest < first || newest - first > ASK_LIMIT || now_ns - watch->scanned_ns > REPAIR_PERIOD_NS) {
        scan_all(watch, targets);
        watch->scanned_ns = now_ns;
        return;
    }
    for (pid_t number = first + 1; number <= newest; number++)
        ask(watch, targets, number);
}

/* ---- records ---- */

static bool is_kin(const struct watch *watch, const struct targets *targets, pid_t pid)
{
    for (size_t i = 0; i < watch->kin_count; i++)
        if (watch->kin[i] == pid)
            return true;
    return targets_find_process(targets, pid) != NULL;
}

/* Whether a later record says that the new one has ended, so that its number may be another's by now. */
static bool has_ended(const struct sideband_batch *batch, size_t at)
{
    pid_t tid = batch->records[at].tid;
    for (size_t i = at + 1; i < batch->count; i++)
        if (batch->records[i].kind == SIDEBAND_EXIT && batch->records[i].tid == tid)
            return true;
    return false;
}

/* A child may be gone and have children: they are the target's descendants as well. */
static void obey_new_process(struct watch *watch, struct targets *targets, const struct sideband_batch *batch,
                             size_t at)
{
    pid_t pid = batch->records[at].pid;
    if (array_room(&watch->kin, &watch->kin_capacity, watch->kin_count + 1)) {
        watch->add_error = -ENOMEM;
        return;
    }
    watch->kin[watch->kin_count++] = pid;
    struct scan scan = {.watch = watch, .targets = targets, .is_new = true, .is_told = true};
    if (batch->incomplete || has_ended(batch, at))
        ask(watch, targets, pid); /* or its main thread alone has ended */
    else
        add_child(&scan, pid);
}

static void obey_fork(struct watch *watch, struct targets *targets, const struct sideband_batch *batch, size_t at)
{
    const struct sideband_record *record = &batch->records[at];
    if (record->pid != record->parent_pid) {
        if (watch->follow_children && is_kin(watch, targets, record->parent_pid))
            obey_new_process(watch, targets, batch, at);
        return;
    }
    struct scan scan = {.watch = watch, .targets = targets, .is_new = true};
    scan.process = targets_find_process(targets, record->pid);
    if (scan.process && !has_ended(batch, at))
        add_thread(&scan, record->tid);
}

/* Only children need their records in order: for threads it is enough that a failed look is no harm. Others' threads
 * on a busy machine may be many. */
static bool has_new_process(const struct sideband_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->records[i].kind == SIDEBAND_FORK && batch->records[i].pid != batch->records[i].parent_pid)
            return true;
    return false;
}

void watch_obey(struct watch *watch, struct targets *targets, struct sideband_batch *batch)
{
    if (watch->follow_children && has_new_process(batch))
        sideband_batch_sort(batch);
    watch->kin_count = 0;
    watch->counters.lost += batch->lost;
    for (size_t i = 0; i < batch->count; i++) {
        const struct sideband_record *record = &batch->records[i];
        struct process *process;
        if (record->pid <= 0 || record->tid <= 0)
            continue; /* of another pid namespace */
        if (record->kind == SIDEBAND_FORK)
            obey_fork(watch, targets, batch, i);
        else if (record->kind == SIDEBAND_MAP && (process = targets_find_process(targets, record->pid)))
            process->maps_moved = true;
    }
}

static void poll_records(struct watch *watch, struct targets *targets, uint64_t now_ns)
{
    uint64_t period_ns = sideband_is_machine(watch->sideband) ? TOLD_REPAIR_PERIOD_NS : REPAIR_PERIOD_NS;
    sideband_read(watch->sideband, &watch->batch);
    bool incomplete = watch->batch.incomplete;
    watch_obey(watch, targets, &watch->batch);
    sideband_batch_clear(&watch->batch);
    if (incomplete) {
        watch->counters.repairs++;
        for (size_t i = 0; i < targets->process_count; i++)
            targets->processes[i]->maps_moved = true;
    }
    if (incomplete || (!watch->is_blind && now_ns - watch->scanned_ns > period_ns)) {
        scan_all(watch, targets);
        watch->scanned_ns = now_ns;
    }
}

void watch_poll(struct watch *watch, struct targets *targets, uint64_t now_ns)
{
    if (watch->sideband)
        poll_records(watch, targets, now_ns);
    if (!watch->sideband || watch->is_blind)
        poll_proc(watch, targets, now_ns);
}

struct watch_counters watch_counters(const struct watch *watch)
{
    struct watch_counters counters = watch->counters;
    if (watch->is_blind)
        counters.source = WATCH_PROC; /* it is looked at all the same */
    return counters;
}
