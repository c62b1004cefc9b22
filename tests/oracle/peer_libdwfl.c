#include "peer_libdwfl.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer_libdwfl {
    const struct target *target; /* borrowed */
    Dwfl *dwfl;
    bool attached;
    struct trace *trace; /* of the walk that is going on */
};

static int find_no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                             const char *file_name, const char *debuglink_file, GElf_Word debuglink_crc,
                             char **debuginfo_file_name)
{
    (void)module, (void)userdata, (void)name, (void)base, (void)file_name, (void)debuglink_file;
    (void)debuglink_crc, (void)debuginfo_file_name;
    return -1;
}

static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = find_no_debuginfo};

struct peer_libdwfl *peer_libdwfl_new(const struct target *target)
{
    struct peer_libdwfl *peer = calloc(1, sizeof(*peer));
    if (peer)
        peer->target = target;
    return peer;
}

void peer_libdwfl_free(struct peer_libdwfl *peer)
{
    if (!peer)
        return;
    if (peer->dwfl)
        dwfl_end(peer->dwfl);
    free(peer);
}

/* ---- what libdwfl asks of the thread ---- */

static pid_t next_thread(Dwfl *dwfl, void *context, void **thread)
{
    (void)dwfl;
    const struct peer_libdwfl *peer = context;
    if (*thread)
        return 0;
    *thread = context;
    return peer->target->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *context, void **thread)
{
    (void)dwfl, (void)tid;
    *thread = context;
    return true;
}

static bool read_word(Dwfl *dwfl, Dwarf_Addr avma, Dwarf_Word *ret, void *context)
{
    (void)dwfl;
    const struct target *target = ((const struct peer_libdwfl *)context)->target;
    return snapshot_read(&target->snapshot, avma, ret, sizeof(*ret)) || target_read(target, avma, ret, sizeof(*ret));
}

static bool set_registers(Dwfl_Thread *thread, void *context)
{
    const struct registers *registers = &((const struct peer_libdwfl *)context)->target->snapshot.registers;
    /* The numbers are DWARF's on both sides; the 17th is the return address column, which is the pc. */
    Dwarf_Word words[REGISTER_COUNT];
    for (int i = 0; i < REGISTER_COUNT; i++)
        words[i] = registers->value[i];
    return dwfl_thread_state_registers(thread, 0, REGISTER_COUNT, words);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {.next_thread = next_thread,
                                                       .get_thread = get_thread,
                                                       .memory_read = read_word,
                                                       .set_initial_registers = set_registers};

int peer_libdwfl_report(struct peer_libdwfl *peer, bool is_new_image)
{
    if (is_new_image && peer->dwfl) {
        dwfl_end(peer->dwfl);
        peer->dwfl = NULL;
        peer->attached = false;
    }
    if (!peer->dwfl)
        peer->dwfl = dwfl_begin(&callbacks);
    else
        dwfl_report_begin(peer->dwfl);
    if (!peer->dwfl)
        return -ENOMEM;
    int error = dwfl_linux_proc_report(peer->dwfl, peer->target->pid);
    if (dwfl_report_end(peer->dwfl, NULL, NULL) != 0 || error)
        return error > 0 ? -error : -EIO;
    if (!peer->attached && !dwfl_attach_state(peer->dwfl, NULL, peer->target->pid, &thread_callbacks, peer))
        return -EIO;
    peer->attached = true;
    return 0;
}

static int add_frame(Dwfl_Frame *state, void *context)
{
    struct peer_libdwfl *peer = context;
    struct trace_frame frame = {.exact = peer->trace->count == 0};
    Dwarf_Word sp;
    if (!dwfl_frame_pc(state, &frame.avma, NULL))
        return DWARF_CB_ABORT;
    if (dwfl_frame_reg(state, REGISTER_RSP, &sp) == 0)
        frame.sp = sp;
    return trace_add(peer->trace, frame) ? DWARF_CB_OK : DWARF_CB_ABORT;
}

void peer_libdwfl_walk(struct peer_libdwfl *peer, struct trace *ret_trace)
{
    trace_clear(ret_trace);
    peer->trace = ret_trace;
    int answer = dwfl_getthread_frames(peer->dwfl, peer->target->pid, add_frame, peer);
    ret_trace->at_root = answer == 0;
    const char *error = answer < 0 ? dwfl_errmsg(-1) : NULL;
    snprintf(ret_trace->end, sizeof(ret_trace->end), "%s",
             answer == 0  ? "root"
             : answer > 0 ? "limit"
             : error      ? error
                          : "?");
}

static bool find_row(Dwarf_CFI *cfi, Dwarf_Addr svma, struct peer_row *ret_row)
{
    Dwarf_Frame *frame;
    if (!cfi || dwarf_cfi_addrframe(cfi, svma, &frame) != 0)
        return false;
    Dwarf_Addr start_svma;
    Dwarf_Op memory[3];
    Dwarf_Op *ops = NULL;
    size_t count = 0;
    bool is_known = dwarf_frame_info(frame, &start_svma, NULL, NULL) >= 0 &&
                    dwarf_frame_register(frame, REGISTER_PC, memory, &ops, &count) == 0;
    /* No operations: "same value" without any, "undefined" with a place for some. */
    if (is_known)
        *ret_row = (struct peer_row){.start_avma = start_svma, .is_outermost = count == 0 && ops != NULL};
    free(frame);
    return is_known;
}

bool peer_libdwfl_find_row(struct peer_libdwfl *peer, uint64_t lookup_avma, struct peer_row *ret_row)
{
    Dwfl_Module *module = dwfl_addrmodule(peer->dwfl, lookup_avma);
    if (!module)
        return false;
    Dwarf_Addr bias;
    Dwarf_CFI *cfi = dwfl_module_eh_cfi(module, &bias);
    bool found = find_row(cfi, lookup_avma - bias, ret_row);
    if (!found) {
        cfi = dwfl_module_dwarf_cfi(module, &bias);
        found = find_row(cfi, lookup_avma - bias, ret_row);
    }
    if (found)
        ret_row->start_avma += bias;
    return found;
}
