#include "helper/handler.h"

#include "helper/disposition.h"
#include "helper/rawcall.h"
#include "helper/ring.h"
#include "helper/safeload.h"
#include "helper/state.h"
#include "helper/timers.h"
#include "helper/walk.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HANDLER_STACK_BYTES = 3072, /* of walk, frames and calls */
    MARGIN_BYTES = 256,
    RED_ZONE_BYTES = 128,
    /* Signals come so late by the kernel's own ticks: 10 ms at CONFIG_HZ=100, twice. */
    LATE_NS = 20000000,
    VERY_LATE_NS = 200000000
};

static size_t frame_bytes = 4096;

void handler_set_frame_bytes(size_t bytes)
{
    frame_bytes = bytes;
}

/* ---- the interrupted thread ---- */

/* DWARF number of each register of a ucontext. */
static const uint8_t context_registers[][2] = {
    {REG_RAX, REGISTER_RAX}, {REG_RDX, REGISTER_RDX}, {REG_RCX, REGISTER_RCX}, {REG_RBX, REGISTER_RBX},
    {REG_RSI, REGISTER_RSI}, {REG_RDI, REGISTER_RDI}, {REG_RBP, REGISTER_RBP}, {REG_RSP, REGISTER_RSP},
    {REG_R8, REGISTER_R8},   {REG_R9, REGISTER_R9},   {REG_R10, REGISTER_R10}, {REG_R11, REGISTER_R11},
    {REG_R12, REGISTER_R12}, {REG_R13, REGISTER_R13}, {REG_R14, REGISTER_R14}, {REG_R15, REGISTER_R15},
    {REG_RIP, REGISTER_PC}};

static void read_registers(const ucontext_t *context, struct registers *ret)
{
    for (size_t i = 0; i < sizeof(context_registers) / sizeof(context_registers[0]); i++)
        ret->value[context_registers[i][1]] = (uint64_t)context->uc_mcontext.gregs[context_registers[i][0]];
    ret->known = REGISTERS_ALL;
}

/* One run of the handler. */
struct run {
    struct helper_shared *shared;
    const ucontext_t *context;
    uint32_t slot; /* HELPER_SLOTS: none */
    int32_t tid;
    uint32_t ticks;
    uint32_t blocked_ticks;
    uint32_t unloads; /* as it was when the handler began */
    enum safeload_way way;
    uint64_t began_tsc;
};

static uint64_t interrupted_sp(const struct run *run)
{
    return (uint64_t)run->context->uc_mcontext.gregs[REG_RSP];
}

static bool may_call(const struct run *run)
{
    return !(atomic_load_explicit(&run->shared->settings.limits, memory_order_relaxed) & HELPER_NO_CALLS);
}

/* How much room there is below us, as far as that can be told cheaply; SIZE_MAX: nobody knows. */
static size_t room_below(const struct run *run)
{
    uint64_t here = (uint64_t)__builtin_frame_address(0);
    const stack_t *alternate = &run->context->uc_stack;
    uint64_t start = (uint64_t)alternate->ss_sp;
    if (!(alternate->ss_flags & SS_DISABLE) && here >= start && here - start < alternate->ss_size)
        return here - start;
    if (run->slot == HELPER_SLOTS)
        return SIZE_MAX;
    const struct helper_slot *slot = &run->shared->slots[run->slot];
    start = atomic_load_explicit(&slot->stack_start_avma, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&slot->stack_end_avma, memory_order_relaxed);
    return here >= start && here < end ? here - start : SIZE_MAX;
}

/* Can so much more be used? Of a stack that nobody has told of, the page is asked for (without a fault). */
static bool has_room(const struct run *run, size_t bytes)
{
    uint64_t byte;
    size_t room = room_below(run);
    if (room != SIZE_MAX)
        return room >= bytes;
    uint64_t here = (uint64_t)__builtin_frame_address(0);
    return !may_call(run) || safe_copy(SAFELOAD_CALL, &byte, here - bytes, 1) == 1;
}

static bool find_stack(const struct run *run, uint64_t *ret_start_avma, uint64_t *ret_end_avma)
{
    if (run->slot == HELPER_SLOTS)
        return false;
    const struct helper_slot *slot = &run->shared->slots[run->slot];
    uint64_t sp = interrupted_sp(run);
    *ret_start_avma = atomic_load_explicit(&slot->stack_start_avma, memory_order_relaxed);
    *ret_end_avma = atomic_load_explicit(&slot->stack_end_avma, memory_order_relaxed);
    return sp >= *ret_start_avma && sp < *ret_end_avma;
}

/*
 * A load in a known stack does not fault, so it matters little whether the handler of faults is ours; else, and now and
 * then, the kernel is asked. Each call less is one that a new seccomp filter cannot kill for.
 */
