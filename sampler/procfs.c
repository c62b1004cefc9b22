#include "sampler/procfs.h"

#include "common/fileio.h"
#include "common/hash.h"
#include "common/parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { SMALL_FILE_BYTES = 4096 };

static bool parse_pid(const char **cursor, const char *end, pid_t *ret)
{
    uint64_t number;
    if (!parse_u64(cursor, end, &number) || number > INT_MAX)
        return false;
    *ret = (pid_t)number;
    return true;
}

/* Moves to the beginning of the n-th field from here. */
static bool skip_fields(const char **cursor, const char *end, int count)
{
    const char *p = *cursor;
    while (count-- > 0) {
        p = memchr(p, ' ', (size_t)(end - p));
        if (!p)
            return false;
        p++;
    }
    *cursor = p;
    return true;
}

bool procfs_parse_stat(const char *text, size_t size, struct procfs_stat *ret)
{
    /* The name may hold blanks and brackets itself: it ends at the last ')'. */
    const char *open = memchr(text, '(', size);
    const char *close = memrchr(text, ')', size);
    const char *end = text + size;
    if (!open || !close || close < open || end - close < 4)
        return false;
    struct procfs_stat stat = {0};
    size_t length = (size_t)(close - open - 1);
    if (length >= sizeof(stat.comm))
        length = sizeof(stat.comm) - 1;
    memcpy(stat.comm, open + 1, length);
    stat.state = close[2];
    /* close[4] is field 4. */
    const char *cursor = close + 4;
    uint64_t text_start;
    uint64_t text_end;
    uint64_t stack_start;
    if (!parse_pid(&cursor, end, &stat.ppid) || !skip_fields(&cursor, end, 5) ||
        !parse_u64(&cursor, end, &stat.flags) || !skip_fields(&cursor, end, 17) ||
        !parse_u64(&cursor, end, &text_start) || !skip_fields(&cursor, end, 1) || !parse_u64(&cursor, end, &text_end) ||
        !skip_fields(&cursor, end, 1) || !parse_u64(&cursor, end, &stack_start))
        return false;
    stat.image_hash = procfs_image_hash(text_start, text_end, stack_start);
    uint64_t processor;
    bool has_processor = skip_fields(&cursor, end, 11) && parse_u64(&cursor, end, &processor);
    stat.processor = has_processor && processor <= INT_MAX ? (int)processor : -1;
    *ret = stat;
    return true;
}

uint64_t procfs_image_hash(uint64_t code_start_avma, uint64_t code_end_avma, uint64_t first_stack_avma)
{
    return hash_pair(hash_pair(code_start_avma, code_end_avma), first_stack_avma);
}

bool procfs_parse_schedstat(const char *text, size_t size, struct procfs_schedstat *ret)
{
    const char *cursor = text;
    const char *end = text + size;
    struct procfs_schedstat read;
    if (!parse_u64(&cursor, end, &read.run_ns) || !parse_blanks(&cursor, end) ||
        !parse_u64(&cursor, end, &read.wait_ns) || !parse_blanks(&cursor, end) ||
        !parse_u64(&cursor, end, &read.slices))
        return false;
    *ret = read;
    return true;
}

/* " 0x1f" */
static bool parse_address(const char **cursor, const char *end, uint64_t *ret)
{
    if (!parse_blanks(cursor, end) || end - *cursor < 2 || (*cursor)[0] != '0' || (*cursor)[1] != 'x')
        return false;
    *cursor += 2;
    return parse_hex(cursor, end, ret);
}

bool procfs_parse_syscall(const char *text, size_t size, struct procfs_syscall *ret)
{
    const char *cursor = text;
    const char *end = text + size;
    struct procfs_syscall read = {.number = -1};
    uint64_t number;
    if (size >= 2 && memcmp(text, "-1", 2) == 0) {
        cursor += 2;
    } else {
        if (!parse_u64(&cursor, end, &number) || number > INT_MAX)
            return false;
        read.number = (int64_t)number;
        for (size_t i = 0; i < sizeof(read.arguments) / sizeof(read.arguments[0]); i++)
            if (!parse_address(&cursor, end, &read.arguments[i]))
                return false;
    }
    if (!parse_address(&cursor, end, &read.sp_avma) || !parse_address(&cursor, end, &read.pc_avma))
        return false;
    *ret = read;
    return true;
}

