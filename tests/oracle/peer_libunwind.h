/*
 * libunwind-ptrace's walk of the held thread: one UPT per thread and one address space, kept, with their caches, until
 * executable mappings change. Where no unwind information covers the pc, it guesses: a PLT entry by its bytes, else a
 * frame pointer, unchecked.
 */
#ifndef ORACLE_PEER_LIBUNWIND_H
#define ORACLE_PEER_LIBUNWIND_H

#include "trace.h"

#include <sys/types.h>

struct peer_libunwind;

struct peer_libunwind *peer_libunwind_new(void); /* NULL: no memory */
void peer_libunwind_free(struct peer_libunwind *peer);

/* Forgets everything about mappings. */
void peer_libunwind_flush(struct peer_libunwind *peer);

/*
 * Walks the held thread. ret_trace->at_root only says that it ended without an error; whether by a rule or because a
 * guess led to a zero is for the caller to find out. `cached` false: with nothing kept from earlier walks (its cache
 * takes a return address for the same address interrupted).
 */
void peer_libunwind_walk(struct peer_libunwind *peer, pid_t tid, bool cached, struct trace *ret_trace);

#endif
