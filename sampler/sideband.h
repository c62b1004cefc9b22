/*
 * What the kernel tells of processes as it happens: new threads and processes, their ends, new executable mappings.
 * They are perf's side-band records (perf_event_open(2), include/uapi/linux/perf_event.h): a dummy event counts
 * nothing, its records come in one ring of memory per CPU. Nobody is stopped or sent a signal.
 *
 * Events are of the whole machine (one per CPU: the kernel wants CAP_PERFMON or perf_event_paranoid < 1, and no thread
 * becomes slower for it), or of named threads and all that they start (one per thread and CPU, for ordinary users where
 * perf_event_paranoid <= 2; each new thread then takes copies of them along, which costs it more than all else here:
 * docs/benchmarks.md).
 *
 * Not told: munmap and mremap; a process's threads once it has executed a set-uid program (the kernel takes the events
 * of named threads away then); CPUs that come later.
 */
#ifndef SAMPLER_SIDEBAND_H
#define SAMPLER_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sideband_kind {
    SIDEBAND_FORK,  /* `tid` of process `pid` begins, by a thread of process `parent_pid`: its own, or another */
    SIDEBAND_EXIT,  /* `tid` of process `pid` ends. Also when an exec takes the place of its main thread. */
    SIDEBAND_MAP,   /* process `pid` has new executable memory */
    SIDEBAND_LOST,  /* here records are missing */
    SIDEBAND_OTHER, /* nothing that is of use */
};

/* Process and thread ids are those of our own pid namespace; 0 and below: of none of it. */
struct sideband_record {
    enum sideband_kind kind;
    pid_t pid;
    pid_t tid;
    pid_t parent_pid;
    uint64_t time_ns; /* CLOCK_MONOTONIC; of FORK and EXIT */
    uint64_t lost;    /* of LOST: how many */
};

/* ---- from bytes; no system call ---- */

/* A ring as the kernel fills it: byte number n of all times stands at n modulo its size. */
struct sideband_ring {
    const uint8_t *bytes;
    uint64_t size; /* a power of two */
    uint64_t tail; /* number of the first byte that was not read */
    uint64_t head; /* number of the first that was not written */
};

enum sideband_step { SIDEBAND_END, SIDEBAND_NEXT, SIDEBAND_DAMAGED };

/* The next record. DAMAGED: what stands there is none, and all the rest is given up (tail = head). Never reads outside
 * of the ring, whatever it holds. */
enum sideband_step sideband_ring_next(struct sideband_ring *ring, struct sideband_record *ret_record);

/* Records of all rings. Zero-initialised by the caller. */
struct sideband_batch {
    struct sideband_record *records; /* owned; in order of time once sorted */
    size_t count;
    size_t capacity;
    uint64_t lost;   /* records that the kernel could not write, as far as it said */
    bool incomplete; /* some may be missing */
};

void sideband_batch_clear(struct sideband_batch *batch);  /* keeps its memory */
void sideband_batch_deinit(struct sideband_batch *batch); /* frees it */

/* Takes all of the ring. FORK, EXIT and MAP are kept, LOST makes it incomplete. */
void sideband_batch_take(struct sideband_batch *batch, struct sideband_ring *ring);

/* By time. The rings of different CPUs know nothing of each other. */
void sideband_batch_sort(struct sideband_batch *batch);

/* ---- from the kernel ---- */

struct sideband;

/*
 * Of the whole machine, or (`machine` false) of the threads that are added. `children`: what forked processes do is to
 * be told, too; without it their copying of events is avoided. Returns 0, or a negative errno: -EACCES, -EPERM, -ENOSYS
 * where it is not allowed or not there, -EMFILE, -ENOMEM.
 */
int sideband_new(bool machine, bool children, struct sideband **ret_sideband);
void sideband_free(struct sideband *sideband); /* the events end */

bool sideband_is_machine(const struct sideband *sideband);

/* Adds the events of a thread, and of all that it starts from now on. Returns 0 or a negative errno: -EMFILE too when
 * it would be more descriptors than events may take. */
int sideband_add_thread(struct sideband *sideband, pid_t tid);

bool sideband_has_thread(const struct sideband *sideband, pid_t tid); /* it was added */

/* Takes what came since the last call. No system call. */
void sideband_read(struct sideband *sideband, struct sideband_batch *batch);

#endif
