#include "sampler/helperlink.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "helper/slots.h"
#include "sampler/helpercost.h"
#include "sampler/helperrules.h"
#include "sampler/inject.h"
#include "sampler/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The sampler is taken for dead when it was not heard of for so long. */
#define PATIENCE_NS (5 * NS_PER_SEC)
/* Until we have begun: other targets may take their time. */
#define FIRST_PATIENCE_NS (10 * NS_PER_SEC)

enum { MAPS_LIMIT_BYTES = 64 << 20 };
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

struct helperlink {
    struct helper_shared *shared;
    int fd; /* owned; -1: only mapped */
    uint32_t cookie;
    int signal;
    bool is_injected;
    struct helperring ring;
    struct helpercost cost;
    uint64_t generation;   /* of the last map */
    pthread_mutex_t mutex; /* guards the rules */
    struct helperrules *rules;
    struct helper_counters counters;
    uint8_t *buffer; /* owned, HELPERRING_BUFFER_BYTES */
};

/* ---- the library ---- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int helperlink_find_library(struct strbuf *ret_path)
{
    static const char *const places[] = {"", "../helper/", SAMPLER_HELPER_PLACE};
    char self[4096];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (size < 0)
        return -errno;
    self[size] = 0;
    char *end = strrchr(self, '/');
    if (!end)
        return -ENOENT;
    end[1] = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct strbuf path = {0};
        strbuf_addf(&path, "%s%s%s", self, places[i], HELPER_LIBRARY);
        char *real = path.data && is_file(path.data) ? realpath(path.data, NULL) : NULL;
        strbuf_deinit(&path);
        if (!real)
            continue;
        strbuf_adds(ret_path, real);
        free(real);
        return strbuf_error(ret_path);
    }
    return -ENOENT;
}

/* ---- memory ---- */

static enum helper_timer timer_of(const struct options *options)
{
    if (options->mode == MODE_WALL)
        return HELPER_TIMER_NONE;
    return options->helper_timer_process ? HELPER_TIMER_PROCESS : HELPER_TIMER_THREAD;
}

/* Ignored where nobody has a handler, so one that is late does no harm. */
enum { SIGNAL = SIGURG };

static uint32_t make_cookie(void)
{
    uint32_t cookie;
    if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
        cookie = (uint32_t)hash_pair(clock_now_ns(), (uint64_t)getpid());
    return cookie | 1;
}

static int map_memory(struct helperlink *link)
{
    struct stat st;
    int seals = fcntl(link->fd, F_GET_SEALS);
    /* It could be made smaller under our feet otherwise. */
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(link->fd, &st) < 0 || st.st_size != sizeof(struct helper_shared))
        return -EINVAL;
    void *memory = mmap(NULL, sizeof(struct helper_shared), PROT_READ | PROT_WRITE, MAP_SHARED, link->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    link->shared = memory;
    link->ring.ring = &link->shared->ring;
    link->rules = helperrules_new(link->shared);
    return link->rules ? 0 : -ENOMEM;
}

static struct helperlink *new_link(void)
{
    struct helperlink *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    pthread_mutex_init(&link->mutex, NULL);
    link->fd = -1;
    link->signal = SIGNAL;
    link->cookie = make_cookie();
    link->buffer = malloc(HELPERRING_BUFFER_BYTES);
    link->counters.is_there = true;
    helpercost_begin(&link->cost);
    if (link->buffer)
        return link;
    helperlink_free(link);
    return NULL;
}

static void set_settings(struct helperlink *link, const struct options *options)
{
    struct helper_settings *settings = &link->shared->settings;
    settings->max_depth = options->max_depth < UINT32_MAX ? (uint32_t)options->max_depth : UINT32_MAX;
    settings->patience_tsc = helpercost_tsc(&link->cost, FIRST_PATIENCE_NS);
    atomic_store(&settings->alive_tsc, helpercost_now_tsc());
}

