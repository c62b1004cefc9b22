#include "sampler/attach.h"

#include "common/fileio.h"
#include "common/parse.h"
#include "sampler/procfs.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool attach_is_foreign(int proc_fd)
{
    autoclose int fd = openat(proc_fd, "exe", O_RDONLY | O_CLOEXEC);
    unsigned char ident[EI_NIDENT];
    return fd >= 0 && fileio_pread(fd, ident, sizeof(ident), 0) == (ssize_t)sizeof(ident) &&
           memcmp(ident, ELFMAG, SELFMAG) == 0 && ident[EI_CLASS] != ELFCLASS64;
}

/* Yama's setting; 0 where there is no Yama. */
static unsigned ptrace_scope(void)
{
    char text[16];
    uint64_t scope = 0;
    ssize_t size = fileio_read_text(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
    const char *cursor = text;
    if (size > 0)
        parse_u64(&cursor, text + size, &scope);
    return (unsigned)scope;
}

void refusal_note(struct refusal *refusal, pid_t pid, int proc_fd)
{
    struct procfs_status status;
    if (refusal->pid)
        return;
    /* Gone just now: then for all that is known it was one of ours. */
    *refusal = (struct refusal){.pid = pid, .real_uid = geteuid(), .effective_uid = geteuid()};
    if (procfs_read_status(proc_fd, &status) == 0) {
        refusal->real_uid = status.real_uid;
        refusal->effective_uid = status.effective_uid;
    }
}

void refusal_explain(const struct refusal *refusal, struct strbuf *ret_text)
{
    uid_t uid = geteuid();
    unsigned scope = ptrace_scope();
    if (uid != 0 && (refusal->real_uid != uid || refusal->effective_uid != uid))
        strbuf_addf(
            ret_text,
            "not permitted: it runs as uid %u and the sampler as uid %u; run the sampler as that user, as root, or "
            "with CAP_SYS_PTRACE",
            (unsigned)refusal->effective_uid, (unsigned)uid);
    else if (scope > 0)
        strbuf_addf(
            ret_text, "not permitted: kernel.yama.ptrace_scope is %u; run as root or with CAP_SYS_PTRACE%s", scope,
            scope < 3 ? ", or set it to 0 with sysctl kernel.yama.ptrace_scope=0" : " after a restart with less");
    else
        strbuf_adds(ret_text,
                    "not permitted: the process has made itself non-dumpable, or it has rights that the sampler has "
                    "not (CAP_SYS_PTRACE, user namespace, seccomp); run as root");
}

static int refuse(struct strbuf *error, pid_t pid, int code, const char *why)
{
    strbuf_addf(error, "cannot attach to %d: %s", (int)pid, why);
    return code;
}

static int check_tracer(pid_t pid, pid_t tracer, struct strbuf *error)
{
    struct procfs_stat stat = {.comm = "?"};
    autoclose int fd = procfs_open_process(tracer);
    if (fd >= 0)
        procfs_read_stat(fd, "stat", &stat);
    strbuf_addf(error, "cannot attach to %d: already traced by PID %d (%s); detach that first", (int)pid, (int)tracer,
                stat.comm);
    return -EPERM;
}

struct tracer_check {
    int proc_fd;
    unsigned asked;
    pid_t tracer_pid;
};

/*
 * The main thread, which comes first, and so many in all: who traces a process traces all of it, as a rule, and each
 * costs some 10 us. Who has one of the others alone is noticed when that one is to be stopped (othertracer.h).
 */
enum { TRACER_CHECKS = 64 };

static int find_tracer(void *context, pid_t tid)
{
    struct tracer_check *check = context;
    char path[32];
    struct procfs_status status;
    snprintf(path, sizeof(path), "task/%d", (int)tid);
    autoclose int fd = openat(check->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && procfs_read_status(fd, &status) == 0)
        check->tracer_pid = status.tracer_pid;
    return check->tracer_pid != 0 || ++check->asked == TRACER_CHECKS;
}

/* Who traces any of its first threads; 0: nobody. */
static pid_t tracer_of_any(int proc_fd)
{
    struct tracer_check check = {.proc_fd = proc_fd};
    procfs_each_thread(proc_fd, find_tracer, &check);
    return check.tracer_pid;
}

struct memory_check {
    int proc_fd;
    int error;
};

/* Asked after a refusal. */
static bool is_ending(const struct memory_check *memory, pid_t tid)
{
    char path[48];
    struct procfs_stat stat;
    snprintf(path, sizeof(path), "task/%d/stat", (int)tid);
    return procfs_read_stat(memory->proc_fd, path, &stat) < 0 || procfs_stat_is_ending(&stat);
}

/* Opening its memory asks the kernel the same question as PTRACE_SEIZE, without touching it. 1 ends the search. */
static int check_memory(void *context, pid_t tid)
{
    struct memory_check *memory = context;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/mem", (int)tid);
    autoclose int fd = openat(memory->proc_fd, path, O_RDONLY | O_CLOEXEC);
    memory->error = fd < 0 ? errno : 0;
    if (memory->error && is_ending(memory, tid))
        memory->error = ESRCH;
    return memory->error != ESRCH && memory->error != ENOENT; /* else: a thread that has ended, or just did */
}

static int check_rights(pid_t pid, int proc_fd, struct strbuf *error)
{
    struct memory_check memory = {.proc_fd = proc_fd, .error = ESRCH};
    procfs_each_thread(proc_fd, check_memory, &memory);
    if (memory.error == 0)
        return 0;
    if (memory.error == ESRCH || memory.error == ENOENT)
        return refuse(error, pid, -ESRCH, "no such process");
    strbuf_addf(error, "cannot attach to %d: ", (int)pid);
    struct refusal refusal = {0};
    refusal_note(&refusal, pid, proc_fd);
    refusal_explain(&refusal, error);
    return -EPERM;
}

static int check(pid_t pid, int proc_fd, struct strbuf *error)
{
    struct procfs_stat stat;
    struct procfs_status status;
    if (pid == getpid())
        return refuse(error, pid, -EINVAL, "that is the sampler itself");
    if (procfs_read_stat(proc_fd, "stat", &stat) < 0 || procfs_read_status(proc_fd, &status) < 0)
        return refuse(error, pid, -ESRCH, "no such process");
    if (stat.flags & PROCFS_PF_KTHREAD)
        return refuse(error, pid, -EINVAL, "a kernel thread; only user processes can be sampled");
    if (status.tgid != pid) {
        strbuf_addf(error, "cannot attach to %d: a thread of process %d; use -p %d -t %d", (int)pid, (int)status.tgid,
                    (int)status.tgid, (int)pid);
        return -EINVAL;
    }
    if (procfs_is_dead(proc_fd))
        return refuse(error, pid, -ESRCH, "a zombie; it has ended and waits for its parent");
    pid_t tracer_pid = tracer_of_any(proc_fd);
    if (tracer_pid)
        return check_tracer(pid, tracer_pid, error);
    if (attach_is_foreign(proc_fd))
        return refuse(error, pid, -ENOEXEC, "a 32-bit program; only 64-bit ones are supported");
    return 0;
}

int attach_open(pid_t pid, struct attached *ret_attached, struct strbuf *ret_error)
{
    autoclose int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int pid_error = errno;
    autoclose int proc_fd = procfs_open_process(pid);
    if (proc_fd < 0)
        return refuse(ret_error, pid, -ESRCH, "no such process");
    int error = check(pid, proc_fd, ret_error);
    if (error)
        return error;
    error = check_rights(pid, proc_fd, ret_error);
    if (error)
        return error;
    if (pid_fd < 0)
        return refuse(ret_error, pid, -pid_error, strerror(pid_error));
    struct pollfd ended = {.fd = pid_fd, .events = POLLIN};
    if (poll(&ended, 1, 0) == 1)
        return refuse(ret_error, pid, -ESRCH, "no such process"); /* ended meanwhile: the directory may be another's */
    *ret_attached = (struct attached){.pid = pid, .proc_fd = proc_fd, .pid_fd = pid_fd};
    proc_fd = -1;
    pid_fd = -1;
    return 0;
}
