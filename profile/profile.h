/*
 * The profile: who was seen where, how often. The model that every writer reads.
 *
 * Filled in two steps. During the run frames are places (image and offset, or an address in an address space) and
 * samples are added as they are unwound. After the run each distinct frame gets its names once. A writer sees names
 * only.
 *
 * Equal samples are one entry with a count, so memory is bounded by the number of distinct stacks, not by time.
 * One owner at a time; not thread-safe. Numbers (frame, stack, thread, string) are valid for the profile that gave
 * them.
 */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include "common/strings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Where a frame's code is. `space` 0: in an image, `off` is the file offset. Otherwise `off` is an address in that
 * address space: JIT or other anonymous code (`image` 0), or a file that is no ELF (`image` says which, for its name).
 * Both 0: nowhere known. The numbers are the sampler's own.
 */
struct place {
    uint32_t image;
    uint32_t space;
    uint64_t off;
};

enum name_kind {
    NAME_FUNCTION,
    NAME_INLINED,
    NAME_JIT,
    NAME_KERNEL,
    NAME_NONE /* a stand-in in brackets: "[libc.so.6]", "[anon]", "[unknown]" */
};

struct name {
    uint32_t text; /* string; as the symbol table gives it, cleaned only by writers */
    enum name_kind kind;
    uint32_t file; /* string: the path of the source; 0: not known */
    unsigned line; /* 0: not known */
};

struct profile_frame {
    struct place place;
    size_t first_name; /* names outermost first: the function, then what was inlined into it */
    size_t name_count;
};

/* A stack is its innermost frame and the stack of its caller. Number 0 is the empty stack. */
struct profile_stack {
    uint32_t caller;
    uint32_t frame;
    uint32_t depth;
};

struct profile_thread {
    pid_t pid;
    pid_t tid;
    uint32_t name;    /* string: its last name */
    uint64_t cpu_ns;  /* CPU time that the kernel accounts to it for the sampled interval, */
    uint64_t wait_ns; /* and time for which it waited for a CPU */
};

enum sample_kind {
    SAMPLE_WHOLE,
    SAMPLE_TRUNCATED,
    SAMPLE_FAILED,     /* no stack */
    SAMPLE_NOT_SAMPLED /* time of a thread that no sample covers; no stack, count 0 */
};

/* Which of the kernel's accounts of the thread a sample's time is part of. */
enum sample_account { ACCOUNT_REST, ACCOUNT_RUN, ACCOUNT_WAIT, ACCOUNT_COUNT };

struct profile_sample {
    uint32_t thread;
    uint32_t thread_name; /* string: the thread's name then */
    uint32_t stack;
    uint32_t state; /* string: what it was doing, "running", "epoll_wait"; 0: not known */
    enum sample_kind kind;
    enum sample_account account; /* follows from the state */
    uint64_t count;
    uint64_t ns;
};

struct profile {
    struct strings strings;
    struct profile_frame *frames;
    size_t frame_count, frame_capacity;
    struct name *names;
    size_t name_count, name_capacity;
    struct profile_stack *stacks;
    size_t stack_count, stack_capacity;
    struct profile_thread *threads;
    size_t thread_count, thread_capacity;
    struct profile_sample *samples;
    size_t sample_count, sample_capacity;
    struct profile_index *frame_index, *stack_index, *sample_index; /* owned */
};

struct profile *profile_new(void); /* NULL: no memory */
void profile_free(struct profile *profile);

/* All return 0 or -ENOMEM, and the number of the equal entry when there is one already. */
int profile_add_frame(struct profile *profile, const struct place *place, uint32_t *ret_frame);
/* `frames` innermost first, as a walk finds them. */
int profile_add_stack(struct profile *profile, const uint32_t *frames, size_t count, uint32_t *ret_stack);
/* Always a new thread: the caller knows which one it means. */
int profile_add_thread(struct profile *profile, const struct profile_thread *thread, uint32_t *ret_thread);
/* Adds count and ns to the sample with this thread, name, stack, state and kind. */
int profile_add_sample(struct profile *profile, const struct profile_sample *sample);

/*
 * Sets the nanoseconds of each thread's samples to their share of its cpu_ns, so that they add up to it exactly: by the
 * time that they stood for so far, or by count if none stood for any. A thread with time but without a sample gets one
 * SAMPLE_NOT_SAMPLED instead. Returns 0 or -ENOMEM.
 */
int profile_scale_by_cpu(struct profile *profile);

/*
 * Scales the nanoseconds of each thread's samples that are part of an account to that account, and the others to what
 * is left, so that their sum stays what it is. An account of which no sample is part stays in the rest.
 */
int profile_scale_by_accounts(struct profile *profile);

/* Gives a frame one more name, inside those that it has. Returns 0 or -ENOMEM; only the frame that was named last may
 * go on. */
int profile_add_name(struct profile *profile, uint32_t frame, const char *text, enum name_kind kind);

/* The same, with its place in the source: `file` NULL and line 0 are not known. */
int profile_add_named_line(struct profile *profile, uint32_t frame, const char *text, enum name_kind kind,
                           const char *file, unsigned line);

#endif
