#include "profile/profile.h"

#include "common/array.h"
#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Open addressing from a hash to entry numbers; which entry is equal is asked of the caller. */
struct profile_index {
    uint32_t *slots; /* number + 1, 0 is free */
    uint64_t *hashes;
    size_t slot_count;
    size_t used;
};

static struct profile_index *index_new(void)
{
    struct profile_index *index = calloc(1, sizeof(*index));
    if (!index)
        return NULL;
    index->slot_count = 1024;
    index->slots = calloc(index->slot_count, sizeof(*index->slots));
    index->hashes = calloc(index->slot_count, sizeof(*index->hashes));
    if (!index->slots || !index->hashes) {
        free(index->slots);
        free(index->hashes);
        free(index);
        return NULL;
    }
    return index;
}

static void index_free(struct profile_index *index)
{
    if (!index)
        return;
    free(index->slots);
    free(index->hashes);
    free(index);
}

static int index_grow(struct profile_index *index)
{
    size_t slot_count = index->slot_count * 2;
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    uint64_t *hashes = calloc(slot_count, sizeof(*hashes));
    if (!slots || !hashes) {
        free(slots);
        free(hashes);
        return -ENOMEM;
    }
    for (size_t i = 0; i < index->slot_count; i++) {
        if (!index->slots[i])
            continue;
        size_t slot = index->hashes[i] & (slot_count - 1);
        while (slots[slot])
            slot = (slot + 1) & (slot_count - 1);
        slots[slot] = index->slots[i];
        hashes[slot] = index->hashes[i];
    }
    free(index->slots);
    free(index->hashes);
    index->slots = slots;
    index->hashes = hashes;
    index->slot_count = slot_count;
    return 0;
}

typedef bool is_equal(const struct profile *profile, uint32_t number, const void *wanted);

/* The slot of the equal entry, or the free slot where it belongs. */
static size_t index_find(const struct profile *profile, const struct profile_index *index, uint64_t hash,
                         is_equal *equal, const void *wanted)
{
    size_t slot = hash & (index->slot_count - 1);
    while (index->slots[slot] && (index->hashes[slot] != hash || !equal(profile, index->slots[slot] - 1, wanted)))
        slot = (slot + 1) & (index->slot_count - 1);
    return slot;
}

/*
 * Finds the number of the entry equal to `wanted`. When there is none, *ret_number is `next` (which the caller then
 * fills in) and *ret_new is true.
 */
static int index_add(const struct profile *profile, struct profile_index *index, uint64_t hash, is_equal *equal,
                     const void *wanted, size_t next, uint32_t *ret_number, bool *ret_new)
{
    size_t slot = index_find(profile, index, hash, equal, wanted);
    *ret_new = !index->slots[slot];
    if (!*ret_new) {
        *ret_number = index->slots[slot] - 1;
        return 0;
    }
    if (next >= UINT32_MAX - 1)
        return -ENOMEM;
    if ((index->used + 1) * 2 > index->slot_count) {
        int error = index_grow(index);
        if (error)
            return error;
        slot = index_find(profile, index, hash, equal, wanted);
    }
    index->slots[slot] = (uint32_t)next + 1;
    index->hashes[slot] = hash;
    index->used++;
    *ret_number = (uint32_t)next;
    return 0;
}

struct profile *profile_new(void)
{
    struct profile *profile = calloc(1, sizeof(*profile));
    if (!profile)
        return NULL;
    profile->frame_index = index_new();
    profile->stack_index = index_new();
    profile->sample_index = index_new();
    if (!profile->frame_index || !profile->stack_index || !profile->sample_index || strings_init(&profile->strings) ||
        array_room(&profile->stacks, &profile->stack_capacity, 1)) {
        profile_free(profile);
        return NULL;
    }
    profile->stacks[profile->stack_count++] = (struct profile_stack){0};
    return profile;
}

void profile_free(struct profile *profile)
{
    if (!profile)
        return;
    index_free(profile->frame_index);
    index_free(profile->stack_index);
    index_free(profile->sample_index);
    strings_deinit(&profile->strings);
    free(profile->frames);
    free(profile->names);
    free(profile->stacks);
    free(profile->threads);
    free(profile->samples);
    free(profile);
}

