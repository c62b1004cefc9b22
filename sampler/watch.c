#include "sampler/watch.h"

#include "common/clock.h"
#include "common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Asking one number costs about 10 us, a scan at least 100 us and about 1 us a thread. */
enum { ASK_LIMIT = 32 };

#define REPAIR_PERIOD_NS NS_PER_SEC

static bool read_counter(const struct watch *watch, pid_t *ret)
{
    char text[128];
    ssize_t size = watch->loadavg_fd < 0 ? -1 : pread(watch->loadavg_fd, text, sizeof(text), 0);
    return size > 0 && procfs_parse_last_pid(text, (size_t)size, ret);
}

void watch_init(struct watch *watch, bool follow_children, uint64_t seed)
{
    *watch = (struct watch){.follow_children = follow_children, .rng = {.state = seed}};
    watch->loadavg_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    /* Containers may put a file of their own there. */
    struct statfs fs;
    if (watch->loadavg_fd >= 0 && (fstatfs(watch->loadavg_fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)) {
        close(watch->loadavg_fd);
        watch->loadavg_fd = -1;
    }
    if (!read_counter(watch, &watch->last_pid))
        watch->last_pid = 0;
}

void watch_deinit(struct watch *watch)
{
    if (watch->loadavg_fd >= 0)
        close(watch->loadavg_fd);
    watch->loadavg_fd = -1;
}

struct scan {
    struct watch *watch;
    struct targets *targets;
    struct process *process;
    bool is_new;
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

/* Adds all threads of the process that are not known. */
static void scan_threads(struct scan *scan)
{
    int error = procfs_each_thread(scan->process->proc_fd, add_thread, scan);
    if (error && !procfs_is_gone(error))
        scan->watch->add_error = error;
}

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
    int error = watch_add(scan->watch, scan->targets, pid, proc_fd, scan->is_new);
    struct process *child = targets_find_process(scan->targets, pid);
    if (child)
        child->is_fork = true;
    if (error)
        close(proc_fd);
    return error == -ENOMEM ? error : 0;
}

int watch_add(struct watch *watch, struct targets *targets, pid_t pid, int proc_fd, bool is_new)
{
    struct scan scan = {.watch = watch, .targets = targets, .is_new = is_new};
    int error = targets_add_process(targets, pid, proc_fd, is_new, &scan.process);
    if (error == -EEXIST) {
        close(proc_fd);
        return 0;
    }
    if (error)
        return error;
    scan_threads(&scan);
    if (watch->follow_children)
        scan_children(&scan);
    return 0;
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

void watch_poll(struct watch *watch, struct targets *targets, uint64_t now_ns)
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
