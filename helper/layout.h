/*
 * The memory that the helper in a target and the sampler outside share: one memfd a process, sealed against changes of
 * its size. All numbers are those of this machine, both sides are built together (HELPER_VERSION).
 *
 * Who writes what: `settings`, `regions` and `rules` are the sampler's, `report`, `slots` and the ring's records the
 * helper's, but where a field says otherwise. The target can write anything anywhere, at any time: the sampler reads
 * each number once, checks it, and believes nothing it wrote here itself. The helper believes the sampler.
 *
 * No locks. What more than one word tells is guarded by a version that is odd while it is written; who meets an odd or
 * another one does without.
 */
#ifndef HELPER_LAYOUT_H
#define HELPER_LAYOUT_H

#include "unwind/rule.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HELPER_MAGIC UINT64_C(0x316870656c686d73)

enum {
    HELPER_VERSION = 1,
    HELPER_SLOTS = 1 << 13,
    HELPER_SLOT_PROBES = 64, /* a thread's slot is one of so many behind the hash of its id */
    HELPER_RULE_SETS = 1 << 13,
    HELPER_RULE_WAYS = 8,
    HELPER_GRANULE_BITS = 4,    /* rules are found by the address's upper bits, all but these */
    HELPER_NEIGHBOUR_BITS = 10, /* what has the same upper bits above these is in sets side by side */
    HELPER_REGIONS = 1 << 12,
    HELPER_RING_BYTES = 4 << 20,
    HELPER_RECORD_FRAMES = 64,     /* in one record; deeper stacks take several */
    HELPER_COPY_BYTES = 512 << 10, /* of a stack, at most */
    HELPER_FIRST_COPY_BYTES = 32 << 10
};

/* ---- the sampler's ---- */

enum helper_wish {
    HELPER_WISH_NONE,
    HELPER_WISH_RUN,     /* timers tick, samples are wanted */
    HELPER_WISH_WITHDRAW /* no more: who comes by deletes the timers and gives the signals back */
};

enum helper_timer {
    HELPER_TIMER_THREAD,  /* one timer_create(2) for each thread, on its CPU clock */
    HELPER_TIMER_PROCESS, /* one on the process's CPU clock: whatever thread the kernel chooses */
    HELPER_TIMER_NONE     /* wall mode: signals come from the sampler */
};

/* What the program has forbidden itself: then it kills. */
enum {
    HELPER_NO_CALLS = 1, /* a seccomp filter came: no system call that can be done without */
    HELPER_NO_TSC = 2    /* reading the time stamp counter faults: prctl(PR_SET_TSC), or seccomp's strict mode */
};

enum helper_loads { HELPER_LOADS_AUTO, HELPER_LOADS_INSTRUCTION, HELPER_LOADS_CALL };

struct helper_settings {
    _Atomic uint32_t wish;        /* enum helper_wish */
    uint32_t timer;               /* enum helper_timer */
    uint32_t loads;               /* enum helper_loads */
    uint32_t signal;              /* that samples; owned by the helper (disposition.h) */
    uint64_t period_ns;           /* of CPU time, between two ticks of a timer */
    _Atomic uint32_t map_unloads; /* report.unloads when regions and rules were those of the maps */
    uint32_t max_depth;
    uint32_t follows_frame_pointers; /* where no unwind information is; else only the sampler does what is left */
    uint32_t cookie;                 /* in the value of each signal that is ours */
    _Atomic uint32_t limits;         /* HELPER_NO_CALLS, HELPER_NO_TSC */
    /* When the sampler was last there, by the time stamp counter; and how far that goes until it is taken for dead. */
    _Atomic uint64_t alive_tsc;
    uint64_t patience_tsc;
    _Atomic uint64_t moved_slots[HELPER_SLOTS / 64]; /* a bit for each that is to be looked at; the helper clears it */
};

/* Executable memory, half-open, sorted by address. */
enum helper_code { HELPER_CODE_TABLES, HELPER_CODE_BARE /* no unwind information: JIT code and the like */ };

struct helper_region {
    uint64_t start_avma;
    uint64_t end_avma;
    uint64_t code; /* enum helper_code */
};

struct helper_regions {
    _Atomic uint32_t version;
    uint32_t count;
    struct helper_region all[HELPER_REGIONS];
};

/*
 * A row of unwind information: for addresses [start_avma, start_avma + length) in one granule's set. RULE_PLAIN, or
 * RULE_NONE: nothing covers them.
 */
