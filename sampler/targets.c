#include "sampler/targets.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The first copy of a stack that nothing is known of; most stacks end earlier. */
enum { FIRST_COPY_BYTES = 64 << 10 };

/* Descriptors are given out from the lowest number on; this many at the end are not kept. */
enum { SPARE_DESCRIPTORS = 32 };

/*
 * The process clock is a sum over all threads unless a timer is armed on it: read it rarely where that is long, and
 * where only threads can have run that were gone before a look.
 */
enum { CHEAP_CLOCK_THREADS = 64 };
#define CLOCK_PERIOD_NS (100 * NS_PER_MS)
#define UNKNOWN_TIME_NS (20 * NS_PER_MS)

/* A running thread's counters move at scheduler ticks and switches only. */
#define COUNTER_GRAIN_NS (100 * NS_PER_MS)

/* The longest there is, at HZ=100. */
#define SCHEDULER_TICK_NS (10 * NS_PER_MS)

int targets_init(struct targets *targets)
{
    *targets = (struct targets){.slot_count = 64};
    targets->by_tid = calloc(targets->slot_count, sizeof(*targets->by_tid));
    /* We are on a CPU: no turn on one means that nobody counts. (The run time of a turn that lasts is added when a tick
     * comes: in the first milliseconds of a program it is often still 0.) */
    char text[96];
    struct procfs_schedstat own;
    ssize_t size = fileio_read_text(AT_FDCWD, "/proc/thread-self/schedstat", text, sizeof(text));
    targets->has_schedstat = size > 0 && procfs_parse_schedstat(text, (size_t)size, &own) && own.slices > 0;
    return targets->by_tid ? 0 : -ENOMEM;
}

