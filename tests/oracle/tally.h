/*
 * What all stops together gave: counts, and each kind of difference once, with one example in full.
 *
 * A difference's key is its kind, the place of the last frame that was still the same (module and offset: there the
 * step was taken that differs) and what each of the three said next: a module, or how it ended.
 */
#ifndef ORACLE_TALLY_H
#define ORACLE_TALLY_H

#include "common/strbuf.h"
#include "judge.h"

#include <stdint.h>

/* Keys that are kept; further ones are only counted. */
enum { TALLY_KEYS = 512 };

struct tally_entry {
    enum kind kind; /* KIND_SAME: an impossible frame */
    uint64_t count;
    char *key;     /* owned */
    char *example; /* owned: lines of text */
};

/* All zero is empty. */
struct tally {
    uint64_t stops;
    uint64_t sleeping; /* of threads that were not running */
    uint64_t moved;    /* not judged: mappings changed meanwhile */
    uint64_t failed;   /* not judged: no stack, maps unreadable */
    uint64_t compared;
    uint64_t same_best;
    uint64_t same[PEER_COUNT];
    uint64_t same_both;
    uint64_t same_neither;
    uint64_t tails; /* same, when a tail of the best was dropped */
    uint64_t kinds[KIND_COUNT];
    uint64_t impossible; /* frames */
    uint64_t prepared;
    uint64_t frames;
    uint64_t complete;
    uint64_t at_root[PEER_COUNT];
    uint64_t libunwind_cache_wrong; /* walks that came out otherwise without its cache */
    /* Our walks without the registers that only a stop tells, against those with all: */
    uint64_t reduced_same;
    uint64_t reduced_inferred;  /* of these, with a frame pointer that was inferred */
    uint64_t reduced_cut;       /* they end early, and say so */
    uint64_t reduced_different; /* a wrong frame, or too few and not said so */
    struct tally_entry entries[TALLY_KEYS];
    size_t entry_count;
    uint64_t entries_lost;
    const char *save_dir; /* borrowed; NULL: no fixtures */
};

/* One stop's three walks, while the thread is held. */
struct comparison {
    const struct target *target;
    const struct trace *ours;
    const struct trace *peers[PEER_COUNT];
    struct judgement judgement;
};

void tally_deinit(struct tally *tally);

/* Counts it, and writes a fixture for a new key. Returns 0, -ENOMEM, or the error of the fixture's file. */
int tally_add(struct tally *tally, const struct comparison *comparison);

/* Compares our two walks; `inferred` frames of the reduced one. false: they differ. */
bool tally_add_reduced(struct tally *tally, const struct trace *ours, const struct trace *reduced, unsigned inferred);

uint64_t tally_class(const struct tally *tally, enum kind_class class); /* stops */

void tally_table(const struct tally *tally, struct strbuf *ret_text);
void tally_json(const struct tally *tally, struct strbuf *ret_text);

#endif