int helperlink_new(const struct options *options, struct helperlink **ret_link)
{
    struct helperlink *link = new_link();
    if (!link)
        return -ENOMEM;
    link->fd = memfd_create("sampler-helper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = link->fd < 0 || ftruncate(link->fd, sizeof(struct helper_shared)) < 0 ||
                        fcntl(link->fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0
                    ? -errno
                    : map_memory(link);
    if (error) {
        helperlink_free(link);
        return error;
    }
    struct helper_shared *shared = link->shared;
    shared->magic = HELPER_MAGIC;
    shared->version = HELPER_VERSION;
    shared->size = sizeof(*shared);
    shared->report.fd = -1;
    shared->settings.timer = timer_of(options);
    shared->settings.loads = options->helper_loads;
    shared->settings.signal = (uint32_t)link->signal;
    shared->settings.period_ns = NS_PER_SEC / options->rate_hz;
    shared->settings.follows_frame_pointers = options->unwind != UNWIND_DWARF;
    shared->settings.cookie = link->cookie;
    set_settings(link, options);
    atomic_store(&shared->settings.wish, HELPER_WISH_RUN);
    *ret_link = link;
    return 0;
}

void helperlink_path(const struct helperlink *link, struct strbuf *ret_path)
{
    strbuf_addf(ret_path, "/proc/%d/fd/%d", (int)getpid(), link->fd);
}

/* What the target calls its memory may be anything, a device for example: it is looked at before it is opened. */
static int open_memory(struct helperlink *link, int proc_fd, int64_t number)
{
    char path[48];
    struct stat st;
    snprintf(path, sizeof(path), "fd/%lld", (long long)number);
    autoclose int place_fd = openat(proc_fd, path, O_PATH | O_CLOEXEC);
    if (place_fd < 0 || fstat(place_fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size != sizeof(struct helper_shared))
        return -EINVAL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", place_fd);
    link->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return link->fd < 0 ? -errno : map_memory(link);
}

int helperlink_inject(const struct options *options, pid_t pid, int proc_fd, uint64_t timeout_ns,
                      struct helperlink **ret_link, struct strbuf *ret_why)
{
    struct strbuf library = {0};
    struct helperlink *link = new_link();
    struct inject_result result = {0};
    int error = link ? helperlink_find_library(&library) : -ENOMEM;
    if (error) {
        strbuf_addf(ret_why, "cannot find %s: %s", HELPER_LIBRARY, strerror(-error));
    } else {
        uint64_t argument = helper_argument(options->rate_hz, (unsigned)link->signal, timer_of(options),
                                            options->unwind != UNWIND_DWARF, options->helper_loads, link->cookie);
        struct inject_request request = {.pid = pid,
                                         .proc_fd = proc_fd,
                                         .library_path = library.data,
                                         .function = HELPER_FUNCTION,
                                         .argument = argument,
                                         .timeout_ns = timeout_ns};
        error = inject_call(&request, &result, ret_why);
        if (!error && (result.value < 0 || result.value > INT_MAX)) {
            error = result.value < 0 && result.value > -4096 ? (int)result.value : -EINVAL;
            strbuf_addf(ret_why, "the helper cannot begin in %d: %s", (int)pid,
                        error == -EBUSY ? "another sampler's is at work there" : strerror(-error));
        }
    }
    strbuf_deinit(&library);
    if (!error) {
        error = open_memory(link, proc_fd, result.value);
        if (error)
            strbuf_addf(ret_why, "cannot share memory with %d: %s", (int)pid, strerror(-error));
    }
    if (error) {
        helperlink_free(link);
        return error;
    }
    link->is_injected = true;
    set_settings(link, options);
    atomic_store(&link->shared->report.is_fd_taken, 1);
    *ret_link = link;
    return 0;
}

void helperlink_ask_withdraw(struct helperlink *link)
{
    atomic_store(&link->shared->settings.wish, HELPER_WISH_WITHDRAW);
}

bool helperlink_is_withdrawn(const struct helperlink *link)
{
    return atomic_load(&link->shared->report.withdrawn) != 0;
}

bool helperlink_wait_withdrawn(const struct helperlink *link, uint64_t timeout_ns)
{
    uint64_t end_ns = clock_now_ns() + timeout_ns;
    while (!helperlink_is_withdrawn(link) && clock_now_ns() < end_ns)
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    return helperlink_is_withdrawn(link);
}

void helperlink_free(struct helperlink *link)
{
    if (!link)
        return;
    helperrules_free(link->rules);
    if (link->shared)
        munmap(link->shared, sizeof(*link->shared));
    if (link->fd >= 0)
        close(link->fd);
    free(link->buffer);
    pthread_mutex_destroy(&link->mutex);
    free(link);
}

/* ---- work ---- */

int helperlink_state(const struct helperlink *link, bool *ret_is_ready)
{
    *ret_is_ready = atomic_load(&link->shared->report.is_ready) != 0;
    int error = atomic_load(&link->shared->report.error);
    return error < 0 && error > -4096 ? error : 0;
}

bool helperlink_is_mapped(const struct helperlink *link, int proc_fd)
{
    struct stat st;
    char *text = NULL;
    struct mapping *list = NULL;
    size_t size;
    size_t count = 0;
    bool is_mapped = false;
    autoclose int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(link->fd, &st) < 0 || fileio_read_all(fd, MAPS_LIMIT_BYTES, &text, &size) < 0)
        return false;
    if (mappings_parse(text, size, &list, &count) == 0)
        for (size_t i = 0; i < count && !is_mapped; i++)
            is_mapped = list[i].inode == st.st_ino && list[i].dev == st.st_dev;
    free(list);
    free(text);
    return is_mapped;
}

void helperlink_must_not_call(struct helperlink *link)
{
    atomic_fetch_or(&link->shared->settings.limits, HELPER_NO_CALLS);
}

void helperlink_beat(struct helperlink *link, uint64_t now_ns)
{
    helpercost_update(&link->cost, now_ns);
    link->shared->settings.patience_tsc = helpercost_tsc(&link->cost, PATIENCE_NS);
    atomic_store_explicit(&link->shared->settings.alive_tsc, helpercost_now_tsc(), memory_order_relaxed);
}

bool helperlink_set_map(struct helperlink *link, const struct address_map *map)
{
    if (map->code.generation == link->generation)
        return false;
    link->generation = map->code.generation;
    pthread_mutex_lock(&link->mutex);
    bool has_lost = helperrules_set_map(link->rules, &map->code);
    pthread_mutex_unlock(&link->mutex);
    return has_lost;
}

uint32_t helperlink_unloads(const struct helperlink *link)
{
    return atomic_load(&link->shared->report.unloads);
}

void helperlink_set_map_unloads(struct helperlink *link, uint32_t unloads)
{
    atomic_store(&link->shared->settings.map_unloads, unloads);
}

struct certaincode *helperlink_lasting(const struct helperlink *link)
{
    const struct helper_report *report = &link->shared->report;
    uint32_t count = *(const volatile uint32_t *)&report->lasting_count;
    struct certaincode *certain = link->is_injected ? NULL : certaincode_new();
    if (!certain)
        return NULL;
    certain->is_told = true;
    for (uint32_t i = 0; i < count && i < HELPER_LASTING; i++) {
        struct helper_range range = *(const volatile struct helper_range *)&report->lasting[i];
        certaincode_add(certain, range.start_avma, range.end_avma);
    }
    return certain;
}

static void note_moved(struct helperlink *link, uint32_t slot)
{
    atomic_fetch_or(&link->shared->settings.moved_slots[slot / 64], UINT64_C(1) << slot % 64);
}

uint32_t helperlink_want_thread(struct helperlink *link, pid_t inner_tid)
{
    bool is_new;
    uint32_t number = slot_find(link->shared, inner_tid, &is_new);
    if (is_new)
        note_moved(link, number);
    return number;
}

void helperlink_unblock_thread(struct helperlink *link, uint32_t slot)
{
    if (slot < HELPER_SLOTS && slot_change_state(&link->shared->slots[slot], HELPER_SLOT_BLOCKED, HELPER_SLOT_WANTED))
        note_moved(link, slot);
}

bool helperlink_is_blocked(const struct helperlink *link, uint32_t slot)
{
    return slot < HELPER_SLOTS && atomic_load(&link->shared->slots[slot].state) == HELPER_SLOT_BLOCKED;
}

uint64_t helperlink_blocking(const struct helperlink *link)
{
    return helper_blocking((uint32_t)link->signal, link->is_injected);
}

bool helperlink_has_armed(const struct helperlink *link, uint32_t slot)
{
    return slot < HELPER_SLOTS && atomic_load(&link->shared->slots[slot].state) == HELPER_SLOT_ARMED;
}

void helperlink_end_thread(struct helperlink *link, uint32_t slot, pid_t inner_tid)
{
    if (slot >= HELPER_SLOTS || atomic_load(&link->shared->slots[slot].tid) != inner_tid)
        return;
    if (slot_change_state(&link->shared->slots[slot], HELPER_SLOT_ARMED, HELPER_SLOT_GONE) ||
        slot_change_state(&link->shared->slots[slot], HELPER_SLOT_WANTED, HELPER_SLOT_GONE) ||
        slot_change_state(&link->shared->slots[slot], HELPER_SLOT_BLOCKED, HELPER_SLOT_GONE) ||
        slot_change_state(&link->shared->slots[slot], HELPER_SLOT_BARE, HELPER_SLOT_GONE))
        note_moved(link, slot);
}

int helperlink_signal(const struct helperlink *link, pid_t pid, pid_t tid, uint32_t slot)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = link->signal;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)helper_value(link->cookie, slot);
    return syscall(SYS_rt_tgsigqueueinfo, pid, tid, link->signal, &info) < 0 ? -errno : 0;
}

