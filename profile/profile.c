#include "profile/profile.h"

#include "common/array.h"
#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>

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

/* Time that is given out to samples by their weight. */
struct share {
    uint64_t weight; /* of all that get some, */
    uint64_t ns;     /* and what they get */
    uint64_t given_weight;
    uint64_t given_ns;
};

/* The part of a sample of that weight. Rounding the running sum, not each part, makes the parts add up. */
static uint64_t share_give(struct share *share, uint64_t weight)
{
    share->given_weight += weight;
    uint64_t until_ns = (uint64_t)((unsigned __int128)share->ns * share->given_weight / share->weight);
    uint64_t part_ns = until_ns - share->given_ns;
    share->given_ns = until_ns;
    return part_ns;
}

/* A thread's samples: so many ticks, which stood for so much time. */
struct sampled {
    uint64_t count;
    uint64_t ns;
    struct share share;
};

static int add_unsampled(struct profile *profile, const struct sampled *sampled)
{
    for (size_t i = 0; i < profile->thread_count; i++) {
        if (sampled[i].count || !profile->threads[i].cpu_ns)
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
    struct sampled *sampled = calloc(profile->thread_count + 1, sizeof(*sampled));
    if (!sampled)
        return -ENOMEM;
    for (size_t i = 0; i < profile->sample_count; i++) {
        sampled[profile->samples[i].thread].count += profile->samples[i].count;
        sampled[profile->samples[i].thread].ns += profile->samples[i].ns;
    }
    for (size_t i = 0; i < profile->thread_count; i++)
        sampled[i].share = (struct share){.weight = sampled[i].ns ? sampled[i].ns : sampled[i].count,
                                          .ns = profile->threads[i].cpu_ns};
    for (size_t i = 0; i < profile->sample_count; i++) {
        struct profile_sample *sample = &profile->samples[i];
        struct sampled *all = &sampled[sample->thread];
        if (all->count) /* else nothing but time without a sample: named as such already */
            sample->ns = share_give(&all->share, all->ns ? sample->ns : sample->count);
    }
    int error = add_unsampled(profile, sampled);
    free(sampled);
    return error;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* What each account of the thread is to give, `weight` being what its samples have. */
static void settle(struct share *accounts, const struct profile_thread *thread)
{
    struct share *rest = &accounts[ACCOUNT_REST];
    struct share *run = &accounts[ACCOUNT_RUN];
    struct share *wait = &accounts[ACCOUNT_WAIT];
    if (!thread->cpu_ns && !thread->wait_ns) { /* the accounts are not known */
        for (unsigned i = 0; i < ACCOUNT_COUNT; i++)
            accounts[i].ns = accounts[i].weight;
        return;
    }
    uint64_t left_ns = rest->weight + run->weight + wait->weight;
    run->ns = run->weight ? at_most(thread->cpu_ns, left_ns) : 0;
    left_ns -= run->ns;
    wait->ns = wait->weight ? at_most(thread->wait_ns, left_ns) : 0;
    left_ns -= wait->ns;
    /* What nobody has: the accounts' last moments, and our stops. */
    struct share *last = rest->weight ? rest : wait->weight ? wait : run;
    last->ns += left_ns;
}

int profile_scale_by_accounts(struct profile *profile)
{
    struct share(*accounts)[ACCOUNT_COUNT] = calloc(profile->thread_count + 1, sizeof(*accounts));
    if (!accounts)
        return -ENOMEM;
    for (size_t i = 0; i < profile->sample_count; i++)
        accounts[profile->samples[i].thread][profile->samples[i].account].weight += profile->samples[i].ns;
    for (size_t i = 0; i < profile->thread_count; i++)
        settle(accounts[i], &profile->threads[i]);
    for (size_t i = 0; i < profile->sample_count; i++) {
        struct profile_sample *sample = &profile->samples[i];
        struct share *account = &accounts[sample->thread][sample->account];
        if (account->weight)
            sample->ns = share_give(account, sample->ns);
    }
    free(accounts);
    return 0;
}

int profile_add_name(struct profile *profile, uint32_t frame, const char *text, enum name_kind kind)
{
    return profile_add_named_line(profile, frame, text, kind, NULL, 0);
}

int profile_add_named_line(struct profile *profile, uint32_t frame, const char *text, enum name_kind kind,
                           const char *file, unsigned line)
{
    int error = array_room(&profile->names, &profile->name_capacity, profile->name_count + 1);
    if (error)
        return error;
    struct name name = {.kind = kind, .line = line};
    error = strings_add(&profile->strings, text, &name.text);
    if (!error && file)
        error = strings_add(&profile->strings, file, &name.file);
    if (error)
        return error;
    struct profile_frame *named = &profile->frames[frame];
    if (named->name_count == 0)
        named->first_name = profile->name_count;
    named->name_count++;
    profile->names[profile->name_count++] = name;
    return 0;
}