struct helper_rule {
    _Atomic uint32_t version;
    uint32_t length; /* 0: empty */
    uint64_t start_avma;
    struct rule rule;
};
_Static_assert(sizeof(struct helper_rule) == 32, "two rules in a cache line");

/* Half-open. */
struct helper_range {
    uint64_t start_avma;
    uint64_t end_avma;
};

/* ---- a thread ---- */

enum helper_slot_state {
    HELPER_SLOT_FREE,
    HELPER_SLOT_TAKEN,   /* being made */
    HELPER_SLOT_WANTED,  /* by the sampler: it wants a timer (or needs none, with another kind) */
    HELPER_SLOT_ARMED,   /* it has one */
    HELPER_SLOT_BLOCKED, /* its thread has our signal blocked; the sampler says when that is over */
    HELPER_SLOT_BARE,    /* it cannot have one: out of timers */
    HELPER_SLOT_GONE     /* by the sampler or the thread: it has ended, its timer is to be deleted */
};

struct helper_slot {
    _Atomic uint32_t state; /* both sides, by compare and exchange */
    _Atomic int32_t tid;    /* as the target's pid namespace has it */
    int32_t timer;          /* the kernel's number, and 1; 0: none */
    /* The sampler's. The mapping that its stack was found in; both 0: not known. And how much of a stack to copy. */
    _Atomic uint32_t copy_bytes;
    _Atomic uint64_t stack_start_avma;
    _Atomic uint64_t stack_end_avma;
    _Atomic uint64_t stack_top_avma; /* above all that walks of it have needed; 0: not known */
    /* The helper's, only its thread's. */
    uint64_t armed_cpu_ns;     /* its CPU time when its timer was made, */
    uint64_t first_ns;         /* and how much more until the first tick */
    uint64_t ticks;            /* so far */
    uint64_t last_handler_tsc; /* how long the handler ran the last time */
    uint64_t start_avma;       /* its first function, if known */
};

/* Instead of a slot's number, in what a signal carries: of no certain thread; only to look whether we are still wanted.
 */
enum { HELPER_SLOT_NONE = HELPER_SLOTS, HELPER_SLOT_WATCH };

/*
 * Whoever has one of these blocked gets no signal of ours: that one itself; and where the helper came late, those of
 * faults, which are blocked in their handlers: that may run on an alternate stack on which no other frame has room.
 */
static inline uint64_t helper_blocking(uint32_t signal, bool is_late)
{
    uint64_t faults = UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1) | UINT64_C(1) << (SIGILL - 1) |
                      UINT64_C(1) << (SIGFPE - 1);
    return UINT64_C(1) << (signal - 1) | (is_late ? faults : 0);
}

static inline uint32_t helper_slot_first(int32_t tid)
{
    return (uint32_t)tid * UINT32_C(0x9e3779b1) >> (32 - 13);
}
_Static_assert(HELPER_SLOTS == 1 << 13, "the hash has as many bits");

/* What a signal of ours carries: the cookie above the slot's number. */
static inline uint64_t helper_value(uint32_t cookie, uint32_t slot)
{
    return (uint64_t)cookie << 32 | slot;
}

/* ---- the helper's ---- */

enum { HELPER_LASTING = 256 };

struct helper_report {
    /* What the program began with, where the helper was there before it: it is never unloaded. */
    uint32_t lasting_count;
    struct helper_range lasting[HELPER_LASTING];
    bool is_late;               /* the program was there before the helper */
    _Atomic uint32_t is_ready;  /* signals are owned, timers made */
    _Atomic uint32_t withdrawn; /* it has let go of everything but this memory */
    _Atomic uint64_t lost;      /* records that there was no room for, in ticks */
    _Atomic uint64_t no_room;   /* ticks on stacks with too little room left to look at anything */
    _Atomic uint64_t late;      /* signals that came when nobody wanted them any more */
    _Atomic uint64_t eintr;     /* system calls that a signal of ours has ended with EINTR */
    uint64_t faults_before;     /* of an earlier turn */
    _Atomic uint64_t faults;    /* loads of bad addresses */
    _Atomic uint64_t timers;
    _Atomic uint64_t timers_failed;
    _Atomic uint32_t lost_handlers; /* the program has put its own in the place of those that loads need */
    _Atomic uint64_t by_call;       /* samples whose loads were system calls */
    _Atomic int32_t error;          /* a negative errno: it could not begin */
    int32_t process_timer;          /* as in a slot */
    _Atomic uint32_t unloads;       /* calls of dlclose(3) that have begun, and that have ended */
    /* How long nobody has heard of the sampler: since that alive_tsc, by the signals that came meanwhile. */
    _Atomic uint64_t silent_alive_tsc;
    _Atomic uint64_t silent_last_tsc;
    _Atomic uint64_t silent_tsc;
    int32_t fd;     /* of this memory, in the target; -1: none */
    uint64_t inode; /* and what is there, to know it again */
    uint64_t dev;
    _Atomic uint32_t is_fd_taken; /* by the sampler: it has this memory, its descriptor in the target can go */
};