static void count(struct helperlink *link, const struct helper_event *event)
{
    struct helper_counters *counters = &link->counters;
    if (event->kind == HELPER_RECORD_FRAMES_LAST || event->kind == HELPER_RECORD_FRAMES_CUT)
        counters->walked += event->ticks;
    if (event->kind == HELPER_RECORD_COPY)
        counters->copied += event->ticks;
    if (event->kind != HELPER_RECORD_FRAMES_PART)
        counters->blocked += event->blocked_ticks;
    if (event->handler_tsc && event->part == 0)
        histogram_add(&counters->handler_ns, helpercost_ns(&link->cost, event->handler_tsc));
}

void helperlink_begin_drain(struct helperlink *link, uint64_t now_ns)
{
    helperring_begin(&link->ring, now_ns);
}

bool helperlink_next(struct helperlink *link, struct helper_event *ret, const uint8_t **ret_bytes)
{
    if (!helperring_next(&link->ring, link->buffer, ret))
        return false;
    count(link, ret);
    *ret_bytes = link->buffer;
    return true;
}

/* ---- rules ---- */

static void set_stack(struct helperlink *link, const struct item *item, const struct stack *stack)
{
    if (item->helper_slot >= HELPER_SLOTS)
        return;
    struct helper_slot *slot = &link->shared->slots[item->helper_slot];
    size_t wanted = item->thread->copy_bytes;
    atomic_store_explicit(&slot->copy_bytes, wanted < HELPER_COPY_BYTES ? (uint32_t)wanted : HELPER_COPY_BYTES,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->stack_top_avma, item->thread->top_avma, memory_order_relaxed);
    if (stack->end != STACK_COMPLETE || item->stack.end_avma == 0)
        return;
    atomic_store_explicit(&slot->stack_start_avma, item->stack.start_avma, memory_order_relaxed);
    atomic_store_explicit(&slot->stack_end_avma, item->stack.end_avma, memory_order_relaxed);
}

