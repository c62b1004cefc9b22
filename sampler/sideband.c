#include "sampler/sideband.h"

#include "common/array.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 128 KiB a CPU: 2,700 new threads between two looks. Unprivileged users may lock 516 KiB a CPU
 * (perf_event_mlock_kb). */
enum { RING_PAGES = 32 };

/* A mapping's record has its path. A ring with less room than this may have turned one away, and says so only with the
 * next record that it has room for. */
enum { LARGEST_RECORD = 8 << 10 };

/* Records kept at a time: far more than rings of a machine of ordinary size hold. */
enum { BATCH_LIMIT = 1 << 18 };

/* Threads of which each has its events, and the part of all descriptors that these may take. */
enum { THREAD_LIMIT = 64, DESCRIPTOR_SHARE = 4 };

/* ---- from bytes ---- */

/* What stands behind a record's header, as far as it is read. */
union body {
    struct {
        uint32_t pid, parent_pid, tid, parent_tid;
        uint64_t time_ns;
    } task;
    struct {
        uint32_t pid, tid;
    } map;
    struct {
        uint64_t id, lost;
    } lost;
    struct {
        uint64_t lost;
    } lost_samples;
};

static void ring_copy(const struct sideband_ring *ring, uint64_t at, void *ret, size_t size)
{
    size_t start = (size_t)(at & (ring->size - 1));
    size_t first = (size_t)ring->size - start < size ? (size_t)ring->size - start : size;
    memcpy(ret, ring->bytes + start, first);
    memcpy((uint8_t *)ret + first, ring->bytes, size - first);
}

/* False: too short to be one of its type. */
static bool parse(uint32_t type, const union body *body, size_t size, struct sideband_record *ret)
{
    *ret = (struct sideband_record){.kind = SIDEBAND_OTHER};
    switch (type) {
    case PERF_RECORD_FORK:
    case PERF_RECORD_EXIT:
        *ret = (struct sideband_record){.kind = type == PERF_RECORD_FORK ? SIDEBAND_FORK : SIDEBAND_EXIT,
                                        .pid = (pid_t)body->task.pid,
                                        .tid = (pid_t)body->task.tid,
                                        .parent_pid = (pid_t)body->task.parent_pid,
                                        .time_ns = body->task.time_ns};
        return size >= sizeof(body->task);
    case PERF_RECORD_MMAP:
    case PERF_RECORD_MMAP2:
        *ret = (struct sideband_record){.kind = SIDEBAND_MAP, .pid = (pid_t)body->map.pid, .tid = (pid_t)body->map.tid};
        return size >= sizeof(body->map);
    case PERF_RECORD_LOST:
        *ret = (struct sideband_record){.kind = SIDEBAND_LOST, .lost = body->lost.lost};
        return size >= sizeof(body->lost);
    case PERF_RECORD_LOST_SAMPLES:
        *ret = (struct sideband_record){.kind = SIDEBAND_LOST, .lost = body->lost_samples.lost};
        return size >= sizeof(body->lost_samples);
    default:
        return true;
    }
}

enum sideband_step sideband_ring_next(struct sideband_ring *ring, struct sideband_record *ret_record)
{
    uint64_t there = ring->head - ring->tail;
    if (there == 0)
        return SIDEBAND_END;
    struct perf_event_header header = {0};
    union body body = {0};
    bool good = there <= ring->size && there >= sizeof(header);
    if (good) {
        ring_copy(ring, ring->tail, &header, sizeof(header));
        good = header.size >= sizeof(header) && header.size <= there;
    }
    if (good) {
        size_t size = header.size - sizeof(header);
        ring_copy(ring, ring->tail + sizeof(header), &body, size < sizeof(body) ? size : sizeof(body));
        good = parse(header.type, &body, size, ret_record);
    }
    ring->tail = good ? ring->tail + header.size : ring->head;
    return good ? SIDEBAND_NEXT : SIDEBAND_DAMAGED;
}

void sideband_batch_clear(struct sideband_batch *batch)
{
    batch->count = 0;
    batch->lost = 0;
    batch->incomplete = false;
}

