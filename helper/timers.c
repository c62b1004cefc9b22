#include "helper/timers.h"

#include "helper/rawcall.h"
#include "helper/ring.h"
#include "helper/slots.h"
#include "helper/state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* CPU time between two looks whether the sampler is still there. */
#define WATCH_NS UINT64_C(1000000000)

/* include/linux/posix-timers_types.h: the CPU clock of one thread, and which of its three it is. */
enum { CPUCLOCK_SCHED = 2, CPUCLOCK_PERTHREAD = 4 };

static clockid_t thread_clock(int32_t tid)
{
    return (clockid_t)((~(uint32_t)tid << 3) | CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED);
}

static uint64_t read_clock_ns(clockid_t clock)
{
    struct timespec now = {0};
    rawcall3(SYS_clock_gettime, clock, (long)&now, 0);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000U), .tv_nsec = (long)(ns % 1000000000U)};
}

uint32_t timers_slot(struct helper_shared *shared, int32_t tid)
{
    bool is_new;
    return slot_find(shared, tid, &is_new);
}

static void delete_timer(struct helper_slot *slot)
{
    if (slot->timer > 0)
        rawcall3(SYS_timer_delete, slot->timer - 1, 0, 0);
    slot->timer = 0;
}

static long create_timer(const struct helper_shared *shared, uint32_t number, int32_t tid, int32_t *ret_timer)
{
    int32_t timer;
    struct sigevent event;
    memset(&event, 0, sizeof(event));
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = (int)shared->settings.signal;
    event.sigev_value.sival_ptr = (void *)helper_value(shared->settings.cookie, number);
    event._sigev_un._tid = tid;
    long error = rawcall3(SYS_timer_create, thread_clock(tid), (long)&event, (long)&timer);
    if (!error)
        *ret_timer = timer + 1;
    return error;
}

void timers_note_blocked(struct helper_shared *shared, uint32_t number)
{
    slot_change_state(&shared->slots[number], HELPER_SLOT_WANTED, HELPER_SLOT_BLOCKED);
}

void timers_arm(struct helper_shared *shared, uint32_t number)
{
    struct helper_slot *slot = &shared->slots[number];
    if (!slot_change_state(slot, HELPER_SLOT_WANTED, HELPER_SLOT_TAKEN))
        return;
    int32_t tid = atomic_load(&slot->tid);
    uint64_t period_ns = shared->settings.period_ns;
    slot->timer = 0;
    if (shared->settings.timer != HELPER_TIMER_THREAD) {
        atomic_store(&slot->state, HELPER_SLOT_ARMED);
        return;
    }
    if (atomic_load(&shared->settings.limits) & HELPER_NO_CALLS) {
        atomic_fetch_add(&shared->report.timers_failed, 1);
        atomic_store(&slot->state, HELPER_SLOT_BARE);
        return;
    }
    uint64_t random = (state_tsc(shared) ^ (uint64_t)tid << 32) * UINT64_C(0x9e3779b97f4a7c15);
    slot->first_ns = 1 + (random >> 32) * period_ns / (UINT64_C(1) << 32);
    slot->armed_cpu_ns = read_clock_ns(thread_clock(tid));
    struct itimerspec when = {.it_value = timespec_of(slot->first_ns), .it_interval = timespec_of(period_ns)};
    long error = create_timer(shared, number, tid, &slot->timer);
    if (!error)
        error = rawcall4(SYS_timer_settime, slot->timer - 1, 0, (long)&when, 0);
    if (!error) {
        atomic_fetch_add(&shared->report.timers, 1);
        atomic_store(&slot->state, HELPER_SLOT_ARMED);
        return;
    }
    delete_timer(slot);
    if (error == -ESRCH || error == -EINVAL) { /* the thread has ended */
        atomic_store(&slot->tid, 0);
        atomic_store(&slot->state, HELPER_SLOT_FREE);
        return;
    }
    atomic_fetch_add(&shared->report.timers_failed, 1);
    atomic_store(&slot->state, HELPER_SLOT_BARE);
}

static void free_slot(struct helper_slot *slot, uint32_t state)
{
    if (!slot_change_state(slot, state, HELPER_SLOT_TAKEN))
        return;
    delete_timer(slot);
    atomic_store(&slot->tid, 0);
    atomic_store(&slot->state, HELPER_SLOT_FREE);
}

void timers_obey(struct helper_shared *shared)
{
    for (uint32_t word = 0; word < HELPER_SLOTS / 64; word++) {
        if (!atomic_load_explicit(&shared->settings.moved_slots[word], memory_order_relaxed))
            continue;
        uint64_t bits = atomic_exchange(&shared->settings.moved_slots[word], 0);
        for (; bits; bits &= bits - 1) {
            uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(bits);
            timers_arm(shared, number);
            free_slot(&shared->slots[number], HELPER_SLOT_GONE);
        }
    }
}

/* Ticks that are over by the thread's clock and have met no scheduler tick. They are of what it ran, wherever that was.
 */
static void record_rest(struct helper_shared *shared, uint32_t number, uint64_t ticks)
{
    struct helper_slot *slot = &shared->slots[number];
    uint64_t position;
    struct helper_record *record = ring_reserve(&shared->ring, sizeof(uint64_t), &position);
    if (!record) {
        atomic_fetch_add(&shared->report.lost, ticks);
        return;
    }
    uint64_t frame = slot->start_avma;
    record->kind = HELPER_RECORD_REST;
    record->tid = atomic_load(&slot->tid);
    record->slot = number;
    record->ticks = (uint32_t)ticks;
    record->blocked_ticks = 0;
    record->count = 1;
    record->handler_tsc = 0;
    record->part = 0;
    record->unloads = atomic_load(&shared->report.unloads);
    memcpy(record + 1, &frame, sizeof(frame));
    ring_commit(record, position);
}

