/*
 * A file with a line for each stop of a thread, for measurements of what the sampler costs its target:
 *
 *     1234 8371000123456 8371000140000 8371000152345 stopped
 *
 * thread id, and when it was asked to stop, had stopped as far as we can tell, and was let go: CLOCK_MONOTONIC, in
 * nanoseconds. "interrupted": its CPU was interrupted to read it, and it was not stopped (bpflook.h). The capture
 * thread only leaves a stop in memory of fixed size; a thread of the log's own writes, so that nothing waits for a disk
 * while a thread of the target stands still.
 */
#ifndef SAMPLER_STOPLOG_H
#define SAMPLER_STOPLOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct stop {
    pid_t tid;
    uint64_t asked_ns;
    uint64_t arrived_ns;
    uint64_t released_ns;
    bool is_interruption;
};

/* Stops that wait to be written; what comes while all are taken is lost, and told. */
enum { STOPLOG_WAITING_MAX = 1 << 16 };

struct stoplog;

/* Starts the thread. `fd` is borrowed until stoplog_finish. Returns 0 or a negative errno. */
int stoplog_new(int fd, struct stoplog **ret_log);

/* Takes note of a stop. One thread only; never blocks, no system call. */
void stoplog_add(struct stoplog *log, const struct stop *stop);

/*
 * Writes what is left and ends the thread; after the last stoplog_add. Returns 0, the first error of writing (-ENOSPC,
 * ...), or -ENOBUFS when stops are missing because the file was too slow.
 */
int stoplog_finish(struct stoplog *log);

void stoplog_free(struct stoplog *log); /* NULL, and unfinished ones too */

#endif
