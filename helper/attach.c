#include "helper/attach.h"

#include "helper/disposition.h"
#include "helper/handler.h"
#include "helper/safeload.h"
#include "helper/state.h"
#include "helper/threads.h"
#include "helper/timers.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* elf.h of Debian 12 has it; older ones do not. */
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

/* Until the sampler says: some 20 s. */
#define FIRST_PATIENCE_TSC UINT64_C(60000000000)

/* What is left of a sampler that is gone, or has let go: does nobody hear from it any more? */
static bool clear_away(void)
{
    struct helper_shared *shared = state_enter();
    if (shared) {
        uint64_t silent_tsc = state_tsc(shared) - atomic_load(&shared->settings.alive_tsc);
        bool is_over = atomic_load(&shared->settings.wish) == HELPER_WISH_WITHDRAW ||
                       (int64_t)silent_tsc > (int64_t)shared->settings.patience_tsc;
        if (is_over)
            handler_withdraw();
    }
    state_leave();
    bool is_clear = state_enter() == NULL;
    state_leave();
    return is_clear;
}

static void find_limits(struct helper_shared *shared)
{
    int tsc = PR_TSC_ENABLE;
    if (prctl(PR_GET_TSC, &tsc, 0, 0, 0) == 0 && tsc == PR_TSC_SIGSEGV)
        atomic_fetch_or(&shared->settings.limits, HELPER_NO_TSC);
}

/* false: somebody is at work in this process already. Signals are owned by then. */
static bool start(struct helper_shared *shared, int *ret_error)
{
    shared->report.faults_before = safeload_faults();
    if (!state_set(shared))
        return false;
    state_enter(); /* against who withdraws at once */
    *ret_error = timers_arm_all(shared);
    if (!*ret_error)
        *ret_error = timers_arm_process(shared);
    if (*ret_error)
        handler_withdraw();
    else
        atomic_store(&shared->report.is_ready, 1);
    state_leave();
    return true;
}

/* On failure nothing of it is left, and the memory is the caller's. `ret_is_consumed`: it is not, for it was in use. */
static int begin(struct helper_shared *shared, bool *ret_is_consumed)
{
    int signal = (int)shared->settings.signal;
    unsigned long bytes = getauxval(AT_MINSIGSTKSZ);
    handler_set_frame_bytes(bytes ? bytes : 4096);
    *ret_is_consumed = false;
    /* Loads by instruction only where the program's own changes of its handlers go through us. */
    int error = threads_are_followed() && shared->settings.loads != HELPER_LOADS_CALL ? safeload_own() : 0;
    if (!error)
        error = disposition_own(signal, handler_take, SA_ONSTACK | SA_RESTART);
    if (error) {
        safeload_disown();
        return error;
    }
    disposition_set_guard(signal);
    *ret_is_consumed = start(shared, &error);
    return *ret_is_consumed ? error : -EBUSY;
}

/* ---- into a running program ---- */

static int make_memory(struct helper_shared **ret_shared, int *ret_fd)
{
    int fd = memfd_create("sampler-helper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    struct stat st;
    void *memory = MAP_FAILED;
    if (ftruncate(fd, sizeof(struct helper_shared)) == 0 && fstat(fd, &st) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, sizeof(struct helper_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        int error = -errno;
        close(fd);
        return error;
    }
    *ret_shared = memory;
    (*ret_shared)->report.inode = st.st_ino;
    (*ret_shared)->report.is_late = true;
    (*ret_shared)->report.dev = st.st_dev;
    *ret_fd = fd;
    return 0;
}

static void obey_argument(struct helper_shared *shared, uint64_t argument)
{
    unsigned rate_hz = argument & ((1U << 14) - 1);
    struct helper_settings *settings = &shared->settings;
    shared->magic = HELPER_MAGIC;
    shared->version = HELPER_VERSION;
    shared->size = sizeof(*shared);
    settings->timer = argument >> 21 & 3U;
    settings->signal = argument >> 14 & 127U;
    settings->follows_frame_pointers = argument >> 23 & 1U;
    settings->loads = argument >> 24 & 3U;
    settings->cookie = (uint32_t)(argument >> 32);
    settings->period_ns = UINT64_C(1000000000) / (rate_hz ? rate_hz : 1);
    settings->max_depth = UINT32_MAX;
    settings->patience_tsc = FIRST_PATIENCE_TSC;
    atomic_store(&settings->alive_tsc, state_tsc(shared));
    atomic_store(&settings->wish, HELPER_WISH_RUN);
}

int64_t sampler_helper_attach(uint64_t argument)
{
    struct helper_shared *shared = NULL;
    bool is_consumed;
    int fd = -1;
    int error = state_init();
    if (error)
        return error;
    if (!clear_away())
        return -EBUSY;
    error = make_memory(&shared, &fd);
    if (error)
        return error;
    find_limits(shared);
    obey_argument(shared, argument);
    shared->report.fd = fd;
    error = begin(shared, &is_consumed);
    if (!error)
        return fd;
    if (!is_consumed) {
        munmap(shared, sizeof(*shared));
        close(fd);
    }
    return error;
}

/* ---- before the program ---- */

static int add_lasting(struct dl_phdr_info *info, size_t size, void *context)
{
    struct helper_report *report = context;
    struct helper_range range = {.start_avma = UINT64_MAX};
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *program = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + program->p_vaddr;
        if (program->p_type != PT_LOAD)
            continue;
        if (start < range.start_avma)
            range.start_avma = start;
        if (start + program->p_memsz > range.end_avma)
            range.end_avma = start + program->p_memsz;
    }
    if (report->lasting_count < HELPER_LASTING && range.start_avma < range.end_avma)
        report->lasting[report->lasting_count++] = range;
    return 0;
}

/* LD_PRELOAD as the program would have it: without us. */
static void restore_preload(void)
{
    const char *value = getenv("LD_PRELOAD");
    const char *rest = value ? strchr(value, ':') : NULL;
    if (rest)
        setenv("LD_PRELOAD", rest + 1, 1);
    else
        unsetenv("LD_PRELOAD");
}

static struct helper_shared *map_memory(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *memory = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size == sizeof(struct helper_shared))
        memory = mmap(NULL, sizeof(struct helper_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct helper_shared *shared = memory == MAP_FAILED ? NULL : memory;
    if (shared && (shared->magic != HELPER_MAGIC || shared->version != HELPER_VERSION)) {
        munmap(memory, sizeof(struct helper_shared));
        return NULL;
    }
    return shared;
}

__attribute__((constructor)) static void load(void)
{
    pthread_atfork(state_before_fork, NULL, state_in_child);
    const char *path = getenv(HELPER_VARIABLE);
    if (!path)
        return;
    struct helper_shared *shared = map_memory(path);
    unsetenv(HELPER_VARIABLE);
    restore_preload();
    if (!shared)
        return;
    bool is_consumed = false;
    int error = state_init();
    if (!error) {
        dl_iterate_phdr(add_lasting, &shared->report);
        threads_follow();
        error = begin(shared, &is_consumed);
    }
    if (error && !is_consumed) {
        atomic_store(&shared->report.error, error);
        munmap(shared, sizeof(*shared));
    }
}