static bool frame_is(const struct profile *profile, uint32_t number, const void *wanted)
{
    const struct place *a = &profile->frames[number].place;
    const struct place *b = wanted;
    return a->image == b->image && a->space == b->space && a->off == b->off;
}

int profile_add_frame(struct profile *profile, const struct place *place, uint32_t *ret_frame)
{
    int error = array_room(&profile->frames, &profile->frame_capacity, profile->frame_count + 1);
    if (error)
        return error;
    bool is_new;
    uint64_t hash = hash_pair(((uint64_t)place->image << 32) | place->space, place->off);
    error = index_add(profile, profile->frame_index, hash, frame_is, place, profile->frame_count, ret_frame, &is_new);
    if (error || !is_new)
        return error;
    profile->frames[profile->frame_count++] = (struct profile_frame){.place = *place};
    return 0;
}

static bool stack_is(const struct profile *profile, uint32_t number, const void *wanted)
{
    const struct profile_stack *a = &profile->stacks[number];
    const struct profile_stack *b = wanted;
    return a->caller == b->caller && a->frame == b->frame;
}

int profile_add_stack(struct profile *profile, const uint32_t *frames, size_t count, uint32_t *ret_stack)
{
    uint32_t stack = 0;
    for (size_t i = count; i-- > 0;) {
        int error = array_room(&profile->stacks, &profile->stack_capacity, profile->stack_count + 1);
        if (error)
            return error;
        struct profile_stack wanted = {.caller = stack, .frame = frames[i], .depth = profile->stacks[stack].depth + 1};
        bool is_new;
        error = index_add(profile, profile->stack_index, hash_pair(wanted.caller, wanted.frame), stack_is, &wanted,
                          profile->stack_count, &stack, &is_new);
        if (error)
            return error;
        if (is_new)
            profile->stacks[profile->stack_count++] = wanted;
    }
    *ret_stack = stack;
    return 0;
}

int profile_add_thread(struct profile *profile, const struct profile_thread *thread, uint32_t *ret_thread)
{
    if (profile->thread_count >= UINT32_MAX - 1)
        return -ENOMEM;
    int error = array_room(&profile->threads, &profile->thread_capacity, profile->thread_count + 1);
    if (error)
        return error;
    *ret_thread = (uint32_t)profile->thread_count;
    profile->threads[profile->thread_count++] = *thread;
    return 0;
}

static bool sample_is(const struct profile *profile, uint32_t number, const void *wanted)
{
    const struct profile_sample *a = &profile->samples[number];
    const struct profile_sample *b = wanted;
    return a->thread == b->thread && a->thread_name == b->thread_name && a->stack == b->stack && a->state == b->state &&
           a->kind == b->kind;
}

int profile_add_sample(struct profile *profile, const struct profile_sample *sample)
{
    int error = array_room(&profile->samples, &profile->sample_capacity, profile->sample_count + 1);
    if (error)
        return error;
    uint64_t hash = hash_pair(hash_pair(sample->thread, sample->thread_name),
                              hash_pair(hash_pair(sample->stack, sample->state), sample->kind));
    uint32_t number;
    bool is_new;
    error = index_add(profile, profile->sample_index, hash, sample_is, sample, profile->sample_count, &number, &is_new);
    if (error)
        return error;
    if (is_new) {
        profile->samples[profile->sample_count++] = *sample;
    } else {
        profile->samples[number].count += sample->count;
        profile->samples[number].ns += sample->ns;
    }
    return 0;
}

/* What was given out of a thread's time so far. */
struct share {
    uint64_t total_count;
    uint64_t total_ns; /* that its samples stood for */
    uint64_t weight;
    uint64_t ns;
};

static int add_unsampled(struct profile *profile, const struct share *shares)
{
    for (size_t i = 0; i < profile->thread_count; i++) {
        if (shares[i].total_count || !profile->threads[i].cpu_ns)
            continue;
        struct profile_sample unseen = {.thread = (uint32_t)i,
                                        .thread_name = profile->threads[i].name,
                                        .kind = SAMPLE_NOT_SAMPLED,
                                        .ns = profile->threads[i].cpu_ns};
        int error = profile_add_sample(profile, &unseen);
        if (error)
            return error;
    }
    return 0;
}

