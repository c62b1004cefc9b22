/*
 * What /proc says, as numbers. Parsers take bytes and know their end; readers take a directory descriptor of /proc/PID,
 * which stays bound to that process: when its pid is used again, reads through the old descriptor fail with ESRCH.
 * Source of the formats: proc(5) and fs/proc/array.c of the kernel.
 */
#ifndef SAMPLER_PROCFS_H
#define SAMPLER_PROCFS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCFS_COMM_BYTES = 64 }; /* 16 for user threads; kernel workers have longer ones */

/* /proc/PID/stat and /proc/PID/task/TID/stat: "42 (a b) c) R 1 ..." */
struct procfs_stat {
    char comm[PROCFS_COMM_BYTES];
    char state; /* R running or runnable, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead */
    pid_t ppid;
    uint64_t flags; /* PF_* of the kernel */
    /*
     * Made of where program text starts and ends and where the first stack starts (fields 26 to 28): another value is
     * another program image, after exec. All three are 0 where reading them is not allowed.
     */
    uint64_t image_hash;
    int processor; /* on which it is, or was last; -1: not told */
};
bool procfs_parse_stat(const char *text, size_t size, struct procfs_stat *ret);
uint64_t procfs_image_hash(uint64_t code_start_avma, uint64_t code_end_avma, uint64_t first_stack_avma);

#define PROCFS_PF_KTHREAD 0x00200000U
#define PROCFS_PF_EXITING 0x00000004U /* on its way out: it has no memory any more, and cannot be stopped */

/* The thread has ended or is about to. Who asks the kernel for rights over it is then refused like somebody without
 * them. */
static inline bool procfs_stat_is_ending(const struct procfs_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X' || (stat->flags & PROCFS_PF_EXITING);
}

/* /proc/PID/task/TID/schedstat: "run_ns wait_ns slices"; all zero where the kernel does not keep them. */
struct procfs_schedstat {
    uint64_t run_ns;  /* on a CPU */
    uint64_t wait_ns; /* runnable, waiting for one; counted when the wait ends */
    uint64_t slices;
};
bool procfs_parse_schedstat(const char *text, size_t size, struct procfs_schedstat *ret);

/*
 * /proc/PID/task/TID/syscall of a thread that is off the CPU: "232 0x5 0x7ffc… … 0xSP 0xPC" in a system call (number,
 * six arguments, stack pointer, program counter), "-1 0xSP 0xPC" outside of one (a page fault). "running" is none.
 */
struct procfs_syscall {
    int64_t number; /* -1: none */
    uint64_t arguments[6];
    uint64_t sp_avma;
    uint64_t pc_avma;
};
bool procfs_parse_syscall(const char *text, size_t size, struct procfs_syscall *ret);

/* /proc/PID/status, the lines that are of use here. */
struct procfs_status {
    pid_t tgid;
    pid_t ppid;
    pid_t tracer_pid;
    pid_t innermost_tgid; /* last number of NStgid: the pid as the process itself sees it */
    pid_t innermost_tid;  /* last number of NSpid: the thread as the process itself sees it; 0: not told */
    uid_t real_uid, effective_uid, fs_uid;
    gid_t effective_gid;
    char state;
    uint64_t signals_blocked; /* of this thread: bit n - 1 for signal n */
    bool has_seccomp_filter;
    unsigned seccomp_filters; /* how many; 0 also where the kernel does not tell (before Linux 5.9) */
};
bool procfs_parse_status(const char *text, size_t size, struct procfs_status *ret);

/* /proc/PID/statm, in pages: "size resident shared text lib data dt". `size` - `data` moves when code is mapped. */
bool procfs_parse_statm(const char *text, size_t size, uint64_t *ret_size_pages, uint64_t *ret_data_pages);

/* Last field of /proc/loadavg: the newest pid or tid in our pid namespace (and those below it). */
bool procfs_parse_last_pid(const char *text, size_t size, pid_t *ret);

/* The number before the slash in /proc/loadavg: threads of the whole machine that run or wait for a CPU, the reader
 * included. */
bool procfs_parse_running(const char *text, size_t size, uint64_t *ret);

/* -1 where it is not the kernel's: containers may put a file of their own there. */
int procfs_open_loadavg(void);

/* Opens /proc/PID as a directory. Returns the descriptor or a negative errno. */
int procfs_open_process(pid_t pid);

int procfs_read_status(int proc_fd, struct procfs_status *ret);               /* 0 or a negative errno */
int procfs_read_stat(int proc_fd, const char *path, struct procfs_stat *ret); /* path below /proc/PID */
int procfs_pread_stat(int fd, struct procfs_stat *ret);                       /* of an open stat file */
int procfs_pread_schedstat(int fd, struct procfs_schedstat *ret);

/* Whether this error of a read below /proc/PID says that the process or thread is gone; others, out of descriptors for
 * example, say nothing. */
static inline bool procfs_is_gone(int error)
{
    return error == -ESRCH || error == -ENOENT;
}

/* True when the process has ended: gone, or a zombie without other threads. (A main thread that ended alone is a zombie
 * too.) */
bool procfs_is_dead(int proc_fd);

/* Calls `found` for each thread id below task/, in no order. Returns 0, or the first non-zero of `found`, or a negative
 * errno. */
int procfs_each_thread(int proc_fd, int (*found)(void *context, pid_t tid), void *context);

/* The same for each child process of each thread. Needs CONFIG_PROC_CHILDREN; finds none without. */
int procfs_each_child(int proc_fd, int (*found)(void *context, pid_t pid), void *context);

#endif