void targets_begin_tick(struct targets *targets, uint64_t now_ns, uint64_t stands_for_ns)
{
    targets->tick++;
    targets->last_wall_ns = targets->wall_ns;
    targets->last_ticked_ns = targets->ticked_ns;
    targets->wall_ns += stands_for_ns;
    targets->ticked_ns = now_ns;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void thread_free(struct thread *thread)
{
    close_fd(thread->schedstat_fd);
    close_fd(thread->stat_fd);
    close_fd(thread->syscall_fd);
    thread_shared_unref(thread->shared);
    free(thread);
}

static void process_free(struct process *process)
{
    for (size_t i = 0; i < process->thread_count; i++)
        thread_free(process->threads[i]);
    free(process->threads);
    gate_deinit(&process->gate);
    address_map_unref(process->map);
    close_fd(process->proc_fd);
    free(process);
}

void targets_deinit(struct targets *targets)
{
    for (size_t i = 0; i < targets->process_count; i++)
        process_free(targets->processes[i]);
    free(targets->processes);
    free(targets->by_tid);
    *targets = (struct targets){0};
}

struct process *targets_find_process(const struct targets *targets, pid_t pid)
{
    for (size_t i = 0; i < targets->process_count; i++)
        if (targets->processes[i]->pid == pid)
            return targets->processes[i];
    return NULL;
}

static size_t slot_of(const struct targets *targets, pid_t tid)
{
    size_t slot = hash_u64((uint64_t)tid) & (targets->slot_count - 1);
    while (targets->by_tid[slot] && targets->by_tid[slot]->tid != tid)
        slot = (slot + 1) & (targets->slot_count - 1);
    return slot;
}

struct thread *targets_find_thread(const struct targets *targets, pid_t tid)
{
    return targets->by_tid[slot_of(targets, tid)];
}

static int grow_slots(struct targets *targets)
{
    struct thread **old = targets->by_tid;
    size_t old_count = targets->slot_count;
    struct thread **grown = calloc(old_count * 2, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    targets->by_tid = grown;
    targets->slot_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++)
        if (old[i])
            grown[slot_of(targets, old[i]->tid)] = old[i];
    free(old);
    return 0;
}

/* Takes a slot out and moves up what was pushed behind it. */
static void clear_slot(struct targets *targets, size_t hole)
{
    size_t mask = targets->slot_count - 1;
    targets->by_tid[hole] = NULL;
    for (size_t i = (hole + 1) & mask; targets->by_tid[i]; i = (i + 1) & mask) {
        struct thread *moved = targets->by_tid[i];
        targets->by_tid[i] = NULL;
        targets->by_tid[slot_of(targets, moved->tid)] = moved;
    }
}

static uint64_t process_clock_ns(pid_t pid)
{
    /* CPU clock of a process: its complemented number, then CPUCLOCK_SCHED (include/linux/posix-timers.h). */
    return clock_read_ns((clockid_t)((~(unsigned)pid << 3) | 2U));
}

int targets_add_process(struct targets *targets, pid_t pid, int proc_fd, bool is_new, struct process **ret_process)
{
    if (targets_find_process(targets, pid))
        return -EEXIST;
    int error = array_room(&targets->processes, &targets->process_capacity, targets->process_count + 1);
    if (error)
        return error;
    struct process *process = calloc(1, sizeof(*process));
    if (!process)
        return -ENOMEM;
    process->pid = pid;
    process->proc_fd = proc_fd;
    process->last_cpu_ns = process_clock_ns(pid);
    process->first_cpu_ns = is_new ? 0 : process->last_cpu_ns;
    targets->processes[targets->process_count++] = process;
    targets->processes_seen++;
    *ret_process = process;
    return 0;
}

static int open_task_file(const struct process *process, pid_t tid, const char *file)
{
    char path[48];
    snprintf(path, sizeof(path), "task/%d/%s", (int)tid, file);
    int fd = openat(process->proc_fd, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static bool is_out_of_descriptors(int error)
{
    return error == -EMFILE || error == -ENFILE;
}

/* A thread does not keep one of the last: looks at those that keep none, maps and images need some for a moment. */
static int keep_descriptor(int fd)
{
    struct rlimit limit;
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd + SPARE_DESCRIPTORS < limit.rlim_cur)
        return fd;
    close(fd);
    return -EMFILE;
}

static int thread_open(struct thread *thread)
{
    thread->schedstat_fd = keep_descriptor(open_task_file(thread->process, thread->tid, "schedstat"));
    thread->stat_fd = keep_descriptor(open_task_file(thread->process, thread->tid, "stat"));
    if (thread->stat_fd < 0 && !is_out_of_descriptors(thread->stat_fd))
        return thread->stat_fd == -ENOENT ? -ESRCH : thread->stat_fd;
    return 0;
}

int thread_read_schedstat(const struct thread *thread, struct procfs_schedstat *ret)
{
    if (thread->schedstat_fd >= 0)
        return procfs_pread_schedstat(thread->schedstat_fd, ret);
    autoclose int fd = open_task_file(thread->process, thread->tid, "schedstat");
    return fd < 0 ? fd : procfs_pread_schedstat(fd, ret);
}

int thread_read_stat(const struct thread *thread, struct procfs_stat *ret)
{
    if (thread->stat_fd >= 0)
        return procfs_pread_stat(thread->stat_fd, ret);
    autoclose int fd = open_task_file(thread->process, thread->tid, "stat");
    return fd < 0 ? fd : procfs_pread_stat(fd, ret);
}

/* One that sleeps again and again keeps it open, as long as others have room for what they need more. */
static bool may_keep_syscall(const struct thread *thread, int fd)
{
    struct rlimit limit;
    return thread->was_asleep && getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 2;
}

int thread_read_syscall(struct thread *thread, struct procfs_syscall *ret)
{
    char text[256];
    int fd = thread->syscall_fd;
    if (fd < 0)
        fd = open_task_file(thread->process, thread->tid, "syscall");
    if (fd < 0)
        return fd;
    ssize_t size = pread(fd, text, sizeof(text), 0);
    int error = size < 0 ? -errno : 0;
    if (thread->syscall_fd < 0 && may_keep_syscall(thread, fd))
        thread->syscall_fd = fd;
    else if (thread->syscall_fd < 0)
        close(fd);
    thread->was_asleep = true;
    if (error)
        return error;
    if (!procfs_parse_syscall(text, (size_t)size, ret))
        return -EAGAIN;
    thread->call = thread_state_call(ret->number);
    return 0;
}

int thread_read_status(const struct thread *thread, struct procfs_status *ret)
{
    char path[48];
    snprintf(path, sizeof(path), "task/%d", (int)thread->tid);
    autoclose int fd = openat(thread->process->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : procfs_read_status(fd, ret);
}

struct thread_shared *thread_shared_new(pid_t pid, pid_t tid)
{
    struct thread_shared *shared = calloc(1, sizeof(*shared));
    if (!shared)
        return NULL;
    shared->references = 1;
    shared->pid = pid;
    shared->tid = tid;
    shared->copy_bytes = FIRST_COPY_BYTES;
    return shared;
}

static int thread_begin(struct thread *thread, bool is_new, double share_start)
{
    thread->shared = thread_shared_new(thread->process->pid, thread->tid);
    if (!thread->shared)
        return -ENOMEM;
    int error = thread_open(thread);
    if (error)
        return error;
    struct procfs_stat stat;
    error = thread_read_stat(thread, &stat);
    if (error)
        return error;
    memcpy(thread->comm, stat.comm, sizeof(thread->comm));
    if (thread->has_schedstat && thread_read_schedstat(thread, &thread->last) < 0)
        return -ESRCH;
    thread->is_wanted = true;
    thread->is_new = is_new;
    thread->cpu_ns = is_new ? thread->last.run_ns : 0;
    cpushare_init(&thread->share, share_start, thread->has_schedstat ? thread->last.run_ns : 1, thread->last.wait_ns,
                  clock_now_ns());
    return 0;
}

static void swap_threads(struct process *process, size_t a, size_t b)
{
    struct thread *thread = process->threads[a];
    process->threads[a] = process->threads[b];
    process->threads[b] = thread;
}

int targets_add_thread(struct targets *targets, struct process *process, pid_t tid, bool is_new, double share_start)
{
    if (targets_find_thread(targets, tid))
        return 0;
    int error = array_room(&process->threads, &process->thread_capacity, process->thread_count + 1);
    if (!error && (targets->thread_count + 1) * 2 > targets->slot_count)
        error = grow_slots(targets);
    if (error)
        return error;
    struct thread *thread = calloc(1, sizeof(*thread));
    if (!thread)
        return -ENOMEM;
    *thread = (struct thread){
        .tid = tid,
        .process = process,
        .schedstat_fd = -1,
        .stat_fd = -1,
        .syscall_fd = -1,
        .call = -1,
        .has_schedstat = targets->has_schedstat,
        .counted_tick = targets->tick,
        .counted_wall_ns = targets->wall_ns,
    };
    error = thread_begin(thread, is_new, share_start);
    if (error) {
        thread_free(thread);
        return error;
    }
    process->threads[process->thread_count++] = thread;
    swap_threads(process, process->thread_count - 1, process->hot_count++);
    targets->by_tid[slot_of(targets, tid)] = thread;
    targets->thread_count++;
    targets->threads_seen++;
    return 0;
}

/* Whoever goes through them at this moment has seen those before it: what comes in its place is from behind. */
static void drop_thread(struct process *process, size_t i)
{
    const struct thread *thread = process->threads[i];
    if (thread->is_cold) {
        process->cold_run_ns -= thread->cold_run_ns;
    } else {
        swap_threads(process, i, --process->hot_count);
        i = process->hot_count;
    }
    swap_threads(process, i, --process->thread_count);
}

void process_sort_threads(struct process *process, bool all)
{
    for (size_t i = process->hot_count; all && i < process->thread_count; i++) {
        struct thread *thread = process->threads[i];
        if (thread->is_settled)
            continue;
        thread->is_cold = false;
        process->cold_run_ns -= thread->cold_run_ns;
        swap_threads(process, i, process->hot_count++);
    }
    for (size_t i = 0; i < process->hot_count;) {
        struct thread *thread = process->threads[i];
        if (!thread->is_settled) {
            i++;
            continue;
        }
        thread->is_cold = true;
        thread->cold_run_ns = thread->last.run_ns;
        process->cold_run_ns += thread->cold_run_ns;
        swap_threads(process, i, --process->hot_count);
    }
}

void targets_remove_thread(struct targets *targets, struct thread *thread)
{
    struct process *process = thread->process;
    for (size_t i = 0; i < process->thread_count; i++) {
        if (process->threads[i] == thread) {
            drop_thread(process, i);
            break;
        }
    }
    clear_slot(targets, slot_of(targets, thread->tid));
    targets->thread_count--;
    targets->threads_vanished++;
    process->known_cpu_ns += thread->cpu_ns;
    process->known_wait_ns += thread->wait_ns;
    process->had_other_threads = true;
    thread_free(thread);
}

void targets_remove_process(struct targets *targets, struct process *process)
{
    while (process->thread_count)
        targets_remove_thread(targets, process->threads[0]);
    for (size_t i = 0; i < targets->process_count; i++) {
        if (targets->processes[i] == process) {
            targets->processes[i] = targets->processes[--targets->process_count];
            break;
        }
    }
    process_free(process);
}

static int take_schedstat(struct thread *thread, struct procfs_schedstat *ret)
{
    if (!thread->has_fresh)
        return thread_read_schedstat(thread, ret);
    thread->has_fresh = false;
    *ret = thread->fresh;
    return 0;
}

int thread_look(struct thread *thread, uint64_t now_ns, bool *ret_moved)
{
    struct procfs_schedstat now;
    struct procfs_stat stat;
    int error;
    if (!thread->has_schedstat) {
        *ret_moved = true;
        error = thread_read_stat(thread, &stat);
        return procfs_is_gone(error) ? -ESRCH : error;
    }
    error = take_schedstat(thread, &now);
    if (error) {
        *ret_moved = false;
        return procfs_is_gone(error) ? -ESRCH : error;
    }
    struct procfs_schedstat *last = &thread->last;
    /*
     * Exec in another thread makes that one the main thread, under this number: the counters are another thread's then.
     * They go back, or further ahead than time did.
     */
    uint64_t elapsed_ns = now_ns - thread->share.updated_ns;
    if (now.run_ns < last->run_ns || now.slices < last->slices || now.wait_ns < last->wait_ns ||
        now.run_ns - last->run_ns > 2 * elapsed_ns + COUNTER_GRAIN_NS) {
        thread->seen_off_cpu = false;
        *last = now;
    }
    bool has_run = now.run_ns != last->run_ns || now.slices != last->slices;
    if (has_run) {
        thread->ran_ns = now_ns;
        thread->seen_off_cpu = false; /* that was before: until its state is read it may be on a CPU */
    }
    *ret_moved = !thread->seen_off_cpu;
    if (thread->is_wanted) {
        thread->cpu_ns += now.run_ns - last->run_ns;
        thread->wait_ns += now.wait_ns - last->wait_ns;
    }
    cpushare_add(&thread->share, now.run_ns - last->run_ns, now.wait_ns - last->wait_ns, now_ns);
    *last = now;
    return 0;
}

uint64_t process_known_cpu_ns(const struct process *process)
{
    uint64_t known_ns = process->known_cpu_ns;
    for (size_t i = 0; i < process->thread_count; i++)
        known_ns += process->threads[i]->cpu_ns;
    return known_ns;
}

/* Besides threads that we know: more than a scheduler tick, by which the clock is ahead of a thread that runs. */
static bool has_time_of_others(const struct process *process)
{
    return process->last_cpu_ns > process->first_cpu_ns + process_known_cpu_ns(process) + UNKNOWN_TIME_NS;
}

void process_read_cpu(struct process *process, uint64_t now_ns, bool must)
{
    /* One that has always had one thread has no other time than that one's. */
    bool is_single = process->thread_count == 1 && !process->had_other_threads;
    bool is_cheap = !is_single && (process->gate.has_timer || process->thread_count <= CHEAP_CLOCK_THREADS);
    bool may_have_moved = process->has_run || process->has_lost_threads;
    if (!must && !(is_cheap && may_have_moved) && now_ns - process->cpu_read_ns < CLOCK_PERIOD_NS)
        return;
    const struct gate *gate = &process->gate;
    uint64_t cpu_ns = !must && gate->read_ns == now_ns ? gate->clock_ns : process_clock_ns(process->pid);
    if (cpu_ns > process->last_cpu_ns)
        process->last_cpu_ns = cpu_ns;
    process->cpu_read_ns = now_ns;
    if (is_single)
        process->had_other_threads = has_time_of_others(process);
}

/* On a CPU at its last look, as far as is known. */
static bool was_running(const struct thread *thread, uint64_t now_ns)
{
    return thread->has_schedstat && thread->is_wanted && !thread->is_zombie && thread->ran_ns &&
           now_ns - thread->ran_ns < 2 * SCHEDULER_TICK_NS;
}

void process_settle(struct process *process, uint64_t now_ns)
{
    uint64_t known_ns = process->first_cpu_ns + process_known_cpu_ns(process);
    uint64_t running = 0;
    for (size_t i = 0; i < process->thread_count; i++)
        running += was_running(process->threads[i], now_ns);
    uint64_t behind_ns = process->last_cpu_ns > known_ns ? process->last_cpu_ns - known_ns : 0;
    if (!running || behind_ns > running * SCHEDULER_TICK_NS)
        return;
    for (size_t i = 0; i < process->thread_count; i++) {
        if (!was_running(process->threads[i], now_ns))
            continue;
        process->threads[i]->cpu_ns += behind_ns / running;
        behind_ns -= behind_ns / running--;
    }
}

static uint64_t hash_place(const struct registers *registers)
{
    return hash_pair(registers->value[REGISTER_PC], registers->value[REGISTER_RSP]) | 1;
}

bool thread_is_stuck_at(const struct thread_shared *shared, const struct registers *registers)
{
    uint64_t place = hash_place(registers);
    for (size_t i = 0; i < THREAD_STUCK_PLACES; i++)
        if (shared->stuck_at[i] == place)
            return true;
    return false;
}

void thread_note_stuck(struct thread_shared *shared, const struct registers *registers)
{
    if (thread_is_stuck_at(shared, registers))
        return;
    for (size_t i = THREAD_STUCK_PLACES - 1; i > 0; i--)
        shared->stuck_at[i] = shared->stuck_at[i - 1];
    shared->stuck_at[0] = hash_place(registers);
}

struct thread_shared *thread_shared_ref(struct thread_shared *shared)
{
    atomic_fetch_add(&shared->references, 1);
    return shared;
}

void thread_shared_unref(struct thread_shared *shared)
{
    if (shared && atomic_fetch_sub(&shared->references, 1) == 1)
        free(shared);
}