void sideband_batch_deinit(struct sideband_batch *batch)
{
    free(batch->records);
    *batch = (struct sideband_batch){0};
}

static bool is_kept(const struct sideband_record *record)
{
    return record->kind == SIDEBAND_FORK || record->kind == SIDEBAND_EXIT || record->kind == SIDEBAND_MAP;
}

void sideband_batch_take(struct sideband_batch *batch, struct sideband_ring *ring)
{
    struct sideband_record record;
    enum sideband_step step;
    while ((step = sideband_ring_next(ring, &record)) == SIDEBAND_NEXT) {
        if (record.kind == SIDEBAND_LOST) {
            batch->incomplete = true;
            batch->lost += record.lost;
        } else if (!is_kept(&record)) {
            continue;
        } else if (batch->count >= BATCH_LIMIT || array_room(&batch->records, &batch->capacity, batch->count + 1)) {
            batch->incomplete = true;
        } else {
            batch->records[batch->count++] = record;
        }
    }
    if (step == SIDEBAND_DAMAGED)
        batch->incomplete = true;
}

static int compare_times(const void *left, const void *right)
{
    const struct sideband_record *a = left;
    const struct sideband_record *b = right;
    return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

void sideband_batch_sort(struct sideband_batch *batch)
{
    if (batch->count > 1)
        qsort(batch->records, batch->count, sizeof(*batch->records), compare_times);
}

/* ---- from the kernel ---- */

/* The ring of one CPU, in the first event that was opened there. */
struct cpu {
    int number;
    int fd;                            /* borrowed: among `fds` */
    struct perf_event_mmap_page *page; /* owned mapping: this page, then the ring; NULL before the first event */
};

struct sideband {
    bool is_machine;
    bool inherit_thread_alone; /* forked processes take no events along */
    struct cpu *cpus;          /* owned */
    size_t cpu_count;
    int *fds; /* owned, all events */
    size_t fd_count;
    size_t fd_capacity;
    pid_t tids[THREAD_LIMIT];
    size_t tid_count;
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static int open_event(const struct sideband *sideband, pid_t tid, int cpu)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_DUMMY,
        .sample_type = 0,
        .exclude_kernel = 1, /* what perf_event_paranoid = 2 asks for */
        .exclude_hv = 1,
        .task = 1,
        .mmap = 1, /* executable mappings; others would need mmap_data */
        .mmap2 = 1,
        .watermark = 1, /* nobody waits for it */
        .wakeup_watermark = UINT32_MAX,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
    if (!sideband->is_machine) {
        attr.inherit = 1;
        attr.inherit_thread = sideband->inherit_thread_alone;
    }
    pid_t whose = sideband->is_machine ? -1 : tid;
    int fd = (int)syscall(SYS_perf_event_open, &attr, whose, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Makes room for the descriptor first: nothing that was opened gets lost. */
static int keep_event(struct sideband *sideband, pid_t tid, struct cpu *cpu)
{
    int error = array_room(&sideband->fds, &sideband->fd_capacity, sideband->fd_count + 1);
    if (error)
        return error;
    int fd = open_event(sideband, tid, cpu->number);
    if (fd < 0)
        return fd;
    sideband->fds[sideband->fd_count++] = fd;
    if (cpu->page)
        return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, cpu->fd) < 0 ? -errno : 0;
    void *page = mmap(NULL, (1 + RING_PAGES) * page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    cpu->fd = fd;
    cpu->page = page;
    return 0;
}

/* On all CPUs or on none. */
static int add_events(struct sideband *sideband, pid_t tid)
{
    size_t first = sideband->fd_count;
    size_t done = 0;
    int error = 0;
    for (size_t i = 0; i < sideband->cpu_count && !error; i++) {
        error = keep_event(sideband, tid, &sideband->cpus[i]);
        if (error == -ENODEV)
            error = 0; /* a CPU that is off */
        else
            done++;
    }
    if (!error && done == 0)
        error = -ENODEV;
    if (!error)
        return 0;
    for (size_t i = 0; i < sideband->cpu_count; i++) {
        struct cpu *cpu = &sideband->cpus[i];
        for (size_t j = first; cpu->page && j < sideband->fd_count; j++) {
            if (sideband->fds[j] == cpu->fd) {
                munmap(cpu->page, (1 + RING_PAGES) * page_bytes());
                cpu->page = NULL;
            }
        }
    }
    while (sideband->fd_count > first)
        close(sideband->fds[--sideband->fd_count]);
    return error;
}

/* Whether threads alone can take events along: since Linux 5.13. */
static bool can_inherit_thread_alone(struct sideband *sideband)
{
    sideband->inherit_thread_alone = true;
    int fd = open_event(sideband, 0, -1);
    sideband->inherit_thread_alone = false;
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int sideband_new(bool machine, bool children, struct sideband **ret_sideband)
{
    struct sideband *sideband = calloc(1, sizeof(*sideband));
    long cpu_count = sysconf(_SC_NPROCESSORS_CONF);
    if (!sideband || cpu_count < 1) {
        free(sideband);
        return -ENOMEM;
    }
    sideband->is_machine = machine;
    sideband->cpus = calloc((size_t)cpu_count, sizeof(*sideband->cpus));
    if (!sideband->cpus) {
        sideband_free(sideband);
        return -ENOMEM;
    }
    for (long i = 0; i < cpu_count; i++)
        sideband->cpus[sideband->cpu_count++] = (struct cpu){.number = (int)i, .fd = -1};
    if (!machine && !children)
        sideband->inherit_thread_alone = can_inherit_thread_alone(sideband);
    int error = machine ? add_events(sideband, -1) : 0;
    if (error) {
        sideband_free(sideband);
        return error;
    }
    *ret_sideband = sideband;
    return 0;
}

void sideband_free(struct sideband *sideband)
{
    if (!sideband)
        return;
    for (size_t i = 0; i < sideband->cpu_count; i++)
        if (sideband->cpus[i].page)
            munmap(sideband->cpus[i].page, (1 + RING_PAGES) * page_bytes());
    for (size_t i = 0; i < sideband->fd_count; i++)
        close(sideband->fds[i]);
    free(sideband->fds);
    free(sideband->cpus);
    free(sideband);
}

bool sideband_is_machine(const struct sideband *sideband)
{
    return sideband->is_machine;
}

bool sideband_has_thread(const struct sideband *sideband, pid_t tid)
{
    for (size_t i = 0; i < sideband->tid_count; i++)
        if (sideband->tids[i] == tid)
            return true;
    return false;
}

int sideband_add_thread(struct sideband *sideband, pid_t tid)
{
    struct rlimit limit;
    size_t fds_after = sideband->fd_count + sideband->cpu_count;
    if (sideband->tid_count == THREAD_LIMIT ||
        (getrlimit(RLIMIT_NOFILE, &limit) == 0 && fds_after > limit.rlim_cur / DESCRIPTOR_SHARE))
        return -EMFILE;
    int error = add_events(sideband, tid);
    if (!error)
        sideband->tids[sideband->tid_count++] = tid;
    return error;
}

void sideband_read(struct sideband *sideband, struct sideband_batch *batch)
{
    for (size_t i = 0; i < sideband->cpu_count; i++) {
        struct perf_event_mmap_page *page = sideband->cpus[i].page;
        if (!page)
            continue;
        /* The kernel has written all before the head that it shows, and writes over what lies before the tail. */
        uint64_t head = atomic_load_explicit((_Atomic(__u64) *)&page->data_head, memory_order_acquire);
        struct sideband_ring ring = {.bytes = (const uint8_t *)page + page_bytes(),
                                     .size = RING_PAGES * page_bytes(),
                                     .tail = page->data_tail,
                                     .head = head};
        if (ring.head - ring.tail > ring.size - LARGEST_RECORD)
            batch->incomplete = true;
        sideband_batch_take(batch, &ring);
        atomic_store_explicit((_Atomic(__u64) *)&page->data_tail, ring.tail, memory_order_release);
    }
}
