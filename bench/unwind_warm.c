#include "common/clock.h"
#include "peer_libdwfl.h"
#include "stop.h"
#include "target.h"
#include "unwind_bench.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <libunwind-ptrace.h>
#include <stdio.h>
#include <string.h>

struct warm {
    struct target target;
    struct stop stop;
    struct trace trace;
    void *upt;
    unw_addr_space_t ptrace_cached;
    unw_addr_space_t ptrace_uncached;
    unw_addr_space_t accessors_cached;
    struct peer_libdwfl *libdwfl;
    Dwfl *dwfl;
};

/* libunwind hands its accessors the argument of the proc-info search, which is the UPT's: ours stands here. */
static struct warm warm;

/* ---- ours ---- */

static size_t walk_ours(void)
{
    struct target *target = &warm.target;
    int error = unwind_walk(target->unwinder, target_space(target)->unwind, &target->map->code, &target->snapshot, NULL,
                            &target->stack);
    return error ? 0 : target->stack.count;
}

/* ---- libunwind ---- */

static size_t walk_libunwind(unw_addr_space_t space)
{
    unw_cursor_t cursor;
    size_t count = 0;
    unw_word_t pc;
    if (unw_init_remote(&cursor, space, warm.upt) < 0)
        return 0;
    do {
        if (unw_get_reg(&cursor, UNW_REG_IP, &pc) < 0)
            return 0;
        count++;
    } while (unw_step(&cursor) > 0);
    return count;
}

static size_t walk_ptrace_cached(void)
{
    return walk_libunwind(warm.ptrace_cached);
}

static size_t walk_ptrace_uncached(void)
{
    return walk_libunwind(warm.ptrace_uncached);
}

static size_t walk_accessors(void)
{
    return walk_libunwind(warm.accessors_cached);
}

static int access_memory(unw_addr_space_t space, unw_word_t avma, unw_word_t *value, int write, void *context)
{
    if (write)
        return -UNW_EINVAL;
    if (snapshot_read(&warm.target.snapshot, avma, value, sizeof(*value)))
        return 0;
    return _UPT_access_mem(space, avma, value, 0, context);
}

static int access_register(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write, void *context)
{
    (void)space, (void)context;
    if (write || number < 0 || number >= REGISTER_COUNT)
        return -UNW_EBADREG;
    *value = warm.target.snapshot.registers.value[number];
    return 0;
}

static unw_accessors_t snapshot_accessors(void)
{
    unw_accessors_t accessors = _UPT_accessors;
    accessors.access_mem = access_memory;
    accessors.access_reg = access_register;
    return accessors;
}

static int set_up_libunwind(void)
{
    static unw_accessors_t accessors;
    accessors = snapshot_accessors();
    warm.upt = _UPT_create(warm.stop.tid);
    warm.ptrace_cached = unw_create_addr_space(&_UPT_accessors, 0);
    warm.ptrace_uncached = unw_create_addr_space(&_UPT_accessors, 0);
    warm.accessors_cached = unw_create_addr_space(&accessors, 0);
    if (!warm.upt || !warm.ptrace_cached || !warm.ptrace_uncached || !warm.accessors_cached)
        return -ENOMEM;
    unw_set_caching_policy(warm.ptrace_cached, UNW_CACHE_PER_THREAD);
    unw_set_caching_policy(warm.accessors_cached, UNW_CACHE_PER_THREAD);
    unw_set_caching_policy(warm.ptrace_uncached, UNW_CACHE_NONE);
    return 0;
}

/* ---- libdwfl ---- */

static int find_no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                             const char *file_name, const char *debuglink_file, GElf_Word debuglink_crc,
                             char **debuginfo_file_name)
{
    (void)module, (void)userdata, (void)name, (void)base, (void)file_name, (void)debuglink_file;
    (void)debuglink_crc, (void)debuginfo_file_name;
    return -1;
}

static int count_frame(Dwfl_Frame *state, void *context)
{
    size_t *count = context;
    Dwarf_Addr pc;
    if (!dwfl_frame_pc(state, &pc, NULL))
        return DWARF_CB_ABORT;
    ++*count;
    return DWARF_CB_OK;
}

