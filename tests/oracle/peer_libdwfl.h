/*
 * libdwfl's walk of the held thread. The Dwfl is kept and told when mappings change; registers and memory are handed to
 * it by callbacks of our own, so it traces nobody. It takes CFI where there is some (.eh_frame, .debug_frame), else a
 * frame pointer, unchecked. Separate debug files are not searched for: ours does not read them either.
 */
#ifndef ORACLE_PEER_LIBDWFL_H
#define ORACLE_PEER_LIBDWFL_H

#include "target.h"
#include "trace.h"

struct peer_libdwfl;

/* `target` is borrowed. NULL: no memory. */
struct peer_libdwfl *peer_libdwfl_new(const struct target *target);
void peer_libdwfl_free(struct peer_libdwfl *peer);

/* To be called when executable mappings changed. Returns 0 or a negative errno. */
int peer_libdwfl_report(struct peer_libdwfl *peer, bool is_new_image);

/* Walks target->snapshot, whose thread is held. */
void peer_libdwfl_walk(struct peer_libdwfl *peer, struct trace *ret_trace);

/* The row of unwind information that covers an instruction, as libdw finds it. */
struct peer_row {
    uint64_t start_avma;
    bool is_outermost; /* the return address is undefined */
};

/* false: none does. */
bool peer_libdwfl_find_row(struct peer_libdwfl *peer, uint64_t lookup_avma, struct peer_row *ret_row);

#endif