/* "Uid:\t1\t2\t3\t4": up to `limit` numbers; how many there were. */
static size_t parse_list(const char *cursor, const char *end, uint64_t *numbers, size_t limit)
{
    size_t count = 0;
    while (count < limit && parse_blanks(&cursor, end) && parse_u64(&cursor, end, &numbers[count]))
        count++;
    return count;
}

/* "0000000000010000" behind blanks; 0 for anything else. */
static uint64_t parse_mask(const char *text, const char *end)
{
    uint64_t value = 0;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    for (; text < end; text++) {
        unsigned digit = *text >= '0' && *text <= '9' ? (unsigned)(*text - '0') : (unsigned)(*text - 'a') + 10;
        if (digit > 15 || value >> 60)
            return 0;
        value = value << 4 | digit;
    }
    return value;
}

static void parse_status_line(const char *line, const char *end, struct procfs_status *status)
{
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon)
        return;
    size_t key = (size_t)(colon - line);
    uint64_t n[32];
#define KEY_IS(text) (key == sizeof(text) - 1 && memcmp(line, text, key) == 0)
    if (KEY_IS("State")) {
        const char *cursor = colon + 1;
        parse_blanks(&cursor, end);
        status->state = cursor < end ? *cursor : '?';
    } else if (KEY_IS("Tgid") && parse_list(colon + 1, end, n, 1) == 1) {
        status->tgid = (pid_t)n[0];
        if (!status->innermost_tgid)
            status->innermost_tgid = status->tgid; /* kernels without NStgid */
    } else if (KEY_IS("PPid") && parse_list(colon + 1, end, n, 1) == 1) {
        status->ppid = (pid_t)n[0];
    } else if (KEY_IS("TracerPid") && parse_list(colon + 1, end, n, 1) == 1) {
        status->tracer_pid = (pid_t)n[0];
    } else if (KEY_IS("Uid") && parse_list(colon + 1, end, n, 4) == 4) {
        status->real_uid = (uid_t)n[0];
        status->effective_uid = (uid_t)n[1];
        status->fs_uid = (uid_t)n[3];
    } else if (KEY_IS("Gid") && parse_list(colon + 1, end, n, 4) == 4) {
        status->effective_gid = (gid_t)n[1];
    } else if (KEY_IS("Seccomp") && parse_list(colon + 1, end, n, 1) == 1) {
        status->has_seccomp_filter = n[0] == 2; /* SECCOMP_MODE_FILTER */
    } else if (KEY_IS("Seccomp_filters") && parse_list(colon + 1, end, n, 1) == 1) {
        status->seccomp_filters = (unsigned)n[0];
    } else if (KEY_IS("SigBlk")) {
        status->signals_blocked = parse_mask(colon + 1, end);
    } else if (KEY_IS("NStgid")) {
        size_t count = parse_list(colon + 1, end, n, 32);
        if (count)
            status->innermost_tgid = (pid_t)n[count - 1];
    } else if (KEY_IS("NSpid")) {
        size_t count = parse_list(colon + 1, end, n, 32);
        if (count)
            status->innermost_tid = (pid_t)n[count - 1];
    }
#undef KEY_IS
}

bool procfs_parse_status(const char *text, size_t size, struct procfs_status *ret)
{
    const char *end = text + size;
    struct procfs_status status = {0};
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        parse_status_line(line, stop, &status);
        line = stop < end ? stop + 1 : end;
    }
    if (!status.tgid)
        return false;
    *ret = status;
    return true;
}

bool procfs_parse_statm(const char *text, size_t size, uint64_t *ret_size_pages, uint64_t *ret_data_pages)
{
    const char *cursor = text;
    const char *end = text + size;
    uint64_t fields[6];
    for (int i = 0; i < 6; i++) {
        if (i && !parse_blanks(&cursor, end))
            return false;
        if (!parse_u64(&cursor, end, &fields[i]))
            return false;
    }
    *ret_size_pages = fields[0];
    *ret_data_pages = fields[5];
    return true;
}

bool procfs_parse_last_pid(const char *text, size_t size, pid_t *ret)
{
    const char *end = text + size;
    while (end > text && (end[-1] == '\n' || end[-1] == ' '))
        end--;
    const char *blank = memrchr(text, ' ', (size_t)(end - text));
    if (!blank)
        return false;
    blank++;
    pid_t pid;
    if (!parse_pid(&blank, end, &pid) || blank != end)
        return false;
    *ret = pid;
    return true;
}