void timers_end_thread(struct helper_shared *shared, uint32_t number)
{
    struct helper_slot *slot = &shared->slots[number];
    if (atomic_load(&shared->settings.limits) & HELPER_NO_CALLS)
        return;
    if (shared->settings.timer == HELPER_TIMER_THREAD &&
        slot_change_state(slot, HELPER_SLOT_ARMED, HELPER_SLOT_TAKEN)) {
        delete_timer(slot); /* a signal of it that was on its way has arrived by now */
        uint64_t ran_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID) - slot->armed_cpu_ns;
        uint64_t ticks = ran_ns < slot->first_ns ? 0 : (ran_ns - slot->first_ns) / shared->settings.period_ns + 1;
        if (ticks > slot->ticks && slot->start_avma)
            record_rest(shared, number, ticks - slot->ticks);
        atomic_store(&slot->state, HELPER_SLOT_GONE);
    }
    free_slot(slot, HELPER_SLOT_GONE);
    free_slot(slot, HELPER_SLOT_WANTED);
    free_slot(slot, HELPER_SLOT_ARMED);
    free_slot(slot, HELPER_SLOT_BARE);
    free_slot(slot, HELPER_SLOT_BLOCKED);
}

/* struct linux_dirent64, getdents64(2) */
struct entry {
    uint64_t inode;
    int64_t off;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* "SigBlk:\t0000000000010000": one bit a signal. 0 when it is not there. */
static uint64_t blocked_signals(const char *text, long size)
{
    static const char key[] = "\nSigBlk:\t";
    enum { KEY_BYTES = sizeof(key) - 1, DIGITS = 16 };
    uint64_t mask = 0;
    for (long at = 0; at + KEY_BYTES + DIGITS <= size; at++) {
        if (memcmp(text + at, key, KEY_BYTES) != 0)
            continue;
        for (const char *digit = text + at + KEY_BYTES; digit < text + at + KEY_BYTES + DIGITS; digit++)
            mask = mask << 4 | (uint64_t)(*digit >= 'a' ? *digit - 'a' + 10 : *digit - '0');
        break;
    }
    return mask;
}

bool timers_is_blocked(const struct helper_shared *shared, int32_t tid)
{
    char path[40] = "/proc/self/task/";
    char text[2048];
    char digits[12];
    size_t at = strlen(path);
    size_t count = 0;
    for (int32_t rest = tid; rest && count < sizeof(digits); rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    while (count)
        path[at++] = digits[--count];
    memcpy(path + at, "/status", sizeof("/status"));
    long fd = rawcall4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long size = rawcall3(SYS_read, fd, (long)text, sizeof(text));
    rawcall3(SYS_close, fd, 0, 0);
    return blocked_signals(text, size) & helper_blocking(shared->settings.signal, shared->report.is_late);
}

static int32_t tid_of(const char *name)
{
    int32_t tid = 0;
    for (; *name >= '0' && *name <= '9' && tid < 1 << 27; name++)
        tid = tid * 10 + (*name - '0');
    return *name ? 0 : tid;
}

int timers_arm_all(struct helper_shared *shared)
{
    _Alignas(8) char buffer[2048];
    long fd = rawcall4(SYS_openat, AT_FDCWD, (long)"/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return (int)fd;
    /* Who was made to call this has all signals blocked just now, and not as a rule. */
    int32_t caller = shared->report.is_late ? rawcall_tid() : 0;
    long size;
    while ((size = rawcall3(SYS_getdents64, fd, (long)buffer, sizeof(buffer))) > 0) {
        for (long off = 0; off < size;) {
            const struct entry *entry = (const struct entry *)(void *)(buffer + off);
            int32_t tid = tid_of(entry->name);
            uint32_t number = tid ? timers_slot(shared, tid) : HELPER_SLOTS;
            if (number != HELPER_SLOTS && tid != caller && timers_is_blocked(shared, tid))
                timers_note_blocked(shared, number);
            else if (number != HELPER_SLOTS)
                timers_arm(shared, number);
            off += entry->size;
        }
    }
    rawcall3(SYS_close, fd, 0, 0);
    return (int)size;
}

int timers_arm_process(struct helper_shared *shared)
{
    bool samples = shared->settings.timer == HELPER_TIMER_PROCESS;
    uint64_t period_ns = samples ? shared->settings.period_ns : WATCH_NS;
    if (shared->settings.timer == HELPER_TIMER_THREAD)
        return 0;
    struct sigevent event;
    memset(&event, 0, sizeof(event));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = (int)shared->settings.signal;
    event.sigev_value.sival_ptr =
        (void *)helper_value(shared->settings.cookie, samples ? HELPER_SLOT_NONE : HELPER_SLOT_WATCH);
    struct itimerspec when = {.it_value = timespec_of(period_ns), .it_interval = timespec_of(period_ns)};
    int32_t timer;
    long error = rawcall3(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, (long)&event, (long)&timer);
    if (error)
        return (int)error;
    shared->report.process_timer = timer + 1;
    return (int)rawcall4(SYS_timer_settime, timer, 0, (long)&when, 0);
}

void timers_delete_all(struct helper_shared *shared)
{
    if (shared->report.process_timer > 0)
        rawcall3(SYS_timer_delete, shared->report.process_timer - 1, 0, 0);
    shared->report.process_timer = 0;
    for (uint32_t number = 0; number < HELPER_SLOTS; number++) {
        struct helper_slot *slot = &shared->slots[number];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
        if (state == HELPER_SLOT_ARMED || state == HELPER_SLOT_GONE)
            free_slot(slot, state);
    }
}