void helperlink_learn(struct helperlink *link, struct unwinder *unwinder, const struct item *item,
                      const struct stack *stack)
{
    struct unwind_row row;
    set_stack(link, item, stack);
    pthread_mutex_lock(&link->mutex);
    /* An older map than the last one would bring back what is gone. */
    bool is_current = item->map->code.generation == link->generation;
    for (size_t i = 0; i < stack->count && is_current; i++) {
        uint64_t lookup_avma = frame_lookup_avma(stack->frames[i].avma, stack->frames[i].exact);
        if (unwinder_find_row(unwinder, &item->map->code, lookup_avma, &row))
            helperrules_add(link->rules, &row, lookup_avma);
    }
    pthread_mutex_unlock(&link->mutex);
}

/* ---- counters ---- */

struct helper_counters helperlink_counters(const struct helperlink *link)
{
    const struct helper_report *report = &link->shared->report;
    struct helper_counters counters = link->counters;
    counters.lost = atomic_load(&report->lost);
    counters.no_room = atomic_load(&report->no_room);
    counters.late = atomic_load(&report->late);
    counters.faults = atomic_load(&report->faults);
    counters.by_call = atomic_load(&report->by_call);
    counters.eintr = atomic_load(&report->eintr);
    counters.timers = atomic_load(&report->timers);
    counters.timers_failed = atomic_load(&report->timers_failed);
    counters.resets = link->ring.resets;
    counters.delivery_ns = link->cost.delivery_ns;
    return counters;
}

void helper_counters_add(struct helper_counters *sum, const struct helper_counters *more)
{
    sum->is_there = sum->is_there || more->is_there;
    sum->walked += more->walked;
    sum->copied += more->copied;
    sum->lost += more->lost;
    sum->no_room += more->no_room;
    sum->blocked += more->blocked;
    sum->late += more->late;
    sum->faults += more->faults;
    sum->by_call += more->by_call;
    sum->eintr += more->eintr;
    sum->timers += more->timers;
    sum->timers_failed += more->timers_failed;
    sum->resets += more->resets;
    sum->execs += more->execs;
    sum->missing += more->missing;
    sum->gone += more->gone;
    histogram_merge(&sum->handler_ns, &more->handler_ns);
    histogram_merge(&sum->delivery_ns, &more->delivery_ns);
}
