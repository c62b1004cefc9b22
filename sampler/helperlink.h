/*
 * One process with a helper inside: the memory that we share with it, and what goes over it.
 *
 * The capture thread has the ring, the slots and the settings; the unwinding thread tells rules and stacks
 * (helperlink_learn). Everything that is read here may have been written by the target with bad intent.
 */
#ifndef SAMPLER_HELPERLINK_H
#define SAMPLER_HELPERLINK_H

#include "common/clock.h"
#include "common/histogram.h"
#include "common/strbuf.h"
#include "sampler/helperring.h"
#include "sampler/item.h"
#include "sampler/options.h"
#include "unwind/unwind.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct helperlink;

/* What the helper has counted, and we of it. Read from shared memory: numbers to show, no more. */
struct helper_counters {
    bool is_there;
    uint64_t walked; /* stacks that it has followed to the end itself, in ticks */
    uint64_t copied; /* and those that it has sent to be unwound */
    uint64_t lost;
    uint64_t no_room;
    uint64_t blocked;
    uint64_t late;
    uint64_t faults;
    uint64_t by_call;
    uint64_t eintr;
    uint64_t timers;
    uint64_t timers_failed;
    uint64_t execs;   /* times that the program became another one, and the helper went away with the first */
    uint64_t gone;    /* that went by themselves, since they had not heard of us for too long */
    uint64_t missing; /* of these, into the next one none could be put */
    uint64_t resets;  /* of the ring, for nonsense in it */
    struct histogram handler_ns;
    /* What the kernel takes to call a handler and to come back, as tried in the sampler. */
    struct histogram delivery_ns;
};

/* The library's file, which is beside ours or where it was installed. 0 or a negative errno. */
int helperlink_find_library(struct strbuf *ret_path);

/* For a program that is yet to be launched: memory of our own. 0 or a negative errno. */
int helperlink_new(const struct options *options, struct helperlink **ret_link);

/* "/proc/PID/fd/N": where the launched program finds that memory. */
void helperlink_path(const struct helperlink *link, struct strbuf *ret_path);

/*
 * Puts the helper into a running process. 0, or a negative errno with one line in `ret_why`; then the target is as it
 * was.
 */
int helperlink_inject(const struct options *options, pid_t pid, int proc_fd, uint64_t timeout_ns,
                      struct helperlink **ret_link, struct strbuf *ret_why);

/* To load a library takes some milliseconds; a busy machine or a program that is deep in its allocator more. */
#define HELPERLINK_INJECT_TIMEOUT_NS (5 * NS_PER_SEC)

/* Asks it to withdraw, which it does when it next gets a signal. */
void helperlink_ask_withdraw(struct helperlink *link);
/* It has: asked, or because it has not heard of us for long. */
bool helperlink_is_withdrawn(const struct helperlink *link);
/* Waits until it has; at most so long. Returns whether. */
bool helperlink_wait_withdrawn(const struct helperlink *link, uint64_t timeout_ns);
void helperlink_free(struct helperlink *link);

/* Is the helper at work? A negative errno: it could not begin. */
int helperlink_state(const struct helperlink *link, bool *ret_is_ready);

/* Is the memory mapped in that process? One read of its maps; false also when they cannot be read. */
bool helperlink_is_mapped(const struct helperlink *link, int proc_fd);

/* The process has a seccomp filter now: its handlers make no system call from now on. */
void helperlink_must_not_call(struct helperlink *link);

/* We are still there. At least every few seconds. */
void helperlink_beat(struct helperlink *link, uint64_t now_ns);

/*
 * The code is mapped so from now on. Cheap when it is the map of the last call. Returns whether code has gone that was
 * there before, or another has taken its place.
 */
bool helperlink_set_map(struct helperlink *link, const struct address_map *map);

/* Counts moments at which code may have been unloaded; where the helper cannot know, it stays 0. */
uint32_t helperlink_unloads(const struct helperlink *link);
/* The map of the last call was read when that was so; only then are its rules used. */
void helperlink_set_map_unloads(struct helperlink *link, uint32_t unloads);
/* What certainly lasts, as a helper says that was there when the program began. NULL: it was not, or no memory. */
struct certaincode *helperlink_lasting(const struct helperlink *link);

/* A thread that has no timer yet; `inner_tid` as the target itself sees it. Its slot, or HELPER_SLOTS: no more room. */
uint32_t helperlink_want_thread(struct helperlink *link, pid_t inner_tid);
/* Its thread has our signal blocked no longer. */
void helperlink_unblock_thread(struct helperlink *link, uint32_t slot);
bool helperlink_is_blocked(const struct helperlink *link, uint32_t slot);
/* Signals: who has one of them blocked gets none of ours. */
uint64_t helperlink_blocking(const struct helperlink *link);
bool helperlink_has_armed(const struct helperlink *link, uint32_t slot);
/* It has ended: its timer is to go. */
void helperlink_end_thread(struct helperlink *link, uint32_t slot, pid_t inner_tid);

/* A signal to one thread: a sample of where it is (wall mode), or only to get its timer made. 0 or a negative errno. */
int helperlink_signal(const struct helperlink *link, pid_t pid, pid_t tid, uint32_t slot);

/* What it has recorded by now is to be read. */
void helperlink_begin_drain(struct helperlink *link, uint64_t now_ns);

/* The next thing that it has recorded; the buffer is the link's, until the next call. */
bool helperlink_next(struct helperlink *link, struct helper_event *ret, const uint8_t **ret_bytes);

/*
 * After a copy that it has sent was unwound: it gets the rules that were needed, and to know the thread's stack. On the
 * unwinding thread.
 */
void helperlink_learn(struct helperlink *link, struct unwinder *unwinder, const struct item *item,
                      const struct stack *stack);

struct helper_counters helperlink_counters(const struct helperlink *link);
void helper_counters_add(struct helper_counters *sum, const struct helper_counters *more);

#endif
