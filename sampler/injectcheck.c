#include "sampler/injectcheck.h"

#include "common/fileio.h"
#include "sampler/attach.h"
#include "sampler/injectthreads.h"
#include "sampler/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- threads ---- */

struct thread_check {
    int proc_fd;
    pid_t tracer_pid;
    bool has_seccomp;
    bool has_shadow_stack;
};

/* "Seccomp:\t2": strict or a filter. "x86_Thread_features:\tshstk wrss": from Linux 6.6 on. Newlines of a thread's name
 * are escaped, so the lines are the kernel's. */
static int check_thread(void *context, pid_t tid)
{
    struct thread_check *check = context;
    char path[48];
    char text[8192];
    struct procfs_status status;
    snprintf(path, sizeof(path), "task/%d/status", (int)tid);
    ssize_t size = fileio_read_text(check->proc_fd, path, text, sizeof(text));
    if (size <= 0)
        return 0;
    const char *seccomp = strstr(text, "\nSeccomp:\t");
    const char *features = strstr(text, "\nx86_Thread_features:");
    size_t length = features ? strcspn(features + 1, "\n") + 1 : 0;
    check->has_seccomp = seccomp && seccomp[strlen("\nSeccomp:\t")] != '0';
    check->has_shadow_stack = features && memmem(features, length, "shstk", 5) != NULL;
    if (procfs_parse_status(text, (size_t)size, &status))
        check->tracer_pid = status.tracer_pid;
    return check->has_seccomp || check->has_shadow_stack || check->tracer_pid;
}

static int check_threads(int proc_fd, struct strbuf *why)
{
    struct thread_check check = {.proc_fd = proc_fd};
    procfs_each_thread(proc_fd, check_thread, &check);
    if (check.has_seccomp)
        strbuf_adds(why, "a seccomp filter is on it, which may kill it for what loading a library calls; sample it "
                         "without the helper");
    else if (check.has_shadow_stack)
        strbuf_adds(why, "it has a shadow stack; sample it without the helper");
    else if (check.tracer_pid)
        strbuf_addf(why, "already traced by PID %d; detach that first", (int)check.tracer_pid);
    else
        return 0;
    return check.has_seccomp || check.has_shadow_stack ? -EOPNOTSUPP : -EPERM;
}

/* ---- the library ---- */

/* As the process sees it: a link on the way counts below its root, not ours. */
static int open_in_root(int root_fd, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

static int check_library(int proc_fd, pid_t tid, const char *path, struct strbuf *why)
{
    struct stat ours;
    struct stat theirs;
    if (path[0] != '/' || stat(path, &ours) < 0 || !S_ISREG(ours.st_mode)) {
        strbuf_addf(why, "there is no library at %s; install it there", path);
        return -ENOENT;
    }
    char root[48];
    snprintf(root, sizeof(root), "task/%d/root", (int)tid);
    autoclose int root_fd = openat(proc_fd, root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        int error = errno;
        strbuf_addf(why, "its root directory cannot be opened (%s); run as root", strerror(error));
        return error == ENOENT ? -ESRCH : -error;
    }
    autoclose int fd = open_in_root(root_fd, path);
    if (fd < 0 || fstat(fd, &theirs) < 0) {
        strbuf_addf(why, "it does not see %s (another mount namespace or root directory); put that file there", path);
        return -ENOENT;
    }
    if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino) {
        strbuf_addf(why, "at %s it sees another file than the sampler; mount the same one there", path);
        return -ENOENT;
    }
    return 0;
}

/* ---- the process ---- */

static int refuse_by_refusal(pid_t pid, int proc_fd, struct strbuf *why)
{
    struct refusal refusal = {0};
    refusal_note(&refusal, pid, proc_fd);
    refusal_explain(&refusal, why);
    return -EPERM;
}

int injectcheck(pid_t pid, int proc_fd, const char *library_path, struct strbuf *ret_why)
{
    struct procfs_stat stat;
    int error = procfs_read_stat(proc_fd, "stat", &stat);
    pid_t tid = injectthreads_find_living(proc_fd);
    if (error || !tid) {
        strbuf_adds(ret_why, "it has ended");
        return -ESRCH;
    }
    if (attach_is_foreign(proc_fd)) {
        strbuf_adds(ret_why, "a 32-bit program; the helper is a 64-bit library");
        return -ENOEXEC;
    }
    error = check_threads(proc_fd, ret_why);
    if (error)
        return error;
    if (stat.state == 'T' || stat.state == 't') {
        strbuf_addf(ret_why, "it is stopped; let it go on first (kill -CONT %d)", (int)pid);
        return -EBUSY;
    }
    char mem[48];
    snprintf(mem, sizeof(mem), "task/%d/mem", (int)tid);
    autoclose int mem_fd = openat(proc_fd, mem, O_RDONLY | O_CLOEXEC);
    if (mem_fd < 0 && (errno == EACCES || errno == EPERM))
        return refuse_by_refusal(pid, proc_fd, ret_why);
    return check_library(proc_fd, tid, library_path, ret_why);
}