int profile_scale_by_cpu(struct profile *profile)
{
    struct share *shares = calloc(profile->thread_count + 1, sizeof(*shares));
    if (!shares)
        return -ENOMEM;
    for (size_t i = 0; i < profile->sample_count; i++) {
        shares[profile->samples[i].thread].total_count += profile->samples[i].count;
        shares[profile->samples[i].thread].total_ns += profile->samples[i].ns;
    }
    for (size_t i = 0; i < profile->sample_count; i++) {
        struct profile_sample *sample = &profile->samples[i];
        struct share *share = &shares[sample->thread];
        uint64_t cpu_ns = profile->threads[sample->thread].cpu_ns;
        /* Rounding the running sum, not each part, makes the parts add up. */
        if (share->total_count == 0)
            continue; /* nothing but time without a sample: named as such already */
        uint64_t total = share->total_ns ? share->total_ns : share->total_count;
        share->weight += share->total_ns ? sample->ns : sample->count;
        uint64_t until_ns = (uint64_t)((unsigned __int128)cpu_ns * share->weight / total);
        sample->ns = until_ns - share->ns;
        share->ns = until_ns;
    }
    int error = add_unsampled(profile, shares);
    free(shares);
    return error;
}

/* A thread's time by account: as the samples have it, as it is to be, and what was given out so far. */
struct accounts {
    uint64_t sampled_ns[ACCOUNT_COUNT];
    uint64_t wanted_ns[ACCOUNT_COUNT];
    uint64_t seen_ns[ACCOUNT_COUNT];
    uint64_t given_ns[ACCOUNT_COUNT];
};

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static void settle(struct accounts *accounts, const struct profile_thread *thread)
{
    const uint64_t *sampled = accounts->sampled_ns;
    if (!thread->cpu_ns && !thread->wait_ns) { /* the accounts are not known */
        memcpy(accounts->wanted_ns, sampled, sizeof(accounts->wanted_ns));
        return;
    }
    uint64_t *wanted = accounts->wanted_ns;
    uint64_t left_ns = sampled[ACCOUNT_REST] + sampled[ACCOUNT_RUN] + sampled[ACCOUNT_WAIT];
    wanted[ACCOUNT_RUN] = sampled[ACCOUNT_RUN] ? at_most(thread->cpu_ns, left_ns) : 0;
    left_ns -= wanted[ACCOUNT_RUN];
    wanted[ACCOUNT_WAIT] = sampled[ACCOUNT_WAIT] ? at_most(thread->wait_ns, left_ns) : 0;
    left_ns -= wanted[ACCOUNT_WAIT];
    /* What nobody has: the accounts' last moments, and our stops. */
    enum sample_account last = sampled[ACCOUNT_REST]   ? ACCOUNT_REST
                               : sampled[ACCOUNT_WAIT] ? ACCOUNT_WAIT
                                                       : ACCOUNT_RUN;
    wanted[last] += left_ns;
}

int profile_scale_by_accounts(struct profile *profile)
{
    struct accounts *all = calloc(profile->thread_count + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < profile->sample_count; i++)
        all[profile->samples[i].thread].sampled_ns[profile->samples[i].account] += profile->samples[i].ns;
    for (size_t i = 0; i < profile->thread_count; i++)
        settle(&all[i], &profile->threads[i]);
    for (size_t i = 0; i < profile->sample_count; i++) {
        struct profile_sample *sample = &profile->samples[i];
        struct accounts *accounts = &all[sample->thread];
        enum sample_account account = sample->account;
        if (!accounts->sampled_ns[account])
            continue;
        accounts->seen_ns[account] += sample->ns;
        uint64_t until_ns = (uint64_t)((unsigned __int128)accounts->wanted_ns[account] * accounts->seen_ns[account] /
                                       accounts->sampled_ns[account]);
        sample->ns = until_ns - accounts->given_ns[account];
        accounts->given_ns[account] = until_ns;
    }
    free(all);
    return 0;
}

int profile_add_name(struct profile *profile, uint32_t frame, const char *text, enum name_kind kind)
{
    int error = array_room(&profile->names, &profile->name_capacity, profile->name_count + 1);
    if (error)
        return error;
    struct name name = {.kind = kind};
    error = strings_add(&profile->strings, text, &name.text);
    if (error)
        return error;
    struct profile_frame *named = &profile->frames[frame];
    if (named->name_count == 0)
        named->first_name = profile->name_count;
    named->name_count++;
    profile->names[profile->name_count++] = name;
    return 0;
}
