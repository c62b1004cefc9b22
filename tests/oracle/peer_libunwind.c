#include "peer_libunwind.h"

#include <libunwind-ptrace.h>
#include <stdio.h>
#include <stdlib.h>

/* Threads whose UPT is kept; with more the oldest goes. */
enum { THREADS_KEPT = 64 };

struct peer_libunwind {
    unw_addr_space_t cached;
    unw_addr_space_t uncached;
    struct kept_thread {
        pid_t tid;
        void *upt;
    } threads[THREADS_KEPT];
    size_t next;
};

struct peer_libunwind *peer_libunwind_new(void)
{
    struct peer_libunwind *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return NULL;
    peer->cached = unw_create_addr_space(&_UPT_accessors, 0);
    peer->uncached = unw_create_addr_space(&_UPT_accessors, 0);
    if (!peer->cached || !peer->uncached) {
        peer_libunwind_free(peer);
        return NULL;
    }
    unw_set_caching_policy(peer->cached, UNW_CACHE_PER_THREAD);
    unw_set_caching_policy(peer->uncached, UNW_CACHE_NONE);
    return peer;
}

void peer_libunwind_flush(struct peer_libunwind *peer)
{
    for (size_t i = 0; i < THREADS_KEPT; i++) {
        if (peer->threads[i].upt)
            _UPT_destroy(peer->threads[i].upt);
        peer->threads[i] = (struct kept_thread){0};
    }
    unw_flush_cache(peer->cached, 0, 0);
}

void peer_libunwind_free(struct peer_libunwind *peer)
{
    if (!peer)
        return;
    if (peer->cached) {
        peer_libunwind_flush(peer);
        unw_destroy_addr_space(peer->cached);
    }
    if (peer->uncached)
        unw_destroy_addr_space(peer->uncached);
    free(peer);
}

static void *find_upt(struct peer_libunwind *peer, pid_t tid)
{
    for (size_t i = 0; i < THREADS_KEPT; i++)
        if (peer->threads[i].tid == tid)
            return peer->threads[i].upt;
    struct kept_thread *kept = &peer->threads[peer->next++ % THREADS_KEPT];
    if (kept->upt)
        _UPT_destroy(kept->upt);
    *kept = (struct kept_thread){.tid = tid, .upt = _UPT_create(tid)};
    return kept->upt;
}

static void walk(unw_addr_space_t space, void *upt, struct trace *trace)
{
    unw_cursor_t cursor;
    int answer = unw_init_remote(&cursor, space, upt);
    if (answer < 0) {
        snprintf(trace->end, sizeof(trace->end), "init: %s", unw_strerror(answer));
        return;
    }
    do {
        unw_word_t pc;
        unw_word_t sp;
        if (unw_get_reg(&cursor, UNW_REG_IP, &pc) < 0 || unw_get_reg(&cursor, UNW_REG_SP, &sp) < 0 ||
            !trace_add(trace, (struct trace_frame){.avma = pc, .sp = sp, .exact = trace->count == 0})) {
            snprintf(trace->end, sizeof(trace->end), "limit");
            return;
        }
        answer = unw_step(&cursor);
    } while (answer > 0);
    trace->at_root = answer == 0;
    snprintf(trace->end, sizeof(trace->end), "%s", answer == 0 ? "end" : unw_strerror(answer));
}

void peer_libunwind_walk(struct peer_libunwind *peer, pid_t tid, bool cached, struct trace *ret_trace)
{
    trace_clear(ret_trace);
    void *upt = cached ? find_upt(peer, tid) : _UPT_create(tid);
    if (!upt) {
        snprintf(ret_trace->end, sizeof(ret_trace->end), "no memory");
        return;
    }
    walk(cached ? peer->cached : peer->uncached, upt, ret_trace);
    if (!cached)
        _UPT_destroy(upt);
}