static bool may_use_instruction(const struct run *run, bool calls)
{
    enum { ASKED_EVERY = 64 };
    uint64_t start;
    uint64_t end;
    _Atomic uint32_t *is_lost = &run->shared->report.lost_handlers;
    bool is_safe = find_stack(run, &start, &end) && run->shared->slots[run->slot].ticks % ASKED_EVERY != 0;
    if (atomic_load_explicit(is_lost, memory_order_relaxed))
        return false;
    if (safeload_may_use_instruction(run->context, calls && !is_safe))
        return true;
    if (calls && !is_safe && !(disposition_is_ours(SIGSEGV) && disposition_is_ours(SIGBUS)))
        atomic_store_explicit(is_lost, 1, memory_order_relaxed);
    return false;
}

/*
 * How to load, on this stack: an instruction that meets a bad address needs room for one more signal frame. false:
 * there is no room to look at anything.
 */
static bool choose_way(struct run *run)
{
    uint32_t loads = run->shared->settings.loads;
    bool calls = may_call(run);
    bool can_fault = loads != HELPER_LOADS_CALL && may_use_instruction(run, calls) &&
                     has_room(run, HANDLER_STACK_BYTES + frame_bytes + MARGIN_BYTES);
    if (!can_fault && (!calls || loads == HELPER_LOADS_INSTRUCTION || !has_room(run, HANDLER_STACK_BYTES)))
        return false;
    run->way = can_fault ? SAFELOAD_INSTRUCTION : SAFELOAD_CALL;
    return true;
}

/* ---- records ---- */

static struct helper_record *begin_record(struct run *run, enum helper_record_kind kind, size_t bytes,
                                          uint64_t *ret_position)
{
    struct helper_record *record = ring_reserve(&run->shared->ring, bytes, ret_position);
    if (!record) {
        atomic_fetch_add_explicit(&run->shared->report.lost, run->ticks + run->blocked_ticks, memory_order_relaxed);
        return NULL;
    }
    record->kind = kind;
    record->tid = run->tid;
    record->slot = run->slot;
    record->ticks = run->ticks;
    record->blocked_ticks = run->blocked_ticks;
    record->count = 0;
    record->handler_tsc = 0;
    record->part = 0;
    record->unloads = run->unloads;
    if (run->slot != HELPER_SLOTS) {
        uint64_t tsc = run->shared->slots[run->slot].last_handler_tsc;
        record->handler_tsc = tsc < UINT32_MAX ? (uint32_t)tsc : UINT32_MAX;
    }
    return record;
}

static bool record_frames(struct run *run, enum helper_record_kind kind, uint32_t part, const uint64_t *frames,
                          uint32_t count)
{
    uint64_t position;
    struct helper_record *record = begin_record(run, kind, count * sizeof(frames[0]), &position);
    if (!record)
        return false;
    record->count = count;
    record->part = part;
    memcpy(record + 1, frames, count * sizeof(frames[0]));
    ring_commit(record, position);
    return true;
}

/* For the sampler to unwind. */
static void record_copy(struct run *run)
{
    uint64_t position;
    const struct helper_slot *slot = run->slot == HELPER_SLOTS ? NULL : &run->shared->slots[run->slot];
    uint64_t wanted = slot ? atomic_load_explicit(&slot->copy_bytes, memory_order_relaxed) : 0;
    uint64_t sp = interrupted_sp(run);
    uint64_t from = sp > RED_ZONE_BYTES ? sp - RED_ZONE_BYTES : 0;
    if (wanted == 0)
        wanted = HELPER_FIRST_COPY_BYTES;
    if (wanted > HELPER_COPY_BYTES)
        wanted = HELPER_COPY_BYTES;
    uint64_t end = slot ? atomic_load_explicit(&slot->stack_end_avma, memory_order_relaxed) : 0;
    if (end > from && wanted > end - from)
        wanted = end - from;
    uint64_t top = slot ? atomic_load_explicit(&slot->stack_top_avma, memory_order_relaxed) : 0;
    if (top > from && top <= end && wanted > top - from)
        wanted = top - from;
    struct helper_record *record =
        begin_record(run, HELPER_RECORD_COPY, sizeof(struct helper_copy) + wanted, &position);
    if (!record)
        return;
    struct helper_copy *copy = (struct helper_copy *)(record + 1);
    read_registers(run->context, &copy->registers);
    copy->avma = from;
    record->count = (uint32_t)safe_copy(run->way, copy + 1, from, wanted);
    ring_commit(record, position);
}