static size_t walk_libdwfl(void)
{
    size_t count = 0;
    return dwfl_getthread_frames(warm.dwfl, warm.stop.tid, count_frame, &count) == 0 ? count : 0;
}

static size_t walk_libdwfl_snapshot(void)
{
    peer_libdwfl_walk(warm.libdwfl, &warm.trace);
    return warm.trace.count;
}

static int set_up_libdwfl(pid_t pid)
{
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = find_no_debuginfo};
    warm.dwfl = dwfl_begin(&callbacks);
    if (!warm.dwfl || dwfl_linux_proc_report(warm.dwfl, pid) != 0 || dwfl_report_end(warm.dwfl, NULL, NULL) != 0 ||
        dwfl_linux_proc_attach(warm.dwfl, pid, true) != 0)
        return -EIO;
    warm.libdwfl = peer_libdwfl_new(&warm.target);
    return warm.libdwfl ? peer_libdwfl_report(warm.libdwfl, true) : -ENOMEM;
}

/* ---- rounds ---- */

static const struct method {
    const char *name;
    size_t walks; /* a round: some milliseconds, and so many that a tick of the clock does not show */
    size_t (*walk)(void);
} methods[] = {
    {"ours", 4000, walk_ours},
    {"libunwind_snapshot", 800, walk_accessors},
    {"libunwind_ptrace_cached", 500, walk_ptrace_cached},
    {"libunwind_ptrace_uncached", 8, walk_ptrace_uncached},
    {"libdwfl", 800, walk_libdwfl},
    {"libdwfl_snapshot", 800, walk_libdwfl_snapshot},
};
enum { METHODS = sizeof(methods) / sizeof(methods[0]), ROUNDS_MAX = 100 };

/* Returns 0 when every walk had all the frames. */
static int measure(const struct method *method, size_t walks, size_t frames, double *ret_us)
{
    uint64_t start_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < walks; i++) {
        if (method->walk() != frames) {
            fprintf(stderr, "unwind_bench: %s does not have all %zu frames\n", method->name, frames);
            return -EPROTO;
        }
    }
    *ret_us = (double)(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / (double)walks / 1000.0;
    return 0;
}

static int measure_all(size_t rounds)
{
    static double us[METHODS][ROUNDS_MAX];
    double first_us[METHODS];
    int error = 0;
    size_t frames = walk_ours();
    if (!frames || warm.target.stack.end != STACK_COMPLETE)
        return -EPROTO;
    for (size_t m = 1; m < METHODS && !error; m++)
        error = measure(&methods[m], 1, frames, &first_us[m]);
    struct unwind_counters before = unwinder_counters(warm.target.unwinder);
    for (size_t r = 0; r < rounds && !error; r++)
        for (size_t m = 0; m < METHODS && !error; m++)
            error = measure(&methods[m], methods[m].walks, frames, &us[m][r]);
    if (error)
        return error;
    printf("frames %zu\n", frames);
    for (size_t m = 0; m < METHODS; m++) {
        printf("%s", methods[m].name);
        for (size_t r = 0; r < rounds; r++)
            printf(" %.3f", us[m][r]);
        printf("\n");
    }
    for (size_t m = 1; m < METHODS; m++)
        printf("first_%s %.1f\n", methods[m].name, first_us[m]);
    bench_print_counters("counters_before", before);
    bench_print_counters("counters_after", unwinder_counters(warm.target.unwinder));
    return 0;
}

int bench_warm(pid_t pid, size_t rounds)
{
    bool code_changed;
    int error = target_open(pid, UNWIND_AUTO, &warm.target);
    if (!error)
        error = trace_init(&warm.trace);
    if (!error)
        error = stop_take(pid, &warm.stop);
    if (error)
        return error;
    error = target_refresh(&warm.target, pid, &code_changed);
    if (!error)
        error = target_copy(&warm.target, &warm.stop);
    if (!error)
        error = set_up_libunwind();
    if (!error)
        error = set_up_libdwfl(pid);
    if (!error)
        error = measure_all(rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX);
    stop_release(&warm.stop);
    return error;
}
