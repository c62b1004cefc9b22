/*
 * Who is right, as far as it can be decided without knowing the program.
 *
 * Compared are the addresses of the frames, innermost first, as they lie on the stack; not which rule found them, and
 * not what libdwfl calls an activation (it also means signal trampolines).
 *
 * A frame is *credible* when it is the innermost, lies behind a call instruction, is a signal trampoline, or was
 * interrupted (stands under a trampoline, in executable memory). A walk is *at its root* when it ended
 * because unwind information says that there is no caller, or the return address that it points to is zero. libdwfl
 * tells that from an error; libunwind ends in the same way where it has no information and rbp is zero, so its last
 * frame must be one that has no caller by libdw's, or libdwfl's last.
 *
 * The ends differ: libdwfl may add a last frame that is no code, libunwind goes on by frame pointers that are none. So
 * of a walk that is not at its root only the part before the first frame that is not credible is compared (the rest is
 * its *tail*; how often one was dropped is counted). What is left of the better of the two is the measure: the one at
 * its root, else the longer one, else the one that agrees further with ours. Ours is the same when it has the same
 * addresses, all of them.
 */
#ifndef ORACLE_JUDGE_H
#define ORACLE_JUDGE_H

#include "peer_libdwfl.h"
#include "target.h"
#include "trace.h"

enum peer { PEER_LIBDWFL, PEER_LIBUNWIND, PEER_COUNT };

enum kind {
    KIND_SAME,
    /* ours is better */
    KIND_PEER_SHORT,   /* it stopped; ours goes on to the root, by credible frames */
    KIND_PEER_NO_CALL, /* its frame is not credible, ours is */
    KIND_PEER_LOST,    /* both are credible, ours comes to the root, it does not */
    /* No unwind information, and the thread is at an instruction at which rbp is its caller's: the peer goes by it and
       so misses the caller, which ours has (unwind/inspect.h), behind a call. Nothing else differs. */
    KIND_PEER_SKIPPED,
    /* A signal trampoline without good information (Go's): ours goes on where the kernel's frame on the stack says that
       the signal came, and no less far than the peer, which does not. */
    KIND_PEER_SIGNAL,
    /* explained */
    /* No unwind information, and ours believes no frame pointer; the other guesses on by one, which leads nowhere, */
    KIND_NO_RULE,
    /* or to the root, though by a return address behind no call (HotSpot's interpreter; or ours uses CFI only). */
    KIND_NO_RULE_ROOT,
    KIND_COPY,   /* the stack is larger than what is copied */
    KIND_MEMORY, /* memory that is neither copied nor code: the stack under an alternate signal stack */
    /* Unwind information leads to an address that is no code, and both ours and libdwfl, which go by it, say so;
       libunwind goes on by frame pointers, elsewhere (Go's runtime, where it changes from one stack to another). */
    KIND_SWITCH,
    KIND_BOTH_CUT, /* nobody comes to the root; ours goes on by credible frames */
    /* not explained */
    KIND_SHORT,       /* ours stopped where it should not have */
    KIND_BEYOND_ROOT, /* ours goes on where it says: root */
    KIND_DIFFERENT,   /* two credible frames, or ours is not credible */
    KIND_COUNT
};

enum kind_class { CLASS_SAME, CLASS_BETTER, CLASS_EXPLAINED, CLASS_UNEXPLAINED };
enum kind_class kind_class(enum kind kind);
const char *kind_name(enum kind kind);

struct judgement {
    bool is_same[PEER_COUNT]; /* ours has all the addresses of its list, tail and all, and no other */
    bool at_root[PEER_COUNT];
    size_t used[PEER_COUNT]; /* frames before the tail */
    bool agrees[PEER_COUNT]; /* ours has all of these */
    enum peer best;
    enum kind kind;       /* against the best */
    size_t at;            /* the first frame that differs; not for KIND_SAME */
    bool covered;         /* unwind information covers the frame before that */
    size_t impossible;    /* frames of ours that are return addresses and lie behind no call, or
                           * interrupted without a signal's trampoline below */
    size_t impossible_at; /* the first of them */
    size_t prepared;      /* not among the impossible: what somebody wrote there by hand, behind a no-op that starts a
                             function (Go's goexit), or a signal handler that makes it look as if the interrupted code
                             had called a function (Go's asyncPreempt); or in generated code, and both others have it
                             (HotSpot's      interpreter, which calls by jumps) */
};

/* While the thread is held. `peers` is indexed by enum peer. */
struct judgement judge(const struct target *target, struct peer_libdwfl *libdwfl, const struct trace *ours,
                       const struct trace *const *peers);

#endif