static void record_no_room(struct run *run)
{
    uint64_t position;
    atomic_fetch_add_explicit(&run->shared->report.no_room, run->ticks, memory_order_relaxed);
    struct helper_record *record = begin_record(run, HELPER_RECORD_NO_ROOM, 0, &position);
    if (record)
        ring_commit(record, position);
}

/* ---- samples ---- */

/* Not inlined: who has no room must not need it. */
__attribute__((noinline)) static void sample_stack(struct run *run)
{
    struct walk walk = {.shared = run->shared, .way = run->way, .exact = true};
    uint64_t frames[HELPER_RECORD_FRAMES];
    uint32_t count = 0;
    uint32_t part = 0;
    uint32_t depth = run->shared->settings.max_depth;
    walk.is_outdated = run->unloads != atomic_load_explicit(&run->shared->settings.map_unloads, memory_order_relaxed);
    if (!find_stack(run, &walk.stack_start_avma, &walk.stack_end_avma)) {
        record_copy(run);
        return;
    }
    read_registers(run->context, &walk.registers);
    for (;;) {
        if (count == HELPER_RECORD_FRAMES) {
            if (!record_frames(run, HELPER_RECORD_FRAMES_PART, part++, frames, count))
                return;
            count = 0;
        }
        frames[count++] = walk.registers.value[REGISTER_PC];
        depth--;
        enum walk_step step = walk_step(&walk);
        if (step == WALK_UNKNOWN) {
            record_copy(run);
            return;
        }
        if (step == WALK_OUTERMOST) {
            record_frames(run, HELPER_RECORD_FRAMES_LAST, part, frames, count);
            return;
        }
        if (depth == 0) {
            record_frames(run, HELPER_RECORD_FRAMES_CUT, part, frames, count);
            return;
        }
    }
}

/* mov $number,%eax; syscall, as the C library writes it, and the thread is behind it: the number; else -1. */
static int64_t call_before(const struct run *run)
{
    enum { MOV_EAX = 0xb8, BYTES = 7, UNKNOWN_CALL = 1 << 20 };
    uint8_t bytes[BYTES];
    uint32_t number;
    uint64_t pc = (uint64_t)run->context->uc_mcontext.gregs[REG_RIP];
    if (safe_copy(run->way, bytes, pc - BYTES, BYTES) != BYTES || bytes[5] != 0x0f || bytes[6] != 0x05)
        return -1;
    memcpy(&number, bytes + 1, sizeof(number));
    return bytes[0] == MOV_EAX ? number : UNKNOWN_CALL;
}

/*
 * More ticks than the kernel's own explain. They have passed in a system call that took long, which is where the thread
 * is now; or the signal was blocked, and where they passed is not known: then it is behind the call that has let it
 * through, or, if that was the return from a handler, anywhere. (Anywhere is also who runs on a virtual machine that
 * was itself not let run, but not for so long.)
 */
static void find_blocked(struct run *run)
{
    uint64_t late_ns = (run->ticks - 1) * run->shared->settings.period_ns;
    if (late_ns <= LATE_NS)
        return;
    int64_t call = call_before(run);
    if (call == SYS_rt_sigprocmask || (call < 0 && late_ns > VERY_LATE_NS)) {
        run->blocked_ticks = run->ticks - 1;
        run->ticks = 1;
    }
}

static void count_eintr(struct run *run)
{
    if (run->context->uc_mcontext.gregs[REG_RAX] == -EINTR && call_before(run) >= 0)
        atomic_fetch_add_explicit(&run->shared->report.eintr, 1, memory_order_relaxed);
}

static void sample(struct run *run)
{
    if (!choose_way(run)) {
        record_no_room(run);
        return;
    }
    find_blocked(run);
    count_eintr(run);
    if (run->way == SAFELOAD_CALL)
        atomic_fetch_add_explicit(&run->shared->report.by_call, run->ticks, memory_order_relaxed);
    sample_stack(run);
    atomic_store_explicit(&run->shared->report.faults, safeload_faults() - run->shared->report.faults_before,
                          memory_order_relaxed);
}

/* ---- signals ---- */

/* Is it one that we have asked for, and of which thread? */
static bool is_ours(const struct helper_shared *shared, const siginfo_t *info, struct run *ret)
{
    uint64_t value = (uint64_t)info->si_value.sival_ptr;
    ret->slot = (uint32_t)value;
    ret->ticks = 1;
    if ((info->si_code != SI_TIMER && info->si_code != SI_QUEUE) || value >> 32 != shared->settings.cookie)
        return false;
    if (info->si_code == SI_TIMER && info->si_overrun > 0)
        ret->ticks += (uint32_t)info->si_overrun;
    return ret->slot <= HELPER_SLOT_WATCH;
}