bool procfs_parse_running(const char *text, size_t size, uint64_t *ret)
{
    const char *end = memchr(text, '/', size);
    const char *start = end;
    while (start && start > text && start[-1] >= '0' && start[-1] <= '9')
        start--;
    if (!start || start == end || start == text || start[-1] != ' ')
        return false;
    return parse_u64(&start, end, ret) && start == end;
}

int procfs_open_loadavg(void)
{
    struct statfs fs;
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)) {
        close(fd);
        return -1;
    }
    return fd;
}

int procfs_open_process(pid_t pid)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int procfs_read_status(int proc_fd, struct procfs_status *ret)
{
    char text[SMALL_FILE_BYTES];
    ssize_t size = fileio_read_text(proc_fd, "status", text, sizeof(text));
    if (size < 0)
        return (int)size;
    return procfs_parse_status(text, (size_t)size, ret) ? 0 : -EINVAL;
}

int procfs_read_stat(int proc_fd, const char *path, struct procfs_stat *ret)
{
    char text[SMALL_FILE_BYTES];
    ssize_t size = fileio_read_text(proc_fd, path, text, sizeof(text));
    if (size < 0)
        return (int)size;
    return procfs_parse_stat(text, (size_t)size, ret) ? 0 : -EINVAL;
}

int procfs_pread_stat(int fd, struct procfs_stat *ret)
{
    char text[1024];
    ssize_t size = pread(fd, text, sizeof(text), 0);
    if (size <= 0)
        return size < 0 ? -errno : -ESRCH;
    return procfs_parse_stat(text, (size_t)size, ret) ? 0 : -EINVAL;
}

int procfs_pread_schedstat(int fd, struct procfs_schedstat *ret)
{
    char text[96];
    ssize_t size = pread(fd, text, sizeof(text), 0);
    if (size <= 0)
        return size < 0 ? -errno : -ESRCH;
    return procfs_parse_schedstat(text, (size_t)size, ret) ? 0 : -EINVAL;
}

bool procfs_is_dead(int proc_fd)
{
    struct procfs_stat stat;
    struct stat task;
    int error = procfs_read_stat(proc_fd, "stat", &stat);
    if (error)
        return procfs_is_gone(error);
    /* The link count of task/ is 2 + the number of threads. */
    return (stat.state == 'Z' || stat.state == 'X') && (fstatat(proc_fd, "task", &task, 0) < 0 || task.st_nlink <= 3);
}

int procfs_each_thread(int proc_fd, int (*found)(void *context, pid_t tid), void *context)
{
    int fd = openat(proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *directory = fdopendir(fd);
    if (!directory) {
        int error = -errno;
        close(fd);
        return error;
    }
    int result = 0;
    struct dirent *entry;
    while (!result && (entry = readdir(directory))) {
        uint64_t tid;
        if (parse_number(entry->d_name, &tid) && tid && tid <= INT_MAX)
            result = found(context, (pid_t)tid);
    }
    closedir(directory);
    return result;
}

struct child_search {
    int proc_fd;
    int (*found)(void *context, pid_t pid);
    void *context;
};

static int children_of_thread(void *context, pid_t tid)
{
    const struct child_search *search = context;
    char path[48];
    snprintf(path, sizeof(path), "task/%d/children", (int)tid);
    autoclose int fd = openat(search->proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* the thread is gone, or the kernel has no such file */
    char *text;
    size_t size;
    int error = fileio_read_all(fd, 1 << 24, &text, &size);
    if (error)
        return error == -ESRCH ? 0 : error;
    int result = 0;
    const char *cursor = text;
    uint64_t pid;
    while (!result && parse_u64(&cursor, text + size, &pid)) {
        result = pid && pid <= INT_MAX ? search->found(search->context, (pid_t)pid) : 0;
        parse_blanks(&cursor, text + size);
    }
    free(text);
    return result;
}

int procfs_each_child(int proc_fd, int (*found)(void *context, pid_t pid), void *context)
{
    struct child_search search = {.proc_fd = proc_fd, .found = found, .context = context};
    return procfs_each_thread(proc_fd, children_of_thread, &search);
}