enum helper_record_kind {
    HELPER_RECORD_PAD,         /* nothing, up to the ring's end */
    HELPER_RECORD_FRAMES_PART, /* addresses, innermost first; more follow */
    HELPER_RECORD_FRAMES_LAST, /* the outermost frame is the last one */
    HELPER_RECORD_COPY,        /* registers and stack: what was sent of this stack before is void */
    HELPER_RECORD_FRAMES_CUT,  /* the same, but there are more: --max-depth */
    HELPER_RECORD_REST,        /* time of a thread that ended before its timer's signal came */
    HELPER_RECORD_NO_ROOM      /* nothing but the ticks */
};

/*
 * In the ring, at a multiple of HELPER_RECORD_ALIGN. `commit` is the complement of the record's position in all bytes
 * ever written, and the last thing to be written: so a record is there when its own position says so, and what an
 * earlier turn of the ring has left is none.
 */
struct helper_record {
    _Atomic uint64_t commit;
    uint32_t size; /* of all of it */
    uint32_t kind; /* enum helper_record_kind; a HELPER_RECORD_PAD has no more than this */
    int32_t tid;
    uint32_t slot;
    uint32_t ticks;         /* that it stands for */
    uint32_t blocked_ticks; /* more of them, for which the signal was blocked: nobody knows where */
    uint32_t count;         /* of frames, or of bytes of the stack */
    uint32_t handler_tsc;   /* the thread's handler before this one ran for so long; 0: not known */
    uint32_t part;          /* of a stack: how many records of it came before */
    uint32_t unloads;       /* as report.unloads was then */
};
enum { HELPER_RECORD_ALIGN = 32 };
_Static_assert(sizeof(struct helper_record) == 48, "no holes");

struct helper_copy {
    struct registers registers; /* as interrupted */
    uint64_t avma;              /* of the first byte behind this */
};

struct helper_ring {
    _Alignas(64) _Atomic uint64_t head; /* bytes ever reserved: the helper's */
    _Alignas(64) _Atomic uint64_t tail; /* bytes ever read: the sampler's */
    _Alignas(64) uint8_t bytes[HELPER_RING_BYTES];
};

struct helper_shared {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    struct helper_settings settings;
    struct helper_report report;
    struct helper_regions regions;
    struct helper_rule rules[HELPER_RULE_SETS][HELPER_RULE_WAYS];
    struct helper_slot slots[HELPER_SLOTS];
    struct helper_ring ring;
};

static inline uint32_t helper_rule_set(uint64_t lookup_avma)
{
    uint32_t first = (uint32_t)((lookup_avma >> HELPER_NEIGHBOUR_BITS) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 13));
    return (first + (uint32_t)(lookup_avma >> HELPER_GRANULE_BITS)) % HELPER_RULE_SETS;
}
_Static_assert(HELPER_RULE_SETS == 1 << 13, "the hash has as many bits");

/*
 * How an injected helper is told what to do, in the one argument that it is called with: rate_hz (14 bits), signal (7),
 * timer (2), follows_frame_pointers (1), loads (2), the cookie above (32).
 */
static inline uint64_t helper_argument(unsigned rate_hz, unsigned signal, enum helper_timer timer, bool frame_pointers,
                                       enum helper_loads loads, uint32_t cookie)
{
    return (uint64_t)cookie << 32 | (uint64_t)loads << 24 | (uint64_t)frame_pointers << 23 | (uint64_t)timer << 21 |
           (uint64_t)signal << 14 | rate_hz;
}

/* The names that both sides use. */
#define HELPER_LIBRARY  "libsampler-helper.so"
#define HELPER_FUNCTION "sampler_helper_attach"
#define HELPER_VARIABLE "SAMPLER_HELPER"

#endif