/* The slot, for signals that do not tell; the thread's id as the slot has it, else asked for. false: it must not be. */
static bool find_thread(struct run *run)
{
    run->tid =
        run->slot < HELPER_SLOTS ? atomic_load_explicit(&run->shared->slots[run->slot].tid, memory_order_relaxed) : 0;
    if (run->tid)
        return true;
    if (!may_call(run))
        return false;
    run->tid = rawcall_tid();
    run->slot = timers_slot(run->shared, run->tid);
    if (run->slot != HELPER_SLOTS)
        timers_arm(run->shared, run->slot);
    return true;
}

/*
 * Does nobody hear of the sampler any more? By the signals that have come since: what lies between two of them counts
 * for a tenth of a second at most, so a pause of all of us, or of the machine, is no silence of the sampler's.
 */
static bool is_abandoned(struct helper_shared *shared)
{
    enum { PIECES = 50 };
    struct helper_report *report = &shared->report;
    uint64_t patience_tsc = shared->settings.patience_tsc;
    uint64_t alive_tsc = atomic_load_explicit(&shared->settings.alive_tsc, memory_order_relaxed);
    uint64_t now_tsc = state_tsc(shared);
    uint64_t last_tsc = atomic_exchange_explicit(&report->silent_last_tsc, now_tsc, memory_order_relaxed);
    if (atomic_exchange_explicit(&report->silent_alive_tsc, alive_tsc, memory_order_relaxed) != alive_tsc) {
        atomic_store_explicit(&report->silent_tsc, 0, memory_order_relaxed);
        return false;
    }
    uint64_t piece_tsc = now_tsc > last_tsc ? now_tsc - last_tsc : 0;
    if (piece_tsc > patience_tsc / PIECES)
        piece_tsc = patience_tsc / PIECES;
    return atomic_fetch_add_explicit(&report->silent_tsc, piece_tsc, memory_order_relaxed) + piece_tsc >= patience_tsc;
}

/* Late signals of ours are not the program's: where it has a handler of its own for them, ours stays before it. */
static void disown(int signal)
{
    struct kernel_action program;
    if (disposition_exchange(signal, NULL, &program) != 0 || !kernel_action_has_function(&program))
        disposition_disown(signal);
}

static void close_descriptor(struct helper_shared *shared);

void handler_withdraw(void)
{
    struct helper_shared *shared = state_take();
    if (!shared)
        return;
    timers_delete_all(shared);
    disown((int)shared->settings.signal);
    safeload_disown();
    if (shared->report.fd >= 0)
        close_descriptor(shared);
    atomic_store(&shared->report.withdrawn, 1);
}

/* The descriptor that the sampler came by; unless the program has put another file there. */
static void close_descriptor(struct helper_shared *shared)
{
    struct stat now;
    int32_t fd = shared->report.fd;
    shared->report.fd = -1;
    if (rawcall3(SYS_fstat, fd, (long)&now, 0) == 0 && now.st_ino == shared->report.inode &&
        now.st_dev == shared->report.dev)
        rawcall3(SYS_close, fd, 0, 0);
}

static void serve(struct run *run)
{
    struct helper_shared *shared = run->shared;
    uint32_t wish = atomic_load_explicit(&shared->settings.wish, memory_order_relaxed);
    if (wish == HELPER_WISH_WITHDRAW || is_abandoned(shared)) {
        atomic_fetch_add_explicit(&shared->report.late, 1, memory_order_relaxed);
        if (may_call(run)) /* else its timers go on, and nothing comes of it */
            handler_withdraw();
        return;
    }
    if (run->slot == HELPER_SLOT_WATCH || !find_thread(run))
        return;
    if (wish == HELPER_WISH_RUN)
        sample(run);
    if (may_call(run)) {
        timers_obey(shared);
        if (shared->report.fd >= 0 && atomic_load_explicit(&shared->report.is_fd_taken, memory_order_relaxed))
            close_descriptor(shared);
    }
    if (run->slot == HELPER_SLOTS)
        return;
    struct helper_slot *slot = &shared->slots[run->slot];
    slot->ticks += run->ticks + run->blocked_ticks;
    slot->last_handler_tsc = state_tsc(shared) - run->began_tsc;
}

bool handler_take(int signal, siginfo_t *info, ucontext_t *context)
{
    struct run run = {.context = context};
    (void)signal;
    run.shared = state_enter();
    run.began_tsc = run.shared ? state_tsc(run.shared) : 0;
    run.unloads = run.shared ? atomic_load_explicit(&run.shared->report.unloads, memory_order_relaxed) : 0;
    bool ours = run.shared && is_ours(run.shared, info, &run);
    if (ours)
        serve(&run);
    state_leave();
    return ours || state_knows(info); /* or it is a late one of an earlier turn */
}
